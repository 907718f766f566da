"""What each parallelism sends in one iteration, in closed form.

Nothing here looks at the program: `fabricsim.workload.tally` counts that, and the two must agree. With
micro-batch ``b``, sequence ``s`` (``s / c`` per context-parallel rank), hidden ``h``, ``W`` bytes per
activation, ``m`` micro-batches per replica and degrees ``d, t, p, c, e`` (``v`` model chunks per rank):

data (Rajbhandari et al., arXiv 1910.02054, section 7; Anthony et al., arXiv 2408.10197)
    All-reduce of all gradients; ZeRO 1 and 2 replace it by a reduce-scatter of gradients and an
    all-gather of parameters, ZeRO 3 by a reduce-scatter and two all-gathers.
tensor (Narayanan et al., arXiv 2104.04473, section 3.2)
    Four all-reduces of ``b s h W`` per layer and micro-batch, six with full recomputation. With sequence
    parallelism each becomes a reduce-scatter and an all-gather, and the backward pass gathers the input
    of each column-parallel product again (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
pipeline (Narayanan et al., section 2.2)
    ``2 m (p v - 1)`` messages of ``b s h W`` per chain of ranks.
"""

from __future__ import annotations

from itertools import chain
from math import lcm
from typing import TYPE_CHECKING

from fabricsim.workload.data_parallel import gradient_buckets
from fabricsim.workload.operations import PRECISION_BYTES, decoder_sequence, gradient_bytes
from fabricsim.workload.parameter_counts import chunk_parameters, virtual_stages
from fabricsim.workload.shapes import embedding_stages, layout, stage_blocks
from fabricsim.workload.tally import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.spec.job import Job

_SHARDED = 3
"""ZeRO stage that shares out parameters."""
_ALIGNMENT = 128


def closed_forms(job: Job) -> Iterator[Calls]:
    """Give all calls of one iteration of a job by the formulas.

    Groups of one rank send nothing and are given all the same, as calls of one member.
    """
    yield from data_calls(job)
    yield from embedding_calls(job)
    yield from pipeline_calls(job)
    yield from tensor_calls(job)


def micro_batches(job: Job) -> int:
    """Micro-batches of each replica."""
    return job.global_batch // (job.micro_batch * job.parallelism.data)


def activation_bytes(job: Job, tokens: int) -> int:
    """Bytes of a micro-batch's activations, ``b s h W``, of `tokens` per sequence on one context-parallel rank."""
    size = job.micro_batch * tokens * job.model.hidden * PRECISION_BYTES[job.precision]
    return size // job.parallelism.context


def data_calls(job: Job) -> Iterator[Calls]:
    """Reduction of gradients, and gathering of parameters.

    ZeRO 1 reduces once, ZeRO 2 and 3 after each micro-batch; ZeRO 3 gathers each block before both passes.
    What is scattered is padded, see `padded`.
    """
    chunks, stages = chunk_parameters(job), job.parallelism.pipeline
    for stage in range(stages):
        own = chunks[stage::stages]
        pieces = [[sum(block.all for block in chunk)] for chunk in own]
        if job.parallelism.zero == _SHARDED:
            pieces = [[block.all for block in chunk] for chunk in own]
        elif job.overlap == "ddp":
            pieces = [bucket_elements(job, stage + stages * number) for number in range(len(own))]
        elif job.parallelism.zero < _SHARDED - 1:
            pieces = [[sum(block.all for chunk in own for block in chunk)]]
        for elements in chain.from_iterable(pieces):
            yield from _reduced(job, elements)
        if job.parallelism.zero:
            whole = [sum(block.all for chunk in own for block in chunk)] if job.overlap == "none" else []
            yield from _gathered(job, [whole] if whole and job.parallelism.zero < _SHARDED else pieces)


def _reduced(job: Job, elements: int) -> Iterator[Calls]:
    degrees, members = job.parallelism, job.parallelism.data * job.parallelism.context
    if degrees.zero == 0:
        yield Calls("data", "all_reduce", members, elements * gradient_bytes(job), degrees.tensor)
        return
    times = micro_batches(job) if degrees.zero > 1 else 1
    size = padded(elements, members) * gradient_bytes(job)
    yield Calls("data", "reduce_scatter", members, size, degrees.tensor * times)


def _gathered(job: Job, pieces: list[list[int]]) -> Iterator[Calls]:
    degrees, members = job.parallelism, job.parallelism.data * job.parallelism.context
    times = 2 * micro_batches(job) if degrees.zero == _SHARDED else 1
    for elements in chain.from_iterable(pieces):
        size = padded(elements, members) * PRECISION_BYTES[job.precision]
        yield Calls("data", "all_gather", members, size, degrees.tensor * times)


def padded(elements: int, members: int) -> int:
    """Elements that are sent of a buffer to be shared out: the next multiple of 128 and of the group.

    As in Megatron-LM's distributed optimizer (core/distributed/param_and_grad_buffer.py).
    """
    unit = lcm(members, _ALIGNMENT)
    return -(-elements // unit) * unit


def bucket_elements(job: Job, chunk: int) -> list[int]:
    """Elements of the buckets of a chunk's gradients, filled as PyTorch DistributedDataParallel fills them."""
    caps = job.first_bucket // gradient_bytes(job), job.bucket // gradient_bytes(job)
    blocks = stage_blocks(job.model, virtual_stages(job))[chunk]
    return [bucket.size for bucket in gradient_buckets([block.tensors for block in blocks], *caps)]


def embedding_calls(job: Job) -> Iterator[Calls]:
    """All-reduce of the word embedding's gradient over the stages that hold a copy of it."""
    degrees = job.parallelism
    holders = embedding_stages(job.model, virtual_stages(job))
    size = job.model.vocabulary * job.model.hidden // degrees.tensor * gradient_bytes(job)
    groups = degrees.data * degrees.context * degrees.tensor
    yield Calls("embedding", "all_reduce", len({stage % degrees.pipeline for stage in holders}), size, groups)


def pipeline_calls(job: Job) -> Iterator[Calls]:
    """Activations sent forward and their gradients sent back, over each boundary of two virtual stages."""
    degrees = job.parallelism
    if degrees.pipeline == 1:
        return
    plan = layout(job.model, virtual_stages(job))
    chains = degrees.data * degrees.context * degrees.tensor
    parts = degrees.tensor if degrees.sequence_parallel else 1
    for stage in range(plan.last):
        decoding = plan.first_decoder is not None and stage >= plan.first_decoder
        size = activation_bytes(job, job.sequence + (decoder_sequence(job) if decoding else 0)) // parts
        yield Calls("pipeline", "send_recv", 2, size, 2 * micro_batches(job) * chains)


def tensor_calls(job: Job) -> Iterator[Calls]:
    """All-reduces of layers, or their reduce-scatters and all-gathers."""
    degrees = job.parallelism
    groups = degrees.data * degrees.context * micro_batches(job)
    size = activation_bytes(job, job.sequence)
    again = 1 if job.recompute == "full" else 0
    layers = job.model.layers
    if not degrees.sequence_parallel:
        yield Calls("tensor", "all_reduce", degrees.tensor, size, (4 + 2 * again) * layers * groups)
        return
    yield Calls("tensor", "all_gather", degrees.tensor, size, (6 + 2 * again) * layers * groups)
    yield Calls("tensor", "reduce_scatter", degrees.tensor, size, (4 + 2 * again) * layers * groups)
