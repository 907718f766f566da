"""Fully sharded data parallelism: what each rank calls, copies and waits for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fabricsim.records.program import COLLECTIVE, COMPUTE, OVERLAPPED_STREAM
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.job_checks import job_problems
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.program import Program
from tests.reference.jobs import make_job


def calls_of(program: Program, rank: int = 0) -> Counter[tuple[str, tuple[int, ...]]]:
    ops = program.ops[(program.ops["rank"] == rank) & (program.ops["kind"] == COLLECTIVE)]
    assert np.all(ops["stream"] == OVERLAPPED_STREAM)
    return Counter((program.calls[call].collective, program.calls[call].ranks) for call in ops["call"])


@pytest.mark.parametrize(("again", "gathers"), [(True, 2), (False, 1)])
def test_blocks_are_gathered_for_each_pass_that_lacks_them(*, again: bool, gathers: int, gpu: Gpu) -> None:
    program = JobPlan(make_job(data=4, zero=3, reshard_after_forward=again, micro_batches=2), gpu).program()
    blocks, everyone = 24 + 2, (0, 1, 2, 3)

    found = calls_of(program)

    assert found["all_gather", everyone] == 2 * gathers * blocks
    assert found["reduce_scatter", everyone] == 2 * blocks


def test_hybrid_sharding_scatters_among_neighbours_and_reduces_over_groups(gpu: Gpu) -> None:
    program = JobPlan(make_job(data=8, zero=3, replicate=2), gpu).program()
    whole = JobPlan(make_job(data=8, zero=3), gpu).program()

    found = calls_of(program, rank=5)
    kinds = {kind: sum(n for (name, _), n in found.items() if name == kind) for kind, _ in found}

    assert {ranks for kind, ranks in found if kind != "all_reduce"} == {(4, 5, 6, 7)}
    assert {ranks for kind, ranks in found if kind == "all_reduce"} == {(1, 5)}
    assert kinds["all_reduce"] == kinds["reduce_scatter"] == calls_of(whole)["reduce_scatter", tuple(range(8))]
    scattered = sum(call.size for call in program.calls if call.collective == "reduce_scatter" and 0 in call.ranks)
    reduced = sum(call.size for call in program.calls if call.collective == "all_reduce" and 0 in call.ranks)
    assert reduced == scattered // 4


def test_both_passes_slow_beside_collectives_and_copy(gpu: Gpu) -> None:
    def computing(job: Job, factor: float) -> int:
        program = JobPlan(job, gpu.model_copy(update={"overlap_slowdown": factor})).program()
        forward = program.timers.index("forward-compute")
        ops = program.ops[(program.ops["rank"] == 0) & (program.ops["timer"] == forward)]
        return int(ops["duration"][ops["kind"] == COMPUTE].sum())

    alone, sharded = (make_job(kernel_launch="0us", **more) for more in ({"data": 1}, {"data": 4, "zero": 3}))
    copied = 2 * 2 * 354_871_296 / (gpu.memory_rate * gpu.memory_efficiency) * 1e12

    assert computing(sharded, 1.0) - computing(alone, 1.0) == pytest.approx(copied, rel=0.05)
    assert computing(sharded, 1.5) > 1.4 * computing(alone, 1.0)


@pytest.mark.parametrize(
    ("degrees", "key"),
    [
        ({"data": 4, "zero": 2, "replicate": 2}, "replicate"),
        ({"data": 4, "zero": 1, "reshard_after_forward": False}, "reshard_after_forward"),
        ({"data": 4, "zero": 3, "replicate": 3}, "replicate"),
        ({"data": 4, "zero": 3, "replicate": 4}, "replicate"),
    ],
)
def test_sharding_that_has_no_effect_or_does_not_fit_is_refused(degrees: dict[str, int], key: str) -> None:
    (mistake,) = job_problems(make_job(**degrees))

    assert mistake.key == f"job.parallelism.{key}"
