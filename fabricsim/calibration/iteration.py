"""The speed of a job's GPUs from a measured iteration, and a scenario that has it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fabricsim.calibration.preset import base_of, write_checked
from fabricsim.errors import InputError
from fabricsim.results.summary import Summary, summarise
from fabricsim.run.gpu_speed import gpu_speed
from fabricsim.run.pipeline import one_job, simulate
from fabricsim.scenario.load import load
from fabricsim.scenario.variation import Speeds


class Calibrated(NamedTuple):
    """What was found.

    `measured`: the iteration, s.
    `speed`: ``cluster.gpu_speed`` with which it is predicted.
    `before`, `after`: summaries of the runs without and with it.
    """

    measured: float
    speed: float
    before: Summary
    after: Summary


def calibrate(scenario: str, settings: Sequence[str], measured: float, progress: Callable[[float], None]) -> Calibrated:
    """Find the speed of GPUs with which an iteration takes the measured time.

    `scenario`, `settings`: what ran when it was measured.
    `measured`: s.
    `progress`: called with the share of the work that is done, about.
    Raises InputError if no speed does, or the scenario has speeds of its own.
    """
    loaded = load(scenario, list(settings))
    one_job(loaded)
    if loaded.scenario.cluster.gpu_speed != Speeds():
        msg = "cluster.gpu_speed is what an iteration calibrates, and the scenario gives it; take it out there"
        raise InputError(msg)
    runs: dict[float, Summary] = {}

    def iteration(speed: float) -> float:
        runs[speed] = summarise(simulate(scenario, overrides=[*settings, f"cluster.gpu_speed={speed}"]))
        progress(min(0.95, len(runs) / 8))
        return float(runs[speed]["iteration_time_s"])

    speed = gpu_speed(iteration, measured)
    return Calibrated(measured, speed, runs[1.0], runs[speed])


def write(path: Path, scenario: str, settings: Sequence[str], found: Calibrated) -> None:
    """Write a scenario that extends the one of the calibration, and has the speed that was found.

    Raises InputError if the file cannot be written, or is `scenario` itself; an older one of that name is still there
    then.
    """
    base = base_of(path, scenario, "is what the scenario would extend")
    ran = "".join(f" --set {' '.join(setting.split())}" for setting in settings)
    text = (
        f"# {Path(scenario).stem}, whose GPUs are as fast as an iteration of {found.measured:g} s says\n"
        f"extends = {json.dumps(base)}\n\n"
        "[cluster]\n"
        f"gpu_speed = {found.speed:g} # T: calibrated on that iteration{ran and f', with{ran}'}\n"
    )
    write_checked(path, text, load)
