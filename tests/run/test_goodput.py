"""Goodput under random failures against Daly's closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fabricsim.errors import InputError
from fabricsim.run.goodput import Reliability, simulate_failures

HOUR = 3600.0
JOB = Reliability(
    gpus=1000, mtbf=5000 * HOUR, checkpoint=60.0, detection=60.0, restart=300.0, spares=None, repair=24 * HOUR
)
PARTS = ("training_s", "checkpoints_s", "lost_work_s", "detection_and_restart_s", "waiting_for_spares_s")


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [100, 1000, 10_000])
@pytest.mark.parametrize("minutes", [5, 30, 120])
def test_many_failures_come_to_the_closed_form(gpus: int, minutes: float) -> None:
    job = replace(JOB, gpus=gpus)
    told = simulate_failures(job, minutes * 60, 20_000 * job.between, seed=1)
    assert told["failures"] == pytest.approx(20_000, rel=0.03)
    cycles = told["training_s"] / told["interval_s"]  # four standard deviations of a Poisson count
    assert told["goodput"] == pytest.approx(told["expected"], rel=max(4 / math.sqrt(cycles), 0.005))
    assert sum(told[part] for part in PARTS) == pytest.approx(20_000 * job.between)  # type: ignore[literal-required]


@pytest.mark.parametrize("gpus", [10, 1000, 20_000])
def test_no_other_interval_is_better(gpus: int) -> None:
    job = replace(JOB, gpus=gpus)
    best = job.best_interval()
    assert best == pytest.approx(math.sqrt(2 * job.checkpoint * job.between), rel=0.15)  # Young
    assert all(job.expected(best) >= job.expected(best * factor) for factor in (0.5, 0.8, 1.25, 2))


def test_without_failures_only_checkpoints_cost() -> None:
    told = simulate_failures(replace(JOB, mtbf=1e15), 540.0, 600.0 * 1000, seed=0)
    assert (told["failures"], told["goodput"]) == (0, pytest.approx(0.9))


def test_spares_are_waited_for() -> None:
    one, none, enough = (
        simulate_failures(replace(JOB, spares=spares), HOUR, 10_000 * HOUR, seed=3) for spares in (1, 0, None)
    )
    assert one["waiting_for_spares_s"] < none["waiting_for_spares_s"]
    assert enough["waiting_for_spares_s"] == 0
    # Each failure is waited for until its GPU is back: a cycle of failure and repair.
    assert none["goodput"] == pytest.approx(enough["goodput"] * 5 / (5 + 24), rel=0.1)
    assert none["goodput"] < one["goodput"] < enough["goodput"]


def test_too_many_failures_are_refused() -> None:
    with pytest.raises(InputError, match="shorten --time, or raise --mtbf"):
        simulate_failures(replace(JOB, mtbf=1.0), HOUR, 1e9, seed=0)
