"""A time that no simulation of a job is below.

Let ``F_k`` and ``B_k`` be what a rank of virtual stage ``k`` is busy with in a forward and a backward pass of one
micro-batch: its kernels at the rates of the GPU, one after the other, and between them the tensor-parallel collectives
that they wait for. Of a collective of ``n`` ranks and ``S`` bytes, ``(n - 1) / n S`` leave each rank, by whatever
algorithm, also if switches reduce; they take as long as its NVLink does. With ``m`` micro-batches and ``p`` stages of
ranks, of which ``s`` has the virtual stages ``k = s, s + p, ...``::

    T >= sum_{k<s} F_k + m sum_{k = s, s+p, ...} (F_k + B_k) + sum_{k<s} B_k    for each s

The first pass on a rank of ``s`` is a forward pass of a virtual stage ``k >= s``, before which its micro-batch has gone
through all stages before. Then the rank does its own passes one after the other. The last of them is a backward pass
of a virtual stage ``k >= s``, as each forward pass has its backward pass after it, and the gradient goes through the
stages before it after that. Schedules that put the gradients of weights last lack the last sum.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from fabricsim.run.pipeline import machines_of
from fabricsim.units import seconds
from fabricsim.workload.issue import Span
from fabricsim.workload.work import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.scenario.scenario import Scenario
    from fabricsim.workload.compile import JobPlan
    from fabricsim.workload.stages import Timed

_COUNTED = {"all_reduce", "all_gather", "reduce_scatter"}


def least_time(plan: JobPlan, scenario: Scenario) -> float:
    """Bound the iteration of a job from below, seconds; 0 if its ranks are not all alike."""
    if not machines_of(scenario, range(plan.job.parallelism.ranks)).alike:
        return 0.0
    stages = plan.stages
    forward = [_busy(chain.from_iterable(block.forward for block in stage.blocks), plan, scenario) for stage in stages]
    backward = [
        _busy(chain.from_iterable(block.backward for block in stage.blocks), plan, scenario) for stage in stages
    ]
    count = plan.job.parallelism.pipeline
    gradients_last = plan.job.schedule not in {"1f1b", "gpipe"}
    own = [plan.micro_batches * (sum(forward[s::count]) + sum(backward[s::count])) for s in range(count)]
    after = [0.0 if gradients_last else sum(backward[:s]) for s in range(count)]
    return max(sum(forward[:s]) + own[s] + after[s] for s in range(count))


def _busy(items: Iterable[Timed], plan: JobPlan, scenario: Scenario) -> float:
    """Add up kernels and what is waited for between them, seconds."""
    total = 0.0
    for item in items:
        if isinstance(item, Span):
            total += seconds(item.run)
        elif isinstance(item, Exchange) and not item.asynchronous:
            total += _exchange(item, plan, scenario)
    return total


def _exchange(item: Exchange, plan: JobPlan, scenario: Scenario) -> float:
    """Time that what leaves a rank takes on its NVLink at least; 0 beyond a host, where adapters add to it."""
    degree, cluster = plan.job.parallelism.tensor, scenario.cluster
    rate = cluster.gpu.nvlink_rate
    if item.dimension != "tensor" or item.collective not in _COUNTED or rate is None or cluster.intra_host != "nvlink":
        return 0.0
    return item.size * (degree - 1) / degree / rate if degree <= cluster.gpus_per_host else 0.0
