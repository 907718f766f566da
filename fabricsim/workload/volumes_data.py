"""What data parallelism sends, in closed form: gradients reduced and parameters gathered."""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import lcm
from typing import Literal

from fabricsim.scenario.job import Job, micro_batches
from fabricsim.workload.adapters import gathered_elements, trained, trained_parameters
from fabricsim.workload.buckets import Bucket, by_width, gradient_buckets
from fabricsim.workload.parameter_counts import chunk_parameters, virtual_stages
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.tally import EqualCalls
from fabricsim.workload.tape import gathered_width, gradient_bytes

Part = Literal["dense", "experts"]

_ALIGNMENT = 128


def data_calls(job: Job) -> Iterator[EqualCalls]:
    """Reduction of gradients and gathering of parameters, for experts apart: fewer ranks have copies of them.

    All gradients of a rank go in one piece, with overlap in buckets. ZeRO 2 and 3 reduce after each
    micro-batch, ZeRO 3 block by block, and gather each block before both passes, or before the first alone. In
    hybrid sharding each share is reduced over its copies besides.
    """
    degrees, stages = job.parallelism, job.parallelism.pipeline
    shards, ranks = degrees.shards, degrees.ranks // stages
    parts: tuple[tuple[Part, int], ...] = (("dense", shards), ("experts", degrees.expert_shards))
    for part, members in parts:
        groups = ranks // members
        for stage in range(stages):
            chunks = range(stage, virtual_stages(job), stages)
            for elements in _reduced(job, part, chunks):
                yield _reduction(job, elements, members, groups)
                if degrees.replicate > 1:
                    size = padded(elements, members) // members * gradient_bytes(job)
                    times = micro_batches(job) * ranks // degrees.replicate
                    yield EqualCalls("data", "all_reduce", degrees.replicate, size, times)
            if degrees.zero:
                for elements, width in _gathered(job, part, chunks):
                    yield _gathering(job, elements, members, groups, width)


def padded(elements: int, members: int) -> int:
    """Elements that are sent of a buffer to be shared out: the next multiple of 128 and of the group.

    As in Megatron-LM's distributed optimizer (core/distributed/param_and_grad_buffer.py).
    """
    unit = lcm(members, _ALIGNMENT)
    return -(-elements // unit) * unit


def _reduction(job: Job, elements: int, members: int, groups: int) -> EqualCalls:
    zero = job.parallelism.zero
    if not zero:
        return EqualCalls("data", "all_reduce", members, elements * gradient_bytes(job), groups)
    times = micro_batches(job) if zero > 1 else 1
    return EqualCalls(
        "data", "reduce_scatter", members, padded(elements, members) * gradient_bytes(job), groups * times
    )


def _gathering(job: Job, elements: int, members: int, groups: int, width: int) -> EqualCalls:
    passes = 2 if job.parallelism.reshard_after_forward else 1
    times = passes * micro_batches(job) if job.parallelism.fully_sharded else 1
    return EqualCalls("data", "all_gather", members, padded(elements, members) * width, groups * times)


def _reduced(job: Job, part: Part, chunks: Iterable[int]) -> list[int]:
    """Elements of each piece of gradients of a rank."""
    if not job.parallelism.fully_sharded and job.overlap == "ddp":
        return [bucket.size for chunk in chunks for bucket in _buckets(job, part, chunk)]
    if job.parallelism.zero <= 1:
        return [sum(_blocks(job, part, chunks))]
    if not job.parallelism.fully_sharded:
        return [sum(_blocks(job, part, [chunk])) for chunk in chunks]
    return _blocks(job, part, chunks)


def _gathered(job: Job, part: Part, chunks: Iterable[int]) -> list[tuple[int, int]]:
    """Elements of each piece of parameters of a rank, and bytes of each of them."""
    blocks = stage_blocks(job.model, virtual_stages(job), job.parallelism)
    widths = {chunk: [gathered_width(block, job) for block in blocks[chunk]] for chunk in chunks}
    if not job.parallelism.fully_sharded and job.overlap == "ddp":
        sizes = [bucket.by_width(widths[chunk]) for chunk in widths for bucket in _buckets(job, part, chunk)]
        return [(elements, width) for each in sizes for width, elements in each.items()]
    sizes_of = _blocks(job, part, widths)
    if job.parallelism.fully_sharded:
        if job.adapters is not None:
            every = [block for chunk in widths for block in blocks[chunk]]
            sizes_of = [gathered_elements(block, job) if part == "dense" else 0 for block in every]
        return list(zip(sizes_of, chain.from_iterable(widths.values()), strict=True))
    each = zip(sizes_of, chain.from_iterable(widths.values()), strict=True)
    return [(elements, width) for width, elements in by_width((width, size) for size, width in each).items()]


def _blocks(job: Job, part: Part, chunks: Iterable[int]) -> list[int]:
    if job.adapters is not None:
        counts = trained_parameters(job)
        return [count if part == "dense" else 0 for chunk in chunks for count in counts[chunk]]
    held = chunk_parameters(job)
    return [getattr(block, part) for chunk in chunks for block in held[chunk]]


def _buckets(job: Job, part: Part, chunk: int) -> list[Bucket]:
    """Give the buckets of a chunk, in elements, filled as PyTorch DistributedDataParallel fills them."""
    caps = job.first_bucket // gradient_bytes(job), job.bucket // gradient_bytes(job)
    blocks = stage_blocks(job.model, virtual_stages(job), job.parallelism)[chunk]
    tensors = [trained(block, job)[part == "experts"] for block in blocks]
    return gradient_buckets(tensors, *caps)
