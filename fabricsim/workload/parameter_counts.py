"""Parameters that one rank holds, in closed form.

A tensor-parallel rank has a ``1 / t`` part of all column- and row-parallel matrices, of the biases of
column-parallel ones and of the vocabulary; norms, biases of row-parallel matrices, positions and routers
are on each rank (Shoeybi et al., arXiv 1909.08053, section 3). With ``f = 4 h`` a GPT layer has
``12 h^2 / t + (7 / t + 6) h`` parameters, ``12 h^2 + 13 h`` in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabricsim.workload.shapes import RELATIVE_BUCKETS, TOKEN_TYPES, attention_width, feed_forward, has_experts, layout

if TYPE_CHECKING:
    from fabricsim.scenario.job import Job, Model, Parallelism
    from fabricsim.workload.shapes import Layout


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
    blocks += [_layer(model, degrees, first + index) for index in range(plan.encoder[stage])]
    if stage == plan.last_encoder:
        blocks.append(Parameters(_norm(model)))
    if stage == plan.first_decoder:
        own = word if stage else 0
        blocks.append(Parameters(own + RELATIVE_BUCKETS * model.heads))
    blocks += [_decoder_layer(model, degrees.tensor)] * plan.decoder[stage]
    if stage == plan.last:
        shared = model.tied_embedding and stage in {0, plan.first_decoder}
        blocks.append(Parameters(_head(model, degrees.tensor) + (0 if shared else word)))
    return tuple(blocks)


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
    matrices = 3 if model.family == "llama" else 2
    biases = inner // tensor + hidden if _biased(model) else 0
    return matrices * hidden * inner // tensor + biases


def _layer(model: Model, degrees: Parallelism, number: int) -> Parameters:
    experts, tensor = model.experts, degrees.tensor
    attention = _attention(model, tensor) + _norm(model)
    if experts is None or not has_experts(model, number):
        return Parameters(attention + _feed_forward(model, feed_forward(model), tensor))
    inner = experts.feed_forward or feed_forward(model)
    shared = _feed_forward(model, experts.shared * inner, tensor) if experts.shared else 0
    local = experts.count // degrees.expert * _feed_forward(model, inner, degrees.expert_parts)
    return Parameters(attention + model.hidden * experts.count + shared, local)


def _decoder_layer(model: Model, tensor: int) -> Parameters:
    return Parameters(2 * _attention(model, tensor) + _norm(model) + _feed_forward(model, feed_forward(model), tensor))


def _head(model: Model, tensor: int) -> int:
    """Norm; a BERT has pooler, next-sentence head and transform besides, and a bias per word."""
    if model.family != "bert":
        return _norm(model)
    hidden = model.hidden
    dense = hidden * hidden + hidden
    return 2 * _norm(model) + 2 * dense + 2 * (hidden + 1) + model.vocabulary // tensor
