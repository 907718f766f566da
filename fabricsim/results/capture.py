"""What was captured of a replayed job, beside what the replay made of it."""

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.units import seconds

SHOWN = 12
"""Kinds of transfers that the terminal shows at most."""


class StepTime(NamedTuple):
    """One iteration of one rank, as the job marked it.

    Its number, its time captured and replayed, and when it began in the replay, ps.
    """

    rank: int
    number: int
    captured: int
    replayed: int
    start: int


class CapturedTransfer(NamedTuple):
    """One communication: from when its last rank was ready until the last was done, captured and replayed, ps.

    ``captured_ranks`` of its ranks were captured. If these are not all, ``captured`` is an upper bound, since they may
    have waited for others; it is NONE if nothing is known of it. ``size`` is NONE if the trace does not say it.
    """

    operation: str
    group: str
    ranks: int
    size: int
    captured: int
    replayed: int
    captured_ranks: int


@dataclass(frozen=True)
class Capture:
    """What a replay is held against.

    `form`: form of the trace, such as ``"kineto"``.
    `span`: from the first start to the last end of all that was captured, ps; NONE if the trace has no times.
    `steps`, `transfers`: by rank and number; in the order in which the trace has them.
    `assumptions`: what the replay assumes because the trace does not say it, a sentence each.
    """

    form: str
    span: int
    steps: tuple[StepTime, ...]
    transfers: tuple[CapturedTransfer, ...]
    assumptions: tuple[str, ...]


class TransferSummary(TypedDict):
    """All transfers of one operation, group, number of ranks and size; times are medians, null if not captured.

    If ``captured_at_most``, ``captured_s`` is an upper bound and ``change`` a lower one: not all ranks were captured,
    and those that were may have waited for others.
    """

    operation: str
    group: str
    ranks: int
    size_bytes: int | None
    count: int
    captured_s: float | None
    captured_at_most: bool
    replayed_s: float
    change: float | None


class TransferSums(TypedDict):
    """The sums of all transfers whose captured time is known; otherwise as of `TransferSummary`."""

    count: int
    captured_s: float
    captured_at_most: bool
    replayed_s: float
    change: float | None


class CaptureSummary(TypedDict):
    """A replay against its capture.

    ``captured_iteration_s`` and ``replayed_iteration_s`` are means over all marked steps of all captured ranks; if the
    job marks none, the whole span. ``change`` is replayed over captured, less 1: the error of the replay if the fabric
    is that of the capture, else what the other fabric makes of it, error included. What was not captured is null.
    A job that waits for its hosts changes little whatever its transfers do: ``transfers_in_sum`` holds those alone
    against what was captured.
    """

    form: str
    steps: int
    captured_iteration_s: float | None
    replayed_iteration_s: float
    change: float | None
    transfers_in_sum: TransferSums | None
    transfers: list[TransferSummary]
    assumptions: list[str]


def summarise_capture(capture: Capture, replayed: float) -> CaptureSummary:
    """Summarise a replay against its capture.

    `capture`: what was captured.
    `replayed`: how long an iteration took in the replay (`fabricsim.results.breakdown.iteration_parts`), ps.
    """
    captured = None if capture.span == NONE else float(capture.span)
    if capture.steps:
        captured = float(np.mean([step.captured for step in capture.steps]))
    return {
        "form": capture.form,
        "steps": len({step.number for step in capture.steps}),
        "captured_iteration_s": None if captured is None else seconds(captured),
        "replayed_iteration_s": seconds(replayed),
        "change": _change(captured, replayed),
        "transfers_in_sum": _in_sum([transfer for transfer in capture.transfers if transfer.captured != NONE]),
        "transfers": _transfers(capture.transfers),
        "assumptions": list(capture.assumptions),
    }


def _in_sum(transfers: list[CapturedTransfer]) -> TransferSums | None:
    if not transfers:
        return None
    captured = float(sum(transfer.captured for transfer in transfers))
    replayed = float(sum(transfer.replayed for transfer in transfers))
    return {
        "count": len(transfers),
        "captured_s": seconds(captured),
        "captured_at_most": _at_most(transfers),
        "replayed_s": seconds(replayed),
        "change": _change(captured, replayed),
    }


def _at_most(transfers: list[CapturedTransfer]) -> bool:
    return any(transfer.captured_ranks < transfer.ranks for transfer in transfers if transfer.captured != NONE)


def _transfers(transfers: tuple[CapturedTransfer, ...]) -> list[TransferSummary]:
    alike: dict[tuple[str, str, int, int], list[CapturedTransfer]] = {}
    for transfer in transfers:
        alike.setdefault(transfer[:4], []).append(transfer)
    most = sorted(alike.items(), key=lambda item: (-sum(transfer.replayed for transfer in item[1]), item[0]))
    return [_alike(*key, some) for key, some in most]


def _alike(operation: str, group: str, ranks: int, size: int, some: list[CapturedTransfer]) -> TransferSummary:
    known = [transfer.captured for transfer in some if transfer.captured != NONE]
    captured = float(np.median(known)) if known else None
    replayed = float(np.median([transfer.replayed for transfer in some]))
    return {
        "operation": operation,
        "group": group,
        "ranks": ranks,
        "size_bytes": None if size == NONE else size,
        "count": len(some),
        "captured_s": None if captured is None else seconds(captured),
        "captured_at_most": _at_most(some),
        "replayed_s": seconds(replayed),
        "change": _change(captured, replayed),
    }


def _change(captured: float | None, replayed: float) -> float | None:
    return None if captured is None or captured <= 0 else replayed / captured - 1
