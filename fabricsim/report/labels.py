"""What tells several runs apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RunNames(NamedTuple):
    """The names that a run has."""

    fabric: str
    transport: str
    engine: str


def tell_apart(runs: Sequence[RunNames]) -> tuple[str, list[str]]:
    """Name what runs differ in, and each run by it.

    `runs`: at least one.
    Returns: such as ``"transport"`` and the names of the transports; that of a single run is its transport.
    """
    differ = [key for key in RunNames._fields if len({getattr(run, key) for run in runs}) > 1] or ["transport"]
    return " and ".join(differ), [", ".join(getattr(run, key) for key in differ) for run in runs]
