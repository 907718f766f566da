"""The speed of GPUs that a measured iteration tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.calibration.iteration import calibrate
from fabricsim.errors import InputError
from fabricsim.run.pipeline import simulate
from fabricsim.scenario.load import load
from tests.conftest import Outcome

Run = Callable[..., Outcome]

JOB = "gpt2-medium-dp"
SMALL = ["job.model.layers=2", "job.global_batch=64"]


def _took(*settings: str) -> float:
    return simulate(JOB, overrides=[*SMALL, *settings]).iteration * 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.31, 0.9, 1.0, 1.7])
def test_the_speed_that_gave_an_iteration_is_found_again(speed: float) -> None:
    found = calibrate(JOB, SMALL, _took(f"cluster.gpu_speed={speed}"), lambda _: None)

    assert found.speed == pytest.approx(speed, rel=1e-3)
    assert found.before["iteration_time_s"] == pytest.approx(_took())
    assert found.after["iteration_time_s"] == pytest.approx(found.measured, rel=2e-4)


@pytest.mark.slow
def test_it_predicts_what_was_not_measured() -> None:
    """GPUs that are slower than their preset are found on one host, and four hosts are predicted with them."""
    one = ["cluster.hosts=1", "job.parallelism.data=1"]
    found = calibrate(JOB, [*SMALL, *one], _took(*one, "cluster.gpu_speed=0.8"), lambda _: None)

    four = ["cluster.hosts=4", "job.parallelism.data=4"]
    assert _took(*four, f"cluster.gpu_speed={found.speed}") == pytest.approx(
        _took(*four, "cluster.gpu_speed=0.8"), rel=1e-3
    )


@pytest.mark.slow
def test_less_than_communication_takes_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"no GPU speed makes an iteration last 0\.001 s: it takes .* s with GPUs 64 times"
    ):
        calibrate(JOB, SMALL, 1e-3, lambda _: None)


def test_speeds_of_the_scenario_are_not_overwritten() -> None:
    with pytest.raises(InputError, match="the scenario gives it; take it out there"):
        calibrate(JOB, [*SMALL, "cluster.gpu_speed.3=0.8"], 1.0, lambda _: None)


@pytest.mark.slow
def test_the_command_prints_and_writes_a_scenario_with_it(fabricsim: Run, tmp_path: Path) -> None:
    settings = [argument for setting in SMALL for argument in ("--set", setting)]
    ended = fabricsim("calibrate", JOB, "--iteration", "400ms", *settings, "-o", "mine.toml", "--json")

    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert (told["measured_s"], told["calibrated_s"]) == (0.4, pytest.approx(0.4, rel=2e-4))
    made = load(tmp_path / "mine.toml", SMALL)
    assert made.scenario.cluster.gpu_speed.of(1, 0, "any")[0] == told["gpu_speed"]
    assert made.scenario.name == "mine"
    again = fabricsim("calibrate", "mine.toml", "--iteration", "1s")
    assert (again.code, "take it out there" in again.err) == (2, True)


@pytest.mark.slow
def test_a_speed_that_no_software_explains_is_remarked(fabricsim: Run) -> None:
    plain, slow = (json.loads(fabricsim("calibrate", JOB, "--iteration", each, "--json").out) for each in ("1s", "6s"))

    assert plain["remarks"] == []
    assert "times slower than their preset" in slow["remarks"][0]
    assert "check the unit" in fabricsim("calibrate", JOB, "--iteration", "6s").out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([JOB, "--iteration", "0s"], "no iteration takes no time; write such as 620ms"),
        ([JOB, "--iteration", "fast"], "--iteration: 'fast' is not a number with a unit"),
        ([JOB, "t5-base-dp", "--iteration", "1s"], "is that of one scenario, and 2 are named"),
        ([JOB, "--iteration", "1s", "--cluster", "hkbu"], "--cluster: of no use with --iteration"),
        (["ideal-16", "--iteration", "1s"], "there is no [job] to run"),
    ],
)
def test_mistakes_are_said(arguments: list[str], problem: str, fabricsim: Run) -> None:
    ended = fabricsim("calibrate", *arguments)
    assert ended.code != 0
    assert problem in ended.err
