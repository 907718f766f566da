"""What a trace holds, in numbers: ranks, streams, steps, communications and their sizes, and what is missing."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.messages_summary import Communications, HistogramRow, MessageRow, OperationRow
from fabricsim.traces.trace import KINDS, Recording, Trace
from fabricsim.units import seconds


class RankRow(TypedDict):
    """One recording; `rank` is ``None`` if the file does not say it, times if nothing has a start."""

    rank: int | None
    source: str
    host: str
    device: str
    nodes: int
    edges: int
    span_s: float | None


class LaneRow(TypedDict):
    """Streams or threads of one name on all ranks: what runs there, and how long something does, on average."""

    kind: str
    name: str
    ranks: int
    nodes: int
    busy_s: float | None


class KindRow(TypedDict):
    """Nodes of one kind, and the sum of their durations; ``None`` if none is known."""

    kind: str
    nodes: int
    time_s: float | None


class StepRow(TypedDict):
    """A step that the job has marked, and how long it took: mean over the ranks."""

    number: int
    ranks: int
    time_s: float


class MissingRow(TypedDict):
    """What files should say and do not, and in how many."""

    what: str
    ranks: int


class TraceSummary(TypedDict):
    """A trace in numbers; times in seconds, sizes in bytes."""

    form: str
    captured_ranks: int
    world: int | None
    hosts: int
    span_s: float | None
    ranks: list[RankRow]
    steps: list[StepRow]
    lanes: list[LaneRow]
    kinds: list[KindRow]
    operations: list[OperationRow]
    communications: list[MessageRow]
    histogram: list[HistogramRow]
    missing: list[MissingRow]


def summarise_trace(trace: Trace) -> TraceSummary:
    """Count what is in a trace.

    Times of ranks on different hosts are not compared, as their clocks may differ.
    """
    ranks = [_rank(recording) for recording in trace.recordings]
    spans = [row["span_s"] for row in ranks if row["span_s"] is not None]
    communications = Communications(trace)
    return {
        "form": trace.form,
        "captured_ranks": len(ranks),
        "world": None if trace.world == NONE else trace.world,
        "hosts": len({row["host"] for row in ranks if row["host"]}),
        "span_s": max(spans, default=None),
        "ranks": ranks,
        "steps": _steps(trace),
        "lanes": _lanes(trace),
        "kinds": _kinds(trace),
        "operations": communications.operations(),
        "communications": communications.rows(),
        "histogram": communications.histogram(),
        "missing": _missing(trace),
    }


def _rank(recording: Recording) -> RankRow:
    return {
        "rank": None if recording.rank == NONE else recording.rank,
        "source": recording.source,
        "host": recording.host,
        "device": recording.device,
        "nodes": len(recording.nodes),
        "edges": len(recording.edges),
        "span_s": _span(recording.nodes),
    }


def _timed(nodes: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give starts and ends of the nodes that have a start, ps."""
    nodes = nodes[nodes["start"] != NONE]
    return nodes["start"], nodes["start"] + np.maximum(nodes["duration"], 0)


def _span(nodes: NDArray[np.void]) -> float | None:
    start, end = _timed(nodes)
    return seconds(int(end.max() - start.min())) if len(start) else None


def _busy(nodes: NDArray[np.void]) -> int:
    """Time in which at least one of the nodes runs, ps."""
    start, end = _timed(nodes)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    covered = np.concatenate([start[:1], end[:-1]])
    return int(np.maximum(end - np.maximum(start, covered), 0).sum())


def _lanes(trace: Trace) -> list[LaneRow]:
    found: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
    for recording in trace.recordings:
        order = np.argsort(recording.nodes["lane"], kind="stable")
        bounds = np.searchsorted(recording.nodes["lane"][order], np.arange(len(recording.lanes) + 1))
        for number, lane in enumerate(recording.lanes):
            nodes = recording.nodes[order[bounds[number] : bounds[number + 1]]]
            timed = bool(np.any(nodes["start"] != NONE))
            found.setdefault(lane, []).append((len(nodes), _busy(nodes) if timed else None))
    rows: list[LaneRow] = []
    for (kind, name), each in found.items():
        busy = [time for _, time in each if time is not None]
        mean = sum(busy) / len(busy) if busy else None
        rows.append(
            {
                "kind": kind,
                "name": name,
                "ranks": len(each),
                "nodes": sum(count for count, _ in each),
                "busy_s": None if mean is None else seconds(mean),
            }
        )
    return sorted(rows, key=lambda row: (-(row["busy_s"] or 0), -row["nodes"]))


def _kinds(trace: Trace) -> list[KindRow]:
    counts, times, known = np.zeros((3, len(KINDS)), np.int64)
    for recording in trace.recordings:
        kind, duration = recording.nodes["kind"], recording.nodes["duration"]
        counts += np.bincount(kind, minlength=len(KINDS))
        known += np.bincount(kind[duration != NONE], minlength=len(KINDS))
        np.add.at(times, kind, np.maximum(duration, 0))
    return [
        {"kind": name, "nodes": count, "time_s": seconds(time) if has else None}
        for name, count, time, has in zip(KINDS, counts.tolist(), times.tolist(), known.tolist(), strict=True)
        if count
    ]


def _steps(trace: Trace) -> list[StepRow]:
    found: dict[int, list[int]] = {}
    for recording in trace.recordings:
        for number, start, end in recording.steps.tolist():
            found.setdefault(number, []).append(end - start)
    return [
        {"number": number, "ranks": len(times), "time_s": seconds(sum(times) / len(times))}
        for number, times in sorted(found.items())
    ]


def _missing(trace: Trace) -> list[MissingRow]:
    counts: dict[str, int] = {}
    for recording in trace.recordings:
        for what in recording.missing:
            counts[what] = counts.get(what, 0) + 1
    return [{"what": what, "ranks": count} for what, count in counts.items()]
