"""Compute times on a roofline: each kernel is as slow as its slowest bound.

A kernel takes ``max(FLOPs / (peak * gemm_efficiency), bytes / (memory_rate * memory_efficiency),
launch)``. Nothing here is fitted to an iteration time: the two efficiencies and the launch time are
measured on single kernels, and their sources stand in the GPU's library file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.units import PS_PER_S
from fabricsim.workload.operations import block_work, optimizer_operations
from fabricsim.workload.shapes import Block, stage_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job
    from fabricsim.workload.work import Operation

_RECOMPUTED = ("layer", "decoder-layer")


@dataclass(frozen=True)
class BlockTime:
    """Compute time of one block for one micro-batch, ps; `backward` includes recomputation."""

    forward: int
    backward: int


def operation_time(operation: Operation, job: Job, gpu: Gpu) -> int:
    """Time of an operation on the roofline, ps.

    Raises
    ------
    KeyError
        Where the GPU has no peak for the job's precision (`compile_job` checks that first).
    """
    arithmetic = operation.flops / (gpu.peak[job.precision] * gpu.gemm_efficiency)
    memory = operation.traffic / (gpu.memory_rate * gpu.memory_efficiency)
    return max(round(max(arithmetic, memory) * PS_PER_S), gpu.kernel_launch)


def block_time(block: Block, job: Job, gpu: Gpu) -> BlockTime:
    """Time of both passes of a block for one micro-batch.

    With ``recompute = "full"`` a layer repeats its forward pass before its backward pass; embedding
    and head keep their activations, as in Megatron-LM.
    """
    work = block_work(block, job)
    forward = _sum(work.forward, job, gpu)
    again = forward if _recomputes(block, job) else 0
    return BlockTime(forward, again + _sum(work.backward, job, gpu))


def optimizer_time(parameters: int, job: Job, gpu: Gpu) -> int:
    """Time of the optimizer step over the parameters of one stage, ps."""
    return _sum(optimizer_operations(parameters, job), job, gpu)


def iteration_flops(job: Job) -> int:
    """FLOPs of all ranks in one iteration, recomputation included.

    For a GPT with full recomputation this is ``96 B s L h^2 (1 + s / 6h + V / 16 L h)`` over a global
    batch of ``B`` sequences (Narayanan et al., arXiv 2104.04473, section 3.4).
    """
    per_micro_batch = 0
    for block in stage_blocks(job.model, 1)[0]:
        work = block_work(block, job)
        forward = sum(operation.flops for operation in work.forward)
        backward = sum(operation.flops for operation in work.backward)
        per_micro_batch += forward * (2 if _recomputes(block, job) else 1) + backward
    return per_micro_batch * (job.global_batch // job.micro_batch)


def _recomputes(block: Block, job: Job) -> bool:
    return job.recompute == "full" and block.kind in _RECOMPUTED


def _sum(operations: Iterable[Operation], job: Job, gpu: Gpu) -> int:
    return sum(operation_time(operation, job, gpu) for operation in operations)
