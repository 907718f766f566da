"""A replay held against what was captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.results.capture import Capture, CapturedTransfer, StepTime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.traces.rebuild.programs import Rebuilt


def agreement(rebuilt: Rebuilt, form: str, spans: NDArray[np.void]) -> Capture:
    """Put what was captured beside what was replayed.

    `spans`: ``SPAN`` records of the program's ops as replayed.
    """
    return Capture(form, rebuilt.captured_span, _steps(rebuilt, spans), _transfers(rebuilt, spans), rebuilt.assumptions)


def _steps(rebuilt: Rebuilt, spans: NDArray[np.void]) -> tuple[StepTime, ...]:
    begin, end = rebuilt.steps[..., 0], rebuilt.steps[..., 1]
    starts = spans["end"][begin]
    replayed = spans["end"][end] - starts
    return tuple(
        StepTime(rank, number, int(rebuilt.captured_steps[place, at]), int(replayed[place, at]), int(starts[place, at]))
        for place, rank in enumerate(rebuilt.captured_ranks)
        for at, number in enumerate(rebuilt.step_numbers)
    )


def _transfers(rebuilt: Rebuilt, spans: NDArray[np.void]) -> tuple[CapturedTransfer, ...]:
    """From when the last rank was ready, whose part then began, until the last was done."""
    count = len(rebuilt.names)
    ops = np.flatnonzero(rebuilt.matches != NONE)
    of = rebuilt.matches[ops]
    start, end = np.full(count, NONE), np.full(count, NONE)
    np.maximum.at(start, of, spans["start"][ops])
    np.maximum.at(end, of, spans["end"][ops])
    return tuple(
        CapturedTransfer(
            operation,
            group,
            ranks,
            size,
            int(rebuilt.captured_transfers[number]),
            int(end[number] - start[number]),
            int(rebuilt.captured_parts[number]),
        )
        for number, (operation, group, ranks, size) in enumerate(rebuilt.names)
        if start[number] != NONE
    )
