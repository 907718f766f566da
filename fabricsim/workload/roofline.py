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
from fabricsim.workload.work import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job
    from fabricsim.workload.shapes import Block
    from fabricsim.workload.work import Item


@dataclass(frozen=True)
class BlockTime:
    """Compute time of one block for one micro-batch, ps; `backward` includes what is recomputed."""

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
    """Time of the kernels of both passes of a block for one micro-batch."""
    work = block_work(block, job)
    return BlockTime(_sum(work.forward, job, gpu), _sum(work.backward, job, gpu))


def optimizer_time(parameters: int, job: Job, gpu: Gpu) -> int:
    """Time of the optimizer step over the parameters of one stage, ps."""
    return _sum(optimizer_operations(parameters, job), job, gpu)


def _sum(items: Iterable[Item], job: Job, gpu: Gpu) -> int:
    return sum(operation_time(item, job, gpu) for item in items if isinstance(item, Operation))
