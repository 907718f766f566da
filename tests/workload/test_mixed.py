"""Jobs whose ranks do not all run on the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabricsim.errors import InputError
from fabricsim.records.program import COMPUTE
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.variation import Drawn
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.machines import Machines, at_speed, on_host
from fabricsim.workload.mixed import MixedPlan, plan_job
from fabricsim.workload.program import Program
from tests.reference.jobs import make_job


def _machines(preset: Gpu, ranks: int, **changes: object) -> Machines:
    ones, zeros = np.ones(ranks), np.zeros(ranks, np.int64)
    alike = Machines((preset,), zeros, ones, ones, None, None, np.arange(ranks), np.arange(ranks) // 2, 0)
    return replace(alike, **changes)  # type: ignore[arg-type]  # of many types


def _computing(program: Program, rank: int) -> int:
    ops = program.ops[(program.ops["rank"] == rank) & (program.ops["kind"] == COMPUTE)]
    return int(ops["duration"].sum())


def test_ranks_that_are_alike_have_the_plan_that_they_always_had(gpu: Gpu) -> None:
    assert type(plan_job(make_job(data=4), _machines(gpu, 4))) is JobPlan


def test_one_gpu_at_80_percent_computes_a_quarter_longer_and_others_as_before(gpu: Gpu) -> None:
    job = make_job(data=4, kernel_launch="0s")
    speed = np.array([1, 1, 0.8, 1])
    mixed, alike = plan_job(job, _machines(gpu, 4, gpu=speed)).program(), JobPlan(job, gpu).program()

    assert _computing(mixed, 2) == pytest.approx(_computing(alike, 2) / 0.8, rel=1e-6)  # kernels round to ps
    for rank in (0, 1, 3):
        assert np.array_equal(mixed.ops[mixed.ops["rank"] == rank], alike.ops[alike.ops["rank"] == rank])


def test_a_job_that_waits_for_its_host_feels_the_host_and_not_the_gpu(gpu: Gpu) -> None:
    job = make_job(data=2, kernel_launch="10ms")  # 10 ms: longer than any kernel
    alike = _computing(JobPlan(job, gpu).program(), 0)
    slow_gpu = plan_job(job, _machines(gpu, 2, gpu=np.full(2, 0.9))).program()
    slow_host = plan_job(job, _machines(gpu, 2, host=np.full(2, 0.9))).program()

    assert _computing(slow_gpu, 0) == alike
    assert _computing(slow_host, 0) == pytest.approx(alike / 0.9, rel=1e-6)


def test_all_at_one_speed_are_a_job_on_a_gpu_of_that_speed(gpu: Gpu) -> None:
    job = make_job(data=2, pipeline=2)
    mixed = plan_job(job, _machines(gpu, 4, gpu=np.full(4, 0.7), host=np.full(4, 0.5))).program()
    alike = JobPlan(on_host(job, 0.5), at_speed(gpu, 0.7)).program()

    assert np.array_equal(mixed.ops, alike.ops)
    assert mixed.calls == alike.calls


def test_kinds_of_gpus_keep_their_times(gpu: Gpu) -> None:
    job, fast = make_job(data=2), at_speed(gpu, 3.0)
    machines = _machines(gpu, 2, gpus=(gpu, fast), kind=np.array([0, 1]))
    mixed = plan_job(job, machines).program()

    assert _computing(mixed, 0) == _computing(JobPlan(job, gpu).program(), 0)
    assert _computing(mixed, 1) == _computing(JobPlan(job, fast).program(), 1)


def test_ranks_are_alike_only_if_what_they_run_on_is(gpu: Gpu) -> None:
    plan = plan_job(make_job(data=4), _machines(gpu, 4, gpu=np.array([1, 0.8, 1, 1])))

    assert len(set(plan.colours.tolist())) == 2
    assert plan.colours[1] not in plan.colours[[0, 2, 3]]
    jittered = MixedPlan(make_job(data=4), _machines(gpu, 4, kernel_jitter=Drawn("uniform", 0.1)))
    assert len(set(jittered.colours.tolist())) == 4


def test_jitter_stays_within_its_bounds_and_comes_from_the_seed(gpu: Gpu) -> None:
    job, jitter = make_job(data=4), Drawn("uniform", 0.1)
    alike = JobPlan(job, gpu).program().ops["duration"]
    first, again, other = (
        plan_job(job, _machines(gpu, 4, kernel_jitter=jitter, seed=seed)).program().ops["duration"]
        for seed in (1, 1, 2)
    )

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.all(np.abs(first - alike) <= 0.1 * alike + 1)


def test_jitter_of_a_host_is_that_of_all_its_ranks(gpu: Gpu) -> None:
    program = plan_job(make_job(data=4), _machines(gpu, 4, host_jitter=Drawn("exponential", 0.1))).program()
    times = [program.ops["duration"][program.ops["rank"] == rank].tolist() for rank in range(4)]

    assert times[0] == times[1]
    assert times[2] == times[3]
    assert times[0] != times[2]


def test_a_rank_that_would_compute_for_ever_is_refused(gpu: Gpu) -> None:
    job = make_job(data=2, batch_time="3600s", micro_batches=250)
    with pytest.raises(InputError, match="would compute for"):
        plan_job(job, _machines(gpu, 2, kernel_jitter=Drawn("exponential", 10.0))).program()
