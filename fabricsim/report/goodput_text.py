"""The goodput of a job as a table."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fabricsim.report.tables import FittedTable
from fabricsim.units import human_count, human_percent

_PARTS = {
    "training": "training_s",
    "checkpoints": "checkpoints_s",
    "work lost since the last checkpoint": "lost_work_s",
    "detection and restart": "detection_and_restart_s",
    "waiting for spares": "waiting_for_spares_s",
}


def goodput_text(told: Mapping[str, Any]) -> RenderableType:
    """Show where the time of a job goes.

    `told`: what ``fabricsim goodput --json`` prints.
    """
    head = Text(f"{told['name']}: {told['gpus']:,} GPUs, one of which fails every {_long(told['mtbf_of_job_s'])}\n")
    head.append(f"Goodput {human_percent(told['goodput'])}", style="bold")
    head.append(f", if GPUs fail as drawn from seed {told['seed']}: {told['iterations']:,} iterations of ")
    head.append(f"{told['iteration_s']:.4g} s in {_long(told['time_s'])}\n")
    rows = ((part, _long(told[name]), human_percent(told[name] / told["time_s"])) for part, name in _PARTS.items())
    table = FittedTable("Where the time goes", ["Time", "Share"], rows)
    often = f"a checkpoint after each {_long(told['interval_s'])} of training, best {_long(told['best_interval_s'])}"
    said = (
        f"{human_count(told['failures'], 'failures')}{_in_the_mean(told)}; {often}",
        f"In the long run, with enough spares {human_percent(told['expected'])} (Daly)",
        *(f"Note: {note}" for note in told["notes"]),
    )
    return Group(head, table, *map(Text, said))


def _in_the_mean(told: Mapping[str, Any]) -> str:
    """Say how many failures are expected; nothing if some time was waited for spares, in which nothing fails."""
    if told["waiting_for_spares_s"]:
        return ""
    return f", in the mean of all draws {told['time_s'] / told['mtbf_of_job_s']:.3g}"


def _long(seconds: float) -> str:
    """Write a time for people."""
    for unit, scale in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds:.4g} s"
