"""What belongs together in a Kineto file: kernels and their launches, waits, streams, notes of collectives."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.kineto import trace_events as scanner
from fabricsim.traces.kineto.events import Events


def calls_by_correlation(rows: NDArray[np.void], correlations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the call of each correlation: indices of `rows`, NONE if there is none."""
    calls = np.flatnonzero((rows["category"] == scanner.CALL) & (rows["correlation"] > 0))
    return matched(rows["correlation"][calls], calls, correlations)


def matched(keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Look up the first value of each wanted key; NONE if there is none, and for keys below 1."""
    if not len(keys):
        return np.full(len(wanted), NONE, np.int64)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found = values[order[places]]
    return np.where((keys[order[places]] == wanted) & (wanted > 0), found, NONE)


class Streams:
    """Which work of a stream was handed to it before a time.

    `launches`: row of the launch of each row, NONE if not known.
    """

    def __init__(self, rows: NDArray[np.void], launches: NDArray[np.int64]) -> None:
        device = np.flatnonzero(np.isin(rows["category"], (scanner.KERNEL, scanner.COPY)))
        launch = launches[device]
        times = np.where(launch != NONE, rows["start"][launch], rows["start"][device])
        order = np.lexsort((rows["start"][device], times, rows["place"][device]))
        self.rows, self.times, places = device[order], times[order], rows["place"][device][order]
        found, firsts = np.unique(places, return_index=True)
        ends = [*firsts[1:].tolist(), len(places)]
        self.spans = dict(zip(found.tolist(), zip(firsts.tolist(), ends, strict=True), strict=True))

    def last_before(self, places: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the rows that streams were handed last up to some times; NONE if there is none."""
        return self._found(places, times, -1)

    def first_after(self, places: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the rows that streams were handed first after some times; NONE if there is none."""
        return self._found(places, times, 0)

    def _found(self, places: NDArray[np.int64], times: NDArray[np.int64], offset: int) -> NDArray[np.int64]:
        found = np.full(len(places), NONE, np.int64)
        for place, (first, end) in self.spans.items():
            here = np.flatnonzero(places == place)
            at = first + np.searchsorted(self.times[first:end], times[here], "right") + offset
            good = (at >= first) & (at < end)
            found[here[good]] = self.rows[at[good]]
        return found


def notes_of_kernels(
    events: Events, kernels: NDArray[np.int64], launches: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Find what is noted around the launches of kernels, or with their ``External id`` if nothing is around them.

    `launches`: row of the launch of each of them; NONE if not known.
    Yields: row of the ``record_param_comms`` of each kernel, then row of its annotation ``nccl:...``; NONE if there is
        none.
    """
    rows = events.rows
    transfers = np.array([note.operation is not None for note in events.notes], bool)
    for mark in (scanner.PARAMETERS, scanner.COLLECTIVE):
        marked = np.flatnonzero(rows["mark"] == mark)
        # before PyTorch 2.2 no record_param_comms says what it is of, later those of "wait" and "init" do
        says = transfers[rows["note"][marked]] if len(marked) else np.empty(0, bool)
        marked = marked[says] if says.any() else marked
        found = around(rows, marked, launches)
        by_id = matched(rows["external"][marked], marked, rows["external"][kernels])
        # before PyTorch 2.1 a kernel's External id is its correlation, which counts something else
        own = rows["external"][kernels] != rows["correlation"][kernels]
        yield np.where((found == NONE) & own, by_id, found)


def around(rows: NDArray[np.void], spans: NDArray[np.int64], launches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the innermost of some spans around each launch, on its thread; NONE if there is none, or no launch."""
    found = np.full(len(launches), NONE, np.int64)
    for place in np.unique(rows["place"][spans]):
        here = spans[rows["place"][spans] == place]
        launched = np.flatnonzero((launches != NONE) & (rows["place"][launches] == place))
        found[launched] = innermost(rows, here, rows["start"][launches[launched]])
    return found


def innermost(rows: NDArray[np.void], spans: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the innermost of the spans of a thread around each time; NONE if there is none."""
    starts, ends = rows["start"][spans], rows["start"][spans] + rows["duration"][spans]
    order = np.lexsort((-ends, starts))
    starts, ends, spans = starts[order].tolist(), ends[order].tolist(), spans[order].tolist()
    found = np.full(len(times), NONE, np.int64)
    open_: list[int] = []
    following = 0
    for at in np.argsort(times, kind="stable").tolist():
        time = int(times[at])
        while following < len(spans) and starts[following] <= time:
            while open_ and ends[open_[-1]] <= starts[following]:
                open_.pop()
            open_.append(following)
            following += 1
        while open_ and ends[open_[-1]] < time:
            open_.pop()
        if open_:
            found[at] = spans[open_[-1]]
    return found
