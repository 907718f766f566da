"""Parameters that one rank holds, in closed form.

A tensor-parallel rank has a ``1 / t`` part of all column- and row-parallel matrices, of the biases of
column-parallel ones and of the vocabulary; norms, biases of row-parallel matrices, positions and routers
are on each rank (Shoeybi et al., arXiv 1909.08053, section 3). With ``f = 4 h`` a GPT layer has
``12 h^2 / t + (7 / t + 6) h`` parameters, ``12 h^2 + 13 h`` in all.
"""

from typing import NamedTuple

from fabricsim.scenario.job import Experts, Job, Model, Parallelism
from fabricsim.scenario.model import StateSpace
from fabricsim.workload.kinds import BlockKind, layer_kind, predicting_layers
from fabricsim.workload.shapes import RELATIVE_BUCKETS, TOKEN_TYPES, Layout, attention_width, feed_forward, layout


class Parameters(NamedTuple):
    """Parameters of a part of the model on one rank.

    `dense`: those that all data-parallel ranks have.
    `experts`: those of the experts that the rank holds.
    """

    dense: int
    experts: int = 0


def virtual_stages(job: Job) -> int:
    """Count the parts that the layers are cut into: pipeline stages times model chunks in each."""
    return job.parallelism.pipeline * job.parallelism.virtual_stages


def chunk_parameters(job: Job) -> tuple[tuple[Parameters, ...], ...]:
    """Parameters on one rank of each block of each virtual stage, in forward order."""
    plan = layout(job.model, virtual_stages(job))
    return tuple(_chunk(job.model, job.parallelism, plan, stage) for stage in range(virtual_stages(job)))


def _chunk(model: Model, degrees: Parallelism, plan: Layout, stage: int) -> tuple[Parameters, ...]:
    word = model.vocabulary // degrees.tensor * model.hidden
    blocks = []
    if stage == 0:
        blocks.append(Parameters(word + _positions(model)))
    first = sum(plan.encoder[:stage])
    blocks += [_layer(model, degrees, layer_kind(model, first + index)) for index in range(plan.encoder[stage])]
    if stage == plan.last_encoder:
        blocks.append(Parameters(_norm(model)))
    if stage == plan.first_decoder:
        own = word if stage else 0
        blocks.append(Parameters(own + RELATIVE_BUCKETS * model.heads))
    blocks += [_decoder_layer(model, degrees.tensor)] * plan.decoder[stage]
    if stage == plan.last:
        ahead = model.multi_token
        has_inputs = stage in {0, plan.first_decoder} or ahead is not None
        heads = [_head(model, degrees.tensor) + (0 if model.tied_embedding and has_inputs else word)]
        if ahead is not None:
            blocks += _modules(model, degrees, word if stage else 0)
            heads += [0 if ahead.repeated and number else _norm(model) for number in range(ahead.depth)]
        blocks += map(Parameters, heads)
    return tuple(blocks)


def _modules(model: Model, degrees: Parallelism, word: int) -> list[Parameters]:
    """Modules that predict further tokens: two norms and a matrix from 2 h to h, and layers."""
    ahead = model.multi_token
    if ahead is None:
        return []
    joint = 2 * _norm(model) + 2 * model.hidden**2 // degrees.tensor
    joint += model.hidden // degrees.tensor if _biased(model) else 0
    module = [Parameters(joint), *(_layer(model, degrees, kind) for kind in predicting_layers(model))]
    empty = [Parameters(0)] * len(module)
    first = [Parameters(joint + word), *module[1:]]
    return [*first, *(empty if ahead.repeated else module) * (ahead.depth - 1)]


def _norm(model: Model) -> int:
    """Scale and shift; T5 and Llama have no shift."""
    return model.hidden if model.family in {"t5", "llama"} else 2 * model.hidden


def _biased(model: Model) -> bool:
    return model.family in {"gpt", "bert"}


def _positions(model: Model) -> int:
    learned = {
        "gpt": model.positions * model.hidden,
        "bert": (model.positions + TOKEN_TYPES) * model.hidden,
        "t5": RELATIVE_BUCKETS * model.heads,
    }
    return learned.get(model.family, 0)


def _attention(model: Model, tensor: int) -> int:
    hidden, width = model.hidden, attention_width(model)
    if model.latent is not None:
        query, key, rotary = model.latent.query_rank, model.latent.key_rank, model.latent.rotary
        split = query * (width + model.heads * rotary) + key * 2 * width + width * hidden
        return _norm(model) + hidden * (query + key + rotary) + query + key + split // tensor
    shared = width * (model.kv_heads or model.heads) // model.heads  # of keys, and of values
    columns = width + 2 * shared
    biases = columns // tensor + hidden if _biased(model) else 0
    return _norm(model) + hidden * columns // tensor + width * hidden // tensor + biases


def _feed_forward(model: Model, inner: int, tensor: int) -> int:
    """One network, or one expert, without its norm; SwiGLU has two matrices inwards."""
    hidden = model.hidden
    matrices = 3 if model.family == "llama" and model.activation is None else 2
    biases = inner // tensor + hidden if _biased(model) else 0
    return matrices * hidden * inner // tensor + biases


def _layer(model: Model, degrees: Parallelism, kind: BlockKind) -> Parameters:
    dense, own = 0, 0
    if kind in {"layer", "expert-layer", "attention"}:
        dense += _attention(model, degrees.tensor)
    if kind in {"layer", "feed-forward"}:
        dense += _norm(model) + _feed_forward(model, feed_forward(model), degrees.tensor)
    if kind in {"expert-layer", "experts"} and model.experts is not None:
        around, own = _experts(model, model.experts, degrees)
        dense += _norm(model) + around
    if kind == "mamba" and model.state_space is not None:
        dense += _norm(model) + _mamba(model.hidden, model.state_space) // degrees.tensor
    return Parameters(dense, own)


def _experts(model: Model, experts: Experts, degrees: Parallelism) -> tuple[int, int]:
    """All around experts, and the experts of a rank; a latent vector takes the place of h within these."""
    inner = experts.feed_forward or feed_forward(model)
    shared = _feed_forward(model, experts.shared * inner, degrees.tensor) if experts.shared else 0
    latent = 2 * model.hidden * experts.latent if experts.latent else 0
    routed = model if experts.latent is None else model.model_copy(update={"hidden": experts.latent})
    local = experts.count // degrees.expert * _feed_forward(routed, inner, degrees.expert_parts)
    return model.hidden * experts.count + latent + shared, local


def _mamba(hidden: int, space: StateSpace) -> int:
    """Count the parameters of Mamba-2 besides its first norm: with ``d`` inner elements ``3 h d`` and what is small."""
    inner, vectors = space.heads * space.head_width, 2 * space.groups * space.state
    matrices = hidden * (3 * inner + vectors + space.heads)
    return matrices + (inner + vectors) * (space.convolution + 1) + 3 * space.heads + inner


def _decoder_layer(model: Model, tensor: int) -> Parameters:
    return Parameters(2 * _attention(model, tensor) + _norm(model) + _feed_forward(model, feed_forward(model), tensor))


def _head(model: Model, tensor: int) -> int:
    """Norm; a BERT has pooler, next-sentence head and transform besides, and a bias per word."""
    if model.family != "bert":
        return _norm(model)
    hidden = model.hidden
    dense = hidden * hidden + hidden
    return 2 * _norm(model) + 2 * dense + 2 * (hidden + 1) + model.vocabulary // tensor
