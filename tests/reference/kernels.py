"""The time of single kernels and of what a step is made of."""

from __future__ import annotations

from collections.abc import Iterable

from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.workload.roofline import operations_time
from fabricsim.workload.work import Item, Operation


def operation_time(operation: Operation, job: Job, gpu: Gpu) -> int:
    """Time of a kernel by itself, ps."""
    return operations_time([operation], job, gpu)


def items_time(items: Iterable[Item], job: Job, gpu: Gpu) -> int:
    """Time of the kernels among some items, ps."""
    return operations_time([item for item in items if isinstance(item, Operation)], job, gpu)
