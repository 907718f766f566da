"""Communications of a trace by kind, group and size, and how large its messages are.

A captured part of a collective lasts from when its rank was ready until all were done. What its ranks have in common
is the transfer: from the latest start to the latest end.
"""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.trace import COMMUNICATION, Recording, Trace
from fabricsim.units import PS_PER_NS, seconds

_PART = np.dtype(
    [
        ("recording", np.int64),
        ("row", np.int64),  # index into the kinds of communications
        ("group", np.int64),  # index into the groups of all ranks
        ("sequence", np.int64),  # the group's own number; NONE if not captured
        ("start", np.int64),  # ps after the first origin
        ("duration", np.int64),
    ]
)
"""One rank's part of a communication."""

_MOST_AWAY = 2**62 // PS_PER_NS  # ns between the clocks of two recordings


class MessageRow(TypedDict):
    """Communications of one kind, group and size.

    `parts` counts them on all captured ranks together, `per_rank` on each that has any; times are of the parts,
    `transfer_s` is the median over those of which several ranks were captured by one clock. ``None`` is not captured.
    """

    operation: str
    group: str
    group_size: int | None
    size_bytes: int | None
    ranks: int
    parts: int
    per_rank: float
    total_bytes: int | None
    total_s: float | None
    min_s: float | None
    median_s: float | None
    max_s: float | None
    transfer_s: float | None


class OperationRow(TypedDict):
    """Communications of one kind: how many on each rank that has any, and their bytes on all together."""

    operation: str
    ranks: int
    per_rank: float
    total_bytes: int


class HistogramRow(TypedDict):
    """Parts of communications of `from_bytes` and up to twice that, and their bytes together."""

    from_bytes: int
    parts: int
    total_bytes: int


class Communications:
    """The communications of all ranks. `trace`: what was captured."""

    def __init__(self, trace: Trace) -> None:
        self.kinds: dict[tuple[str, str, int, int], int] = {}
        self.groups: dict[tuple[object, ...], int] = {}
        self.origin = min(recording.origin for recording in trace.recordings)
        self.one_clock = len({recording.host for recording in trace.recordings}) == 1
        self.parts = np.concatenate([self._parts(*each) for each in enumerate(trace.recordings)])
        self.number = _numbers(self.parts)

    def _parts(self, number: int, recording: Recording) -> NDArray[np.void]:
        nodes = recording.nodes[recording.nodes["kind"] == COMMUNICATION]
        parts = np.zeros(len(nodes), _PART)
        row, group = self._numbers(recording)
        parts["recording"] = number
        what = nodes["communication"]
        parts["row"], parts["group"] = row[what], group[what]
        parts["sequence"] = nodes["sequence"]
        away = recording.origin - self.origin
        known = (nodes["start"] != NONE) & (away < _MOST_AWAY)
        parts["start"] = np.where(known, nodes["start"] + min(away, _MOST_AWAY) * PS_PER_NS, NONE)
        parts["duration"] = nodes["duration"]
        return parts

    def _numbers(self, recording: Recording) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give the communications of a recording numbers: by their kind and by their group."""
        rows, groups = [NONE], [NONE]
        for each in recording.communications:
            group = recording.groups[each.group] if each.group != NONE else None
            label = (group.description or group.name) if group else ""
            size = group.size if group else NONE
            kind = (each.operation, label, size, each.size)
            rows.append(self.kinds.setdefault(kind, len(self.kinds)))
            name, ranks = (group.name, group.ranks) if group else ("", ())
            ends = {"send": (recording.rank, each.peer), "recv": (each.peer, recording.rank)}.get(each.operation)
            groups.append(self.groups.setdefault((name, ranks, ends), len(self.groups)))
        return np.array([*rows[1:], NONE]), np.array([*groups[1:], NONE])

    def rows(self) -> list[MessageRow]:
        """Summarise each kind, those with most time, then most bytes, first."""
        transfers = self._transfers()
        order = np.argsort(self.parts["row"], kind="stable")
        bounds = np.searchsorted(self.parts["row"][order], np.arange(len(self.kinds) + 1))
        rows = [
            self._row(kind, self.parts[order[bounds[number] : bounds[number + 1]]], transfers.get(number))
            for kind, number in self.kinds.items()
        ]
        rows = [row for row in rows if row["parts"]]
        return sorted(rows, key=lambda row: (-(row["total_s"] or 0), -(row["total_bytes"] or 0)))

    @staticmethod
    def _row(kind: tuple[str, str, int, int], parts: NDArray[np.void], transfer: float | None) -> MessageRow:
        operation, group, group_size, size = kind
        times = parts["duration"][parts["duration"] != NONE]
        ranks = len(np.unique(parts["recording"]))
        return {
            "operation": operation,
            "group": group,
            "group_size": None if group_size == NONE else group_size,
            "size_bytes": None if size == NONE else size,
            "ranks": ranks,
            "parts": len(parts),
            "per_rank": len(parts) / ranks if ranks else 0.0,
            "total_bytes": None if size == NONE else size * len(parts),
            "total_s": seconds(int(times.sum())) if len(times) else None,
            "min_s": seconds(int(times.min())) if len(times) else None,
            "median_s": seconds(float(np.median(times))) if len(times) else None,
            "max_s": seconds(int(times.max())) if len(times) else None,
            "transfer_s": transfer,
        }

    def operations(self) -> list[OperationRow]:
        """Count each kind."""
        names = {name: number for number, name in enumerate(dict.fromkeys(kind[0] for kind in self.kinds))}
        of = np.array([names[kind[0]] for kind in self.kinds] or [0])[self.parts["row"]]
        found: list[OperationRow] = []
        for name, number in names.items():
            mine = self.parts[of == number]
            ranks = max(len(np.unique(mine["recording"])), 1)
            sizes = {row: size for (_, _, _, size), row in self.kinds.items()}
            rows, counts = np.unique(mine["row"], return_counts=True)
            total = sum(max(sizes[row], 0) * count for row, count in zip(rows.tolist(), counts.tolist(), strict=True))
            found.append({"operation": name, "ranks": ranks, "per_rank": len(mine) / ranks, "total_bytes": total})
        return found

    def _transfers(self) -> dict[int, float]:
        """Median transfer of each kind, seconds."""
        known = (self.parts["start"] != NONE) & (self.parts["duration"] != NONE)
        parts = self.parts[known]
        if not self.one_clock or not len(parts):
            return {}
        keys = np.stack([parts["group"], self.number[known]])
        _, of, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        of = of.ravel()  # NumPy 2.0 gives it two dimensions
        starts, ends = np.full((2, len(counts)), NONE)
        np.maximum.at(starts, of, parts["start"])
        np.maximum.at(ends, of, parts["start"] + parts["duration"])
        row, match = np.unique(np.stack([parts["row"], of]), axis=1)
        row, transfer = row[counts[match] > 1], (ends - starts)[match[counts[match] > 1]]
        return {int(number): seconds(float(np.median(transfer[row == number]))) for number in np.unique(row)}

    def histogram(self) -> list[HistogramRow]:
        """Count sizes from one power of two up to the next; 0 by itself."""
        counts = np.bincount(self.parts["row"], minlength=len(self.kinds))
        found: dict[int, tuple[int, int]] = {}
        for (_, _, _, size), number in self.kinds.items():
            parts = int(counts[number])
            if size != NONE and parts:
                begin = 1 << size.bit_length() >> 1
                before, total = found.get(begin, (0, 0))
                found[begin] = before + parts, total + parts * size
        return [
            {"from_bytes": begin, "parts": parts, "total_bytes": total}
            for begin, (parts, total) in sorted(found.items())
        ]


def _numbers(parts: NDArray[np.void]) -> NDArray[np.int64]:
    """Give the group's own number of each communication where all ranks have such, else which of its group it is."""
    key = np.stack([parts["recording"], parts["group"]])
    sequence = parts["sequence"]
    if not np.any(sequence == NONE) and np.unique(np.vstack([key, sequence]), axis=1).shape[1] == len(parts):
        return sequence
    order = np.lexsort(key)
    first = np.ones(len(parts), np.bool_)
    first[1:] = np.any(key[:, order][:, 1:] != key[:, order][:, :-1], axis=0)
    place = np.arange(len(parts))
    number = np.empty(len(parts), np.int64)
    number[order] = place - np.maximum.accumulate(np.where(first, place, 0))
    return number
