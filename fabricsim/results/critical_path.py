"""The critical path of a run: what its end waited for, step by step back to the start.

The walk begins at the last op of the rank that ends last. Each op began when what it waited for was done, and that is
an op of the same rank which ended at this very time. A collective moves data from when its last rank is ready, so
before that the walk goes on at this rank (as in Holmes and Gilge 2004, and in Scalasca's critical-path profile).
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from fabricsim.records.program import COLLECTIVE, MAIN_STREAM, NONE
from fabricsim.results.result import RunRecord


class Stretch(NamedTuple):
    """One piece of the path.

    ``op`` is an index into the ops, NONE if nothing ran; ``begin`` and ``end`` are in ps. ``via`` is the call
    whose wait led from the rank of the start to this one, NONE on that rank itself.
    """

    op: int
    rank: int
    begin: int
    end: int
    via: int


def critical_path(result: RunRecord, rank: int, begin: int, end: int) -> list[Stretch]:
    """Walk back from what `rank` does at `end` to `begin`, ps.

    Returns: the last first; together they cover the time without a gap.
    """
    walk, path, via, home = _Walk(result), [], NONE, rank
    calls = np.where(result.ops["kind"] == COLLECTIVE, result.ops["call"], NONE)
    ranks = result.ops["rank"]
    left: set[int] = set()  # ranks that the walk has gone on from at this very time
    while end > begin:
        op, since = walk.before(rank, end)
        call = NONE if op == NONE else int(calls[op])
        ready = NONE if call == NONE else int(result.calls.start[call])
        last = walk.last_ready(call) if since < ready <= end else op
        if ready == end and int(ranks[last]) in {rank, *left}:
            last = op
        if last != op:
            since = ready
        since = max(begin, since)
        if since < end:
            path.append(Stretch(op, rank, since, end, via))
            left.clear()
        if last != op and int(ranks[last]) != rank:
            left.add(rank)
            rank = int(ranks[last])
            via = NONE if rank == home else call
        end = since
    return path


class _Walk:
    """The ops of each rank by their end, and those of each call."""

    def __init__(self, result: RunRecord) -> None:
        self._start, self._end = result.spans["start"], result.spans["end"]
        took = np.flatnonzero(result.spans["end"] > result.spans["start"])
        ops, spans = result.ops[took], result.spans[took]
        # of ops that end together the main stream's, and of these the longest, is what was waited for
        keys = (-spans["start"], ops["stream"] == MAIN_STREAM, spans["end"], ops["rank"])
        order = np.lexsort(keys)
        self._by_end = took[order]
        ranks = ops["rank"][order]
        self._first = np.searchsorted(ranks, np.arange(int(ranks.max(initial=-1)) + 2)).tolist()
        self._ends: dict[int, list[int]] = {}
        self._by_call = np.argsort(result.ops["call"], kind="stable")
        self._calls = result.ops["call"][self._by_call]

    def before(self, rank: int, end: int) -> tuple[int, int]:
        """Give the op of `rank` that ended at `end` and its start, or NONE and when the last one before ended."""
        if rank >= len(self._first) - 1:
            return NONE, 0
        first, beyond = self._first[rank], self._first[rank + 1]
        if rank not in self._ends:
            self._ends[rank] = self._end[self._by_end[first:beyond]].tolist()
        ends = self._ends[rank]
        place = bisect_right(ends, end) - 1
        if place < 0:
            return NONE, 0
        op = int(self._by_end[first + place])
        return (op, int(self._start[op])) if ends[place] == end else (NONE, ends[place])

    def last_ready(self, call: int) -> int:
        """Give the op of the rank that joined a call last; of equals the first."""
        some = self._by_call[slice(*np.searchsorted(self._calls, [call, call + 1]))]
        return int(some[np.argmax(self._start[some])])
