"""How fast the GPUs of a job are by a measured iteration: one number, for runs that nobody has measured.

The time of an iteration grows with what its kernels take, from that of communication and hosts alone; both ends of a
stretch that holds the measured time are brought together by the Illinois method (Dowell and Jarratt, BIT 11, 1971).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.calibration.preset import write_checked
from fabricsim.errors import InputError
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import one_job, simulate
from fabricsim.scenario.include import is_file_name
from fabricsim.scenario.load import load
from fabricsim.scenario.variation import MOST, Speeds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.results.summary import Summary

_CLOSE = 1e-4
"""Share of the measured time within which it is met."""
_RUNS = 40
_LEAST = 1 / 64
"""Part of the time of kernels below which nobody's GPUs are."""


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

    def excess(factor: float) -> float:
        """Time beyond the measured one of an iteration whose kernels take so many times as long, s."""
        speed = float(f"{1 / factor:.4g}")
        if speed not in runs:
            runs[speed] = summarise(simulate(scenario, overrides=[*settings, f"cluster.gpu_speed={speed}"]))
            progress(min(0.95, len(runs) / 8))
        return float(runs[speed]["iteration_time_s"]) - measured

    factor = _root(excess, measured)
    speed = float(f"{1 / factor:.4g}")
    return Calibrated(measured, speed, runs[1.0], runs[speed])


def _root(excess: Callable[[float], float], measured: float) -> float:
    """Find the factor of the time of kernels at which an iteration takes the measured time."""
    low, high = _stretch(excess, measured)
    below, above = excess(low), excess(high)
    side = 0
    for _ in range(_RUNS):
        if min(abs(below), abs(above)) <= _CLOSE * measured or above == below:
            break
        factor = (low * above - high * below) / (above - below)
        found = excess(factor)
        if found < 0:
            low, below, above = factor, found, above / (2 if side < 0 else 1)
            side = -1
        else:
            high, above, below = factor, found, below / (2 if side > 0 else 1)
            side = 1
    return min((low, high), key=lambda factor: abs(excess(factor)))


def _stretch(excess: Callable[[float], float], measured: float) -> tuple[float, float]:
    """Find two factors of the time of kernels between which the measured time lies."""
    low = high = 1.0
    while excess(high) < 0:
        low, high = high, 2 * high
        if high > MOST:
            msg = f"no GPU speed makes an iteration last {measured:g} s: its kernels are no part of it"
            raise InputError(msg)
    while excess(low) > 0:
        low, high = low / 2, low
        if low < _LEAST:
            least = excess(low) + measured
            msg = (
                f"no GPU speed makes an iteration last {measured:g} s: it takes {least:.3g} s with GPUs 64 times as "
                "fast, which communication and the host need; `fabricsim run` says what they wait for"
            )
            raise InputError(msg)
    return low, high


def write(path: Path, scenario: str, settings: Sequence[str], found: Calibrated) -> None:
    """Write a scenario that extends the one of the calibration, and has the speed that was found.

    Raises InputError if the file cannot be written, or is `scenario` itself; an older one of that name is still there
    then.
    """
    base = scenario
    if is_file_name(scenario):
        if Path(scenario).resolve() == path.resolve():
            msg = f"-o {path}: is what the scenario would extend; name another file"
            raise InputError(msg)
        base = os.path.relpath(Path(scenario).resolve(), path.resolve().parent)
    ran = "".join(f" --set {' '.join(setting.split())}" for setting in settings)
    text = (
        f"# {Path(scenario).stem}, whose GPUs are as fast as an iteration of {found.measured:g} s says\n"
        f"extends = {json.dumps(base)}\n\n"
        "[cluster]\n"
        f"gpu_speed = {found.speed:g} # T: calibrated on that iteration{ran and f', with{ran}'}\n"
    )
    write_checked(path, text, load)
