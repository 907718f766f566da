"""Transformer shapes: parameter tensors of each block, and the blocks of each pipeline stage.

A model is a chain of blocks (embedding, layers, head), each with the sizes of its parameter tensors
in forward order. GPT and BERT layers have biases and layer norms with scale and shift,
``12 h^2 + 13 h`` parameters each (Radford et al. 2019; Devlin et al., arXiv 1810.04805); T5 layers
have neither biases nor shifts, and one table of relative position biases per stack (Raffel et al.,
arXiv 1910.10683). The vocabulary is counted as given: Megatron-LM pads it to a multiple of 128 per
tensor-parallel rank (50,257 becomes 50,304), which a user gets by writing the padded number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fabricsim.spec.job import Model

BlockKind = Literal["embedding", "layer", "encoder-norm", "decoder-embedding", "decoder-layer", "head"]

RELATIVE_BUCKETS = 32
"""Relative distances that T5 tells apart (arXiv 1910.10683, section 2.1)."""

TOKEN_TYPES = 2
"""Segments of a BERT input (arXiv 1810.04805, section 3)."""


@dataclass(frozen=True)
class Block:
    """A part of a model that is never split over two stages.

    Attributes
    ----------
    kind
        What it computes.
    tensors
        Elements of each of its parameter tensors, in forward order.
    """

    kind: BlockKind
    tensors: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(self.tensors)


@dataclass(frozen=True)
class Layout:
    """How the layers of a model lie on the stages of a pipeline.

    Attributes
    ----------
    encoder, decoder
        Layers per stage, shape ``(stages,)``. GPT and BERT layers count as encoder layers.
    last_encoder, first_decoder
        The stages where the encoder of a T5 ends and its decoder begins; ``None`` for GPT and BERT.
    """

    encoder: tuple[int, ...]
    decoder: tuple[int, ...]
    last_encoder: int | None = None
    first_decoder: int | None = None

    @property
    def last(self) -> int:
        """The last stage."""
        return len(self.encoder) - 1


def feed_forward(model: Model) -> int:
    """Width of the feed-forward layer."""
    return model.feed_forward if model.feed_forward is not None else 4 * model.hidden


def attention_width(model: Model) -> int:
    """Width of queries, keys and values of all heads together."""
    return model.heads * model.head_width if model.head_width is not None else model.hidden


def decoder_layers(model: Model) -> int:
    """Count the decoder layers: a T5 has as many as encoder layers where it does not say, others none."""
    if model.family != "t5":
        return 0
    return model.decoder_layers if model.decoder_layers is not None else model.layers


def split_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Share out layers evenly; where they do not divide, earlier stages take one more.

    Megatron-LM refuses a remainder. Here the last stages, which have the head besides, stay short.
    """
    share, extra = divmod(layers, stages)
    return tuple(share + (stage < extra) for stage in range(stages))


def layout(model: Model, stages: int) -> Layout:
    """Lay the layers of a model on `stages` pipeline stages.

    The stages of a T5 are divided between encoder and decoder in proportion to their layers, as
    ``--pipeline-model-parallel-split-rank`` of Megatron-LM does by hand.
    """
    decoders = decoder_layers(model)
    if not decoders:
        return Layout(split_layers(model.layers, stages), (0,) * stages)
    if stages == 1:
        return Layout((model.layers,), (decoders,), 0, 0)
    wanted = round(stages * model.layers / (model.layers + decoders))
    split = min(max(wanted, 1, stages - decoders), stages - 1, model.layers)
    encoder = split_layers(model.layers, split) + (0,) * (stages - split)
    decoder = (0,) * split + split_layers(decoders, stages - split)
    return Layout(encoder, decoder, split - 1, split)


def embedding_stages(model: Model, stages: int) -> tuple[int, ...]:
    """Stages that hold a copy of the word embedding, ascending.

    With tied embeddings the last stage has one for its logits; the first decoder stage of a T5 has
    one for its inputs (Megatron-LM's embedding group).
    """
    plan = layout(model, stages)
    holders = {0}
    if plan.first_decoder is not None:
        holders.add(plan.first_decoder)
    if model.tied_embedding:
        holders.add(plan.last)
    return tuple(sorted(holders))


def stage_blocks(model: Model, stages: int) -> tuple[tuple[Block, ...], ...]:
    """Blocks of every pipeline stage, in forward order.

    A stage holds the word embedding at most once, in the first of its blocks that needs it, which
    is the last whose backward pass adds to its gradient.
    """
    plan = layout(model, stages)
    return tuple(_blocks_of_stage(model, plan, stage) for stage in range(stages))


def parameters(model: Model) -> int:
    """Parameters of the whole model, each counted once."""
    return sum(block.parameters for block in stage_blocks(model, 1)[0])


def _blocks_of_stage(model: Model, plan: Layout, stage: int) -> tuple[Block, ...]:
    blocks = []
    inputs = False
    if stage == 0:
        blocks.append(Block("embedding", _embedding(model)))
        inputs = True
    blocks += [Block("layer", _layer(model))] * plan.encoder[stage]
    if stage == plan.last_encoder:
        blocks.append(Block("encoder-norm", _norm(model)))
    if stage == plan.first_decoder:
        word = () if inputs else _word(model)
        blocks.append(Block("decoder-embedding", (*word, RELATIVE_BUCKETS * model.heads)))
        inputs = True
    blocks += [Block("decoder-layer", _decoder_layer(model))] * plan.decoder[stage]
    if stage == plan.last:
        own = () if model.tied_embedding and inputs else _word(model)
        blocks.append(Block("head", _head(model) + own))
    return tuple(blocks)


def _word(model: Model) -> tuple[int, ...]:
    return (model.vocabulary * model.hidden,)


def _linear(model: Model, inputs: int, outputs: int) -> tuple[int, ...]:
    weight = inputs * outputs
    return (weight,) if model.family == "t5" else (weight, outputs)


def _norm(model: Model) -> tuple[int, ...]:
    return (model.hidden,) if model.family == "t5" else (model.hidden, model.hidden)


def _embedding(model: Model) -> tuple[int, ...]:
    if model.family == "t5":
        return (*_word(model), RELATIVE_BUCKETS * model.heads)
    learned = (*_word(model), model.positions * model.hidden)
    return (*learned, TOKEN_TYPES * model.hidden) if model.family == "bert" else learned


def _attention(model: Model) -> tuple[int, ...]:
    hidden, width = model.hidden, attention_width(model)
    return _norm(model) + _linear(model, hidden, 3 * width) + _linear(model, width, hidden)


def _cross_attention(model: Model) -> tuple[int, ...]:
    hidden, width = model.hidden, attention_width(model)
    keys_values = _linear(model, hidden, 2 * width)
    return _norm(model) + _linear(model, hidden, width) + keys_values + _linear(model, width, hidden)


def _mlp(model: Model) -> tuple[int, ...]:
    hidden, inner = model.hidden, feed_forward(model)
    return _norm(model) + _linear(model, hidden, inner) + _linear(model, inner, hidden)


def _layer(model: Model) -> tuple[int, ...]:
    return _attention(model) + _mlp(model)


def _decoder_layer(model: Model) -> tuple[int, ...]:
    return _attention(model) + _cross_attention(model) + _mlp(model)


def _head(model: Model) -> tuple[int, ...]:
    if model.family != "bert":
        return _norm(model)
    hidden = model.hidden
    pooler, next_sentence = _linear(model, hidden, hidden), _linear(model, hidden, 2)
    transform = _linear(model, hidden, hidden) + _norm(model)
    return _norm(model) + pooler + next_sentence + transform + (model.vocabulary,)
