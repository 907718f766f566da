"""Fully sharded data parallelism: what each rank calls, copies and waits for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fabricsim.records.program import COLLECTIVE, COMPUTE, OVERLAPPED_STREAM
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.job_checks import job_problems
from fabricsim.scenario.schedule import Direction
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.optimizer import optimizer_operations, parameters_for_products
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


def busy(job: Job, gpu: Gpu, direction: str) -> int:
    """Time of the kernels of rank 0 in one direction, ps."""
    program = JobPlan(job, gpu).program()
    ops = program.ops[(program.ops["rank"] == 0) & (program.ops["kind"] == COMPUTE)]
    return int(ops["duration"][ops["timer"] == program.timers.index(f"{direction}-compute")].sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copies", "forward", "backward"), [("both", 0, 0), ("gradients", 4, 4), ("none", 4, 4 + 2 + 2)]
)
def test_copies_that_are_not_made_take_no_time(copies: str, forward: int, backward: int, gpu: Gpu) -> None:
    alone = gpu.model_copy(update={"overlap_slowdown": 1.0})
    sharded = {"data": 4, "zero": 3, "kernel_launch": "0us"}
    with_all, job = make_job(**sharded), make_job(**sharded, sharded_copies=copies)
    rate = gpu.memory_rate * gpu.memory_efficiency

    for direction, size in (("forward", forward), ("backward", backward)):
        saved = busy(with_all, alone, direction) - busy(job, alone, direction)
        assert saved == pytest.approx(size * 354_871_296 / rate * 1e12, rel=0.05)


def gathered(job: Job, gpu: Gpu) -> Counter[int]:
    calls = JobPlan(job, gpu).program().calls
    return Counter(call.size for call in calls if call.collective == "all_gather")


def test_layers_in_8_bits_are_gathered_as_such_and_all_else_is_not(gpu: Gpu) -> None:
    sharded = {"data": 4, "zero": 3, "products": "fp8"}
    gpu = gpu.model_copy(update={"peak": {**gpu.peak, "fp8": 624e12}})
    wide, narrow = gathered(make_job(**sharded), gpu), gathered(make_job(**sharded, narrow_gathers=True), gpu)

    layers = 12 * 1024**2 + 13 * 1024
    assert wide[2 * layers] == narrow[layers] == 2 * 24
    assert wide - Counter({2 * layers: 2 * 24}) == narrow - Counter({layers: 2 * 24})


@pytest.mark.parametrize(
    ("settings", "forward", "backward"),
    [
        ({}, 2 + 1, 2 + 1),
        ({"recompute": "full"}, 2 + 1, 2 + 2),
        ({"scaling": "current"}, 2 + 2 + 1, 2 + 2 + 1),
        ({"narrow_gathers": True}, 0, 1 + 1),
        ({"products": None}, 0, 0),
    ],
)
def test_parameters_are_turned_behind_their_gather(settings: dict[str, Any], forward: int, backward: int) -> None:
    job = make_job(**{"data": 4, "zero": 3, "products": "fp8", "recompute": "none", **settings})
    directions: tuple[Direction, Direction] = ("forward", "backward")

    turned = [parameters_for_products(1000, job, direction) for direction in directions]

    assert [sum(each.traffic + each.transposed for each in way) for way in turned] == [1000 * forward, 1000 * backward]


@pytest.mark.parametrize(("narrow", "size"), [(False, 0), (True, 2 + 1)])
def test_the_optimizer_turns_what_is_gathered_in_8_bits(*, narrow: bool, size: int) -> None:
    sharded = {"data": 4, "zero": 3}
    plain, job = make_job(**sharded), make_job(**sharded, products="fp8", narrow_gathers=narrow)

    more, less = (sum(each.traffic for each in optimizer_operations([1000], each)) for each in (job, plain))

    assert more - less == 1000 * size


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sharded_copies": "none"}, "sharded_copies"),
        ({"narrow_gathers": True, "products": "fp8"}, "narrow_gathers"),
        ({"zero": 3, "narrow_gathers": True}, "narrow_gathers"),
        ({"zero": 3, "narrow_gathers": True, "products": "mxfp8"}, "narrow_gathers"),
    ],
)
def test_settings_of_sharded_parameters_without_effect_are_refused(settings: dict[str, Any], key: str) -> None:
    (mistake,) = job_problems(make_job(data=4, **settings))

    assert mistake.key == f"job.{key}"


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
