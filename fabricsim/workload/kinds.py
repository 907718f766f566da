"""Of which kind each layer of a model is, and of which parts layers consist."""

from collections import Counter
from itertools import chain
from typing import Literal

from fabricsim.scenario.job import Model

Part = Literal["attention", "feed-forward", "experts", "mamba"]
"""What comes between two sums with the residual stream."""

BlockKind = Literal[
    "embedding", "layer", "expert-layer", "encoder-norm", "decoder-embedding", "decoder-layer", "joint", "head", Part
]

LAYERS: tuple[BlockKind, ...] = (
    *("layer", "expert-layer", "decoder-layer"),
    *("attention", "feed-forward", "experts", "mamba"),
)
"""Blocks whose products may be narrower than all else, and of which full recomputation keeps the input only; embedding
and head are kept as in Megatron-LM."""

_SYMBOLS: dict[str, Part] = {"M": "mamba", "*": "attention", "-": "feed-forward", "E": "experts"}
_PARTS: dict[BlockKind, tuple[Part, ...]] = {
    "layer": ("attention", "feed-forward"),
    "expert-layer": ("attention", "experts"),
    **{part: (part,) for part in _SYMBOLS.values()},
}


def layer_kind(model: Model, number: int) -> BlockKind:
    """Say what a layer of a model without decoder is, counted from 0."""
    if model.pattern is not None:
        return _SYMBOLS[model.pattern[number]]
    experts = model.experts
    mixed = experts is not None and number >= experts.dense_layers and (number + 1) % experts.every == 0
    return "expert-layer" if mixed else "layer"


def predicting_layers(model: Model) -> tuple[BlockKind, ...]:
    """Say what the layers are of each module that predicts a further token."""
    ahead = model.multi_token
    if ahead is None:
        return ()
    if ahead.pattern is not None:
        return tuple(_SYMBOLS[symbol] for symbol in ahead.pattern)
    return (layer_kind(model, model.layers - 1),)


def predicted(model: Model) -> int:
    """Count the tokens behind the next one that are predicted as well."""
    return model.multi_token.depth if model.multi_token is not None else 0


def parts_of(kind: BlockKind) -> tuple[Part, ...]:
    """Say what a layer of a model without decoder consists of."""
    return _PARTS[kind]


def layer_parts(model: Model) -> Counter[Part]:
    """Count the parts of all layers but those of a decoder."""
    kinds = Counter(layer_kind(model, number) for number in range(model.layers))
    counted: Counter[Part] = Counter()
    for kind, times in kinds.items():
        counted += Counter(dict.fromkeys(parts_of(kind), times))
    return counted


def predicting_parts(model: Model) -> Counter[Part]:
    """Count the parts of the layers of all modules that predict further tokens."""
    once = Counter(chain.from_iterable(map(parts_of, predicting_layers(model))))
    return Counter({part: times * predicted(model) for part, times in once.items()})


def parts(model: Model) -> Counter[Part]:
    """Count the parts of all layers, modules that predict further tokens included."""
    return layer_parts(model) + predicting_parts(model)
