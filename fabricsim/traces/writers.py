"""The forms in which traces are written."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fabricsim.errors import InputError
from fabricsim.traces.chakra import writer as chakra
from fabricsim.traces.goal import writer as goal
from fabricsim.traces.trace import Trace


class Target(NamedTuple):
    """A form that is written.

    `write`: writes a trace; gives what of it the form has no room for. Raises InputError if the form cannot hold it.
    `description`: what reads it.
    `ending`: of its file's name; empty if it is a file per rank.
    `collectives`: whether it holds collectives, not only sends and receives.
    """

    write: Callable[[Trace, Path], tuple[str, ...]]
    description: str
    ending: str
    collectives: bool


WRITERS = {
    "chakra": Target(chakra.write, "Chakra execution traces, for ASTRA-sim: one file per rank", "", collectives=True),
    "goal": Target(goal.write, "GOAL schedules as text, for LogGOPSim and ATLAHS", ".goal", collectives=False),
}
"""All forms by name."""

_POINT_TO_POINT = {"send", "recv"}


def target(form: str) -> Target:
    """Return what is known of a form. Raises InputError if it is not written."""
    if form not in WRITERS:
        known = "; ".join(f"{name}: {each.description}" for name, each in WRITERS.items())
        raise InputError(f"--to {form!r}: is no form that is written; there are {known}")
    return WRITERS[form]


def collectives(trace: Trace) -> list[str]:
    """Name the operations of a trace that are neither send nor receive."""
    found = {what.operation for recording in trace.recordings for what in recording.communications}
    return sorted(found - _POINT_TO_POINT)


def files(trace: Trace, form: str, path: Path) -> list[Path]:
    """List the files that `write` makes of a path without ending."""
    if not target(form).ending:
        return chakra.files(trace, path)
    return [path if path.suffix == target(form).ending else path.with_name(path.name + target(form).ending)]


def write(trace: Trace, form: str, path: Path) -> tuple[str, ...]:
    """Write a trace in a form; as `Target.write`, with the path as of `files`."""
    return target(form).write(trace, files(trace, form, path)[0] if target(form).ending else path)
