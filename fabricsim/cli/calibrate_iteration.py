"""A third use of the command calibrate: the speed of GPUs, from the iteration of a job that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabricsim.cli.common import note, progress, quantity, say_json, show
from fabricsim.errors import InputError
from fabricsim.units import DURATION, PS_PER_S, human_percent, human_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from fabricsim.calibration.iteration import Calibrated


_PLAUSIBLE = 3  # times as fast or as slow: beyond that a mistake is likelier than slow software


def calibrate_iteration(  # noqa: PLR0913  by name only
    logs: Sequence[str],
    measured: str,
    settings: Sequence[str],
    output: Path | None,
    *,
    unused: Sequence[str],
    as_json: bool,
) -> None:
    """Find the speed of GPUs by which an iteration takes the measured time, print it, and write a scenario with it.

    `logs`: what was given in their place: a scenario.
    `measured`: what ``--iteration`` gave.
    `settings`: those of the run that was measured.
    `output`: what ``-o`` gave, checked.
    `unused`: options that were given and say nothing about an iteration.
    `as_json`: whether to print JSON.
    """
    from fabricsim.calibration import iteration  # noqa: PLC0415  --help must not pay for it

    if unused:
        msg = f"{', '.join(unused)}: of no use with --iteration, for which the scenario says all; leave it out"
        raise InputError(msg)
    if len(logs) != 1:
        msg = f"--iteration is that of one scenario, and {len(logs)} are named; name the one that was measured"
        raise InputError(msg)
    seconds = quantity("--iteration", measured, DURATION) / PS_PER_S
    if not seconds:
        raise InputError(f"--iteration {measured}: no iteration takes no time; write such as 620ms")
    with progress("calibrate") as report:
        found = iteration.calibrate(logs[0], settings, seconds, report)
    if as_json:
        say_json(_as_json(found))
    else:
        show(_table(found), "", f"cluster.gpu_speed = {found.speed:g}", *_remarks(found))
    if output is not None:
        iteration.write(output, logs[0], settings, found)
        note(f"wrote {output}")


def _table(found: Calibrated) -> Table:
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  slow to import

    table = FittedTable("GPU speed", ["Iteration", "Error", "Compute", "Exposed\ncomm.", "Host", "Bubble"])
    for speed, summary in ((1.0, found.before), (found.speed, found.after)):
        took, parts = summary["iteration_time_s"], summary["breakdown_s"]
        shown = (parts["compute"], summary["exposed_communication_s"], parts["host"], parts["bubble"])
        error = human_percent(took / found.measured - 1, signed=True)
        table.add(f"{speed:g}", human_seconds(took), error, *map(human_seconds, shown))
    table.add("measured", human_seconds(found.measured))
    return table


def _remarks(found: Calibrated) -> list[str]:
    """Say that a speed is none that software explains."""
    if 1 / _PLAUSIBLE <= found.speed <= _PLAUSIBLE:
        return []
    away = "slower" if found.speed < 1 else "faster"
    times = f"{max(found.speed, 1 / found.speed):.3g} times {away}"
    doubt = f"GPUs {times} than their preset are hardly those that were measured"
    return [
        f"{doubt}: check the unit of --iteration, and that the scenario has the job and the GPUs of the measurement"
    ]


def _as_json(found: Calibrated) -> dict[str, Any]:
    return {
        "measured_s": found.measured,
        "gpu_speed": found.speed,
        "predicted_s": found.before["iteration_time_s"],
        "calibrated_s": found.after["iteration_time_s"],
        "remarks": _remarks(found),
    }
