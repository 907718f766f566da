"""What threads and streams of a Kineto file waited for, as far as it says."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.events import Events
from fabricsim.traces.kineto.joins import Streams, calls_by_correlation
from fabricsim.traces.trace import WAIT

WAITS = re.compile(r"(?:cuda|cu|hip)(?:(Device|Ctx)|Stream|Event)Synchronize(?:_\w+)?")
"""Calls that wait; a match of the group: for all streams of a device."""


class Waits:
    """Finds what waits for what.

    `kinds`: kind of the node of each row.
    """

    def __init__(self, events: Events, kinds: NDArray[np.int8], streams: Streams) -> None:
        self.rows, self.places, self.kinds, self.streams = events.rows, events.places, kinds, streams
        whole = [bool((match := WAITS.fullmatch(name)) and match[1]) for name in events.names]
        self.whole = (kinds == WAIT) & np.array(whole, bool)[self.rows["name"]]

    def pairs(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Give rows that are waited for, and for each the row that waits: a call, or the work of another stream."""
        if len({self.places[place].first for place in self.streams.spans}) == 1:
            calls = np.flatnonzero(self.whole)
            for place in self.streams.spans:
                yield _known(self.streams.last_before(np.full(len(calls), place), self.rows["start"][calls]), calls)
        syncs = np.flatnonzero(self.rows["category"] == scanner.SYNC)
        calls = calls_by_correlation(self.rows, self.rows["correlation"][syncs])
        yield from self._stated(syncs[calls != NONE], calls[calls != NONE])

    def _stated(
        self, syncs: NDArray[np.int64], calls: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Read ``cuda_sync`` events: a call waits for a stream, or a call or a stream for an event of a stream."""
        rows = self.rows
        of_event = rows["awaited_record"][syncs] > 0
        records = calls_by_correlation(rows, rows["awaited_record"][syncs])
        good = ~of_event | ((records != NONE) & (rows["start"][records] <= rows["start"][calls]))
        syncs, calls, records, of_event = syncs[good], calls[good], records[good], of_event[good]
        times = rows["start"][np.where(of_event, records, calls)]
        before = self.streams.last_before(self._awaited(syncs, of_event), times)
        by_host = self.kinds[calls] == WAIT
        yield _known(before[by_host], calls[by_host])
        by_stream = ~by_host & of_event
        after = self.streams.first_after(rows["place"][syncs[by_stream]], rows["start"][calls[by_stream]])
        yield _known(before[by_stream], after)

    def _awaited(self, syncs: NDArray[np.int64], of_event: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Give the number of the stream that each waits for; NONE if it has no work."""
        numbers = {place: number for number, place in enumerate(self.places)}
        waiting, streams = self.rows["place"][syncs].tolist(), self.rows["awaited_stream"][syncs].tolist()
        awaited = [
            numbers.get(self.places[at]._replace(second=stream), NONE) if event else at
            for at, stream, event in zip(waiting, streams, of_event.tolist(), strict=True)
        ]
        return np.array(awaited, np.int64)


def _known(before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    good = (before != NONE) & (after != NONE)
    return before[good], after[good]
