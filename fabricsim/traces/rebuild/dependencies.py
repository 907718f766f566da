"""What the operations of one rank wait for: as the file states it, by order, and by what their times show.

A device's nodes run in the order of their streams, each after the call that launched it. A host's calls run one after
the other: each after the call before it of its own thread, and after the last call of any thread that had ended
before it began, since threads hand work to one another. What is left between that and a node's start is a gap: work
of the host that is not captured, or the few microseconds that a device takes to begin. A host runs ahead of its
device, so a step begins and ends when all is done that had been launched before the host marked it, or if launches were
not captured, that had begun.

Two kinds of waiting are seldom in a file and are found by their traces in time. A stream that was told to wait for
another (``cudaStreamWaitEvent``) is taken to wait for the last node of that stream that had been launched by then and
had ended when the waiting stream went on. A host that waits for a device is taken to wait for the node that ended
last before the call returned.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE
from fabricsim.traces.dependencies import edges_of, of_lanes
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, EDGE, HOST, LAUNCH, NODE, WAIT, Recording

DEVICE_KINDS = (COMPUTE, COMMUNICATION, COPY)
"""Kinds of nodes that run on a device."""

CLOSE = 5 * 10**6
"""Times of host and device agree to this, ps: Kineto's are in microseconds in older files."""

_NEVER = np.iinfo(np.int64).min
_STREAM_WAITS = ("cudaStreamWaitEvent", "hipStreamWaitEvent")
_DEVICE_WAITS = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cudaCtxSynchronize")


@dataclass(frozen=True)
class Ordered:
    """The operations of one rank, and what each waits for.

    `nodes`: ``NODE`` records in the order of their starts if they have such, which are counted from the first;
        durations are 0 if not captured.
    `edges`: ``EDGE`` records between them; ``on_start`` if `after` may begin with `before`.
    `gaps`: time between the last of what a node waits for and its start, ps, shape ``(n_nodes,)``. That of a WAIT is
        after what it waits for on the host; its duration begins when what it waits for on a device has ended, too.
    `steps`: nodes that begin and end each step, shape ``(n_steps, 2)``.
    `marked`: when these were done as captured, ps, shape ``(n_steps, 2)``.
    `zero`: when the first began, ps after `Recording.origin`; NONE if it is not known when they ran.
    `inferred`: how many dependencies between streams were found by times alone.
    `unknown`: how many kernels, copies and works of the host have no duration.
    """

    nodes: NDArray[np.void]
    edges: NDArray[np.void]
    gaps: NDArray[np.int64]
    steps: NDArray[np.int64]
    marked: NDArray[np.int64]
    zero: int
    inferred: int
    unknown: int

    @property
    def timed(self) -> bool:
        """Whether it is known when its nodes ran; of no nodes it is."""
        return self.zero != NONE or not len(self.nodes)


def order(recording: Recording) -> Ordered:
    """Find what each operation of a rank waits for.

    If one operation does not say when it ran, those of the file and of lanes are all dependencies that there are.
    """
    if not len(recording.nodes) or np.any(recording.nodes["start"] == NONE):
        return _untimed(recording)
    return _Timed(recording).ordered()


def delayed(ordered: Ordered, delay: int) -> Ordered:
    """Let what waits for nothing begin later, by `delay` ps."""
    gaps = ordered.gaps.copy()
    gaps[np.setdiff1d(np.arange(len(gaps)), ordered.edges["after"])] += delay
    return replace(ordered, gaps=gaps)


def _untimed(recording: Recording) -> Ordered:
    """Order by edges and lanes alone: no node says when it ran, so none has a gap."""
    nodes = recording.nodes.copy()
    unknown = _unknown(nodes)
    nodes["duration"] = np.maximum(nodes["duration"], 0)
    in_lanes = edges_of(*of_lanes(nodes["lane"], recording.lanes))
    edges = np.concatenate([_eager(recording), in_lanes, edges_of(*_turns(recording).T)])
    marked = np.stack([recording.steps["start"], recording.steps["end"]], axis=1)
    return Ordered(nodes, edges, np.zeros(len(nodes), np.int64), _marked_steps(recording), marked, NONE, 0, unknown)


def _eager(recording: Recording) -> NDArray[np.void]:
    """Let what waits for a send of a GOAL schedule go on as soon as it is posted: those do not wait for receivers."""
    edges = recording.edges.copy()
    sends = np.array([what.operation == "send" for what in recording.communications] + [False], np.bool_)
    own = np.array([kind == "cpu" for kind, _ in recording.lanes], np.bool_)
    before = recording.nodes[edges["before"]]
    edges["on_start"] |= own[before["lane"]] & sends[before["communication"]]
    return edges


def _turns(recording: Recording) -> NDArray[np.int64]:
    """Pair operations of a GOAL schedule's CPU that become ready at one instant, as they wait for the same.

    Receives are left out: they keep no CPU busy until their message is there. Of operations that wait for different
    things it is not known beforehand which is ready first; they are taken to find the CPU free. As all of a set wait
    for the same, an order among them can close no circle.

    Returns: indices of nodes, shape ``(n_pairs, 2)``: the second runs after the first, in the order of the file.
    """
    own = np.array([kind == "cpu" for kind, _ in recording.lanes], np.bool_)
    receives = np.array([what.operation == "recv" for what in recording.communications] + [False], np.bool_)
    nodes = np.flatnonzero(own[recording.nodes["lane"]] & ~receives[recording.nodes["communication"]])
    if not len(nodes):
        return np.zeros((0, 2), np.int64)
    waits: dict[int, set[tuple[int, bool]]] = {}
    for before, after, on_start in recording.edges.tolist():
        waits.setdefault(after, set()).add((before, on_start))
    last: dict[tuple[int, frozenset[tuple[int, bool]]], int] = {}
    pairs = []
    for node, lane in zip(nodes.tolist(), recording.nodes["lane"][nodes].tolist(), strict=True):
        key = (lane, frozenset(waits.get(node, ())))
        before = last.get(key, NONE)
        if before != NONE:
            pairs.append((before, node))
        last[key] = node
    return np.array(pairs, np.int64).reshape(-1, 2)


def _unknown(nodes: NDArray[np.void]) -> int:
    return int(np.count_nonzero((nodes["duration"] == NONE) & np.isin(nodes["kind"], (COMPUTE, COPY, HOST))))


def _marked_steps(recording: Recording) -> NDArray[np.int64]:
    """Find what begins and ends each step where only waits tell: step n lies between the n-th and the next."""
    waits, numbers = np.flatnonzero(recording.nodes["kind"] == WAIT), recording.steps["number"]
    if np.any((numbers < 1) | (numbers >= len(waits))):
        return np.zeros((0, 2), np.int64)
    return np.stack([waits[numbers - 1], waits[numbers]], axis=1)


class _Timed:
    """Orders the nodes of a recording whose times are known."""

    def __init__(self, recording: Recording) -> None:
        self.names = recording.names
        marks = self._marks(recording)
        nodes = np.concatenate([recording.nodes, marks])
        self.unknown = _unknown(nodes)
        nodes["duration"] = np.maximum(nodes["duration"], 0)
        self.zero = int(nodes["start"].min())
        nodes["start"] -= self.zero
        first = np.lexsort((np.arange(len(nodes)), nodes["start"]))
        place = np.argsort(first)
        self.nodes = nodes[first]
        self.start: NDArray[np.int64] = self.nodes["start"]
        self.end: NDArray[np.int64] = self.start + self.nodes["duration"]
        self.steps = place[len(recording.nodes) :].reshape(-1, 2)
        self.stated = recording.edges.copy()
        self.stated["before"], self.stated["after"] = place[self.stated["before"]], place[self.stated["after"]]
        self.device = np.isin(self.nodes["kind"], DEVICE_KINDS)
        self.inferred = 0

    @staticmethod
    def _marks(recording: Recording) -> NDArray[np.void]:
        """Begin and end of each step as nodes of the host that take no time, and wait for what it has launched."""
        marks = np.zeros(2 * len(recording.steps), NODE)
        launches = np.any(recording.nodes["kind"] == LAUNCH)
        marks["kind"], marks["lane"] = WAIT if launches else HOST, NONE
        marks["name"], marks["communication"] = NONE, NONE
        marks["start"] = np.stack([recording.steps["start"], recording.steps["end"]], axis=1).ravel()
        return marks

    def ordered(self) -> Ordered:
        """Collect the edges of all kinds, and the gaps that they leave."""
        self._untangle()
        stated, waits = self._stated()
        threads = self._by_lane(~self.device & (self.nodes["lane"] != NONE))
        streams = self._by_lane(self.device)
        edges = [stated, self._chain(threads), self._hand_overs(), self._chain(streams), *self._stream_waits()]
        edges.append(self._late_starts(self._bound(edges)))
        before_marks = np.concatenate([np.zeros(0, EDGE), *self._before_marks()])
        marked = np.maximum(self.start, self._bound([before_marks]))[self.steps]
        marks_wait = self.nodes["kind"][before_marks["after"]] == WAIT
        edges.append(before_marks[~marks_wait])
        gaps = np.maximum(self.start - self._bound(edges), 0)
        waits = np.concatenate([waits, before_marks[marks_wait]])
        waits = np.concatenate([waits, self._host_waits(np.union1d(waits["after"], self.steps))])
        self._shorten(waits)
        return Ordered(
            self.nodes,
            np.unique(np.concatenate([*edges, waits])),
            gaps,
            self.steps,
            marked + self.zero,
            self.zero,
            self.inferred,
            self.unknown,
        )

    def _bound(self, edges: Iterable[NDArray[np.void]]) -> NDArray[np.int64]:
        """When the last of what each node waits for had ended, or begun where that is enough."""
        bound = np.zeros(len(self.nodes), np.int64)
        for some in edges:
            ends = np.where(some["on_start"], self.start[some["before"]], self.end[some["before"]])
            np.maximum.at(bound, some["after"], ends)
        return bound

    def _untangle(self) -> None:
        """Let a node of a stream end when the next one begins, where rounding makes them overlap a little."""
        place = self._by_lane(self.device)
        early, late = place[:-1], place[1:]
        over = self.end[early] - self.start[late]
        little = (self.nodes["lane"][early] == self.nodes["lane"][late]) & (over > 0) & (over <= CLOSE)
        self.nodes["duration"][early[little]] -= np.minimum(over, self.nodes["duration"][early])[little]
        self.end = self.start + self.nodes["duration"]

    def _by_lane(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Nodes lane by lane, each in the order of its starts."""
        place = np.flatnonzero(chosen)
        return place[np.argsort(self.nodes["lane"][place], kind="stable")]

    def _stated(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Dependencies in the file: those before a start, and those that end a wait of the host.

        Work may begin before the call that launches it has returned.
        """
        edges = self.stated
        before: NDArray[np.int64] = edges["before"]
        after: NDArray[np.int64] = edges["after"]
        ends_wait = self.device[before] & (self.nodes["kind"][after] == WAIT)
        launches = self.nodes["kind"][before] == LAUNCH
        edges["on_start"] |= launches & (self.start[after] < self.end[before])
        return edges[~ends_wait], edges[ends_wait]

    def _chain(self, place: NDArray[np.int64]) -> NDArray[np.void]:
        """Let each node follow the one before it in its lane."""
        early, late = place[:-1], place[1:]
        same = self.nodes["lane"][early] == self.nodes["lane"][late]
        before, after = early[same], late[same]
        return edges_of(before, after, on_start=self.start[after] < self.end[before])

    def _hand_overs(self) -> NDArray[np.void]:
        """Let each call of the host follow the call of any thread that had ended last when it began."""
        host = np.flatnonzero(~self.device)
        calls = np.setdiff1d(host, self.steps)  # a mark waits for the device, which the host does not
        by_end = calls[np.lexsort((calls, self.end[calls]))]
        if not len(calls):
            return np.zeros(0, EDGE)
        place = np.searchsorted(self.end[by_end], self.start[host], "right") - 1
        # What takes no time would follow itself, or one that begins with it and comes later.
        while np.any(later := (place >= 0) & (by_end[place] >= host)):
            place[later] -= 1
        found = place >= 0
        return edges_of(by_end[place[found]], host[found])

    def _before_marks(self) -> Iterator[NDArray[np.void]]:
        """Let what begins and ends a step wait for the last node of each stream that was launched, or began, before."""
        marks = self.steps.ravel()
        begun = np.where(self.launched == _NEVER, self.start, self.launched)
        for lane in self.lanes:
            place = np.searchsorted(np.maximum.accumulate(begun[lane]), self.start[marks])
            yield edges_of(lane[place[place > 0] - 1], marks[place > 0])

    def _named(self, names: Sequence[str]) -> NDArray[np.bool_]:
        known = np.array([*(name.startswith(tuple(names)) for name in self.names), False])  # NONE is the last
        chosen: NDArray[np.bool_] = known[self.nodes["name"]]
        return chosen

    @cached_property
    def launches(self) -> NDArray[np.void]:
        """Edges from calls of the host to what they launch."""
        kind: NDArray[np.int64] = self.nodes["kind"][self.stated["before"]]
        edges: NDArray[np.void] = self.stated[kind == LAUNCH]
        return edges

    @cached_property
    def launched(self) -> NDArray[np.int64]:
        """When each node of a device had been launched; before all times if that was not captured."""
        launched = np.full(len(self.nodes), _NEVER)
        launched[self.launches["after"]] = self.start[self.launches["before"]]
        return launched

    @cached_property
    def lanes(self) -> list[NDArray[np.int64]]:
        """Nodes of each stream in order."""
        place = self._by_lane(self.device)
        return np.split(place, np.flatnonzero(np.diff(self.nodes["lane"][place])) + 1) if len(place) else []

    def _last(
        self,
        lane: NDArray[np.int64],
        launched: NDArray[np.int64],
        ended: NDArray[np.int64],
        before: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Find the last node of a stream that had been launched and had ended by some times, or NONE.

        If given, it began before these nodes, too: times agree to `CLOSE` only, and no circle may come of that.
        """
        launches = np.maximum.accumulate(self.launched[lane])
        ends = np.maximum.accumulate(self.end[lane])
        place = np.minimum(np.searchsorted(launches, launched), np.searchsorted(ends, ended + CLOSE, "right"))
        if before is not None:
            place = np.minimum(place, np.searchsorted(lane, before))
        return np.where(place > 0, lane[place - 1], NONE)

    def _launched_beside(self, calls: NDArray[np.int64], offset: int) -> NDArray[np.int64]:
        """Find the device's node that the thread of each call launches next (0) or has launched last (-1), or NONE."""
        edges = self.launches
        lanes, before = self.nodes["lane"][edges["before"]].astype(np.int64), edges["before"]
        rank = np.lexsort((before, lanes))
        key = lanes[rank] * len(self.nodes) + before[rank]
        wanted = self.nodes["lane"][calls].astype(np.int64) * len(self.nodes) + calls
        place = np.searchsorted(key, wanted) + offset
        inside = (place >= 0) & (place < len(key))
        inside[inside] = lanes[rank][place[inside]] == self.nodes["lane"][calls[inside]]
        found = np.full(len(calls), NONE)
        found[inside] = edges["after"][rank][place[inside]]
        return found

    def _stream_waits(self) -> Iterator[NDArray[np.void]]:
        """Let a stream that was told to wait go on after what had been launched on the others and had ended."""
        calls = np.flatnonzero(self._named(_STREAM_WAITS))
        waiting = self._launched_beside(calls, 0)
        calls, waiting = calls[waiting != NONE], waiting[waiting != NONE]
        for lane in self.lanes:
            other = self.nodes["lane"][waiting] != self.nodes["lane"][lane[0]]
            found = self._last(lane, self.start[calls[other]], self.start[waiting[other]], waiting[other])
            yield edges_of(found[found != NONE], waiting[other][found != NONE])

    def _late_starts(self, bound: NDArray[np.int64]) -> NDArray[np.void]:
        """Let a node that began late, and just when one of another stream had ended, wait for that one."""
        late = np.flatnonzero(self.device & (self.start - bound > 2 * CLOSE))
        best = np.full(len(late), NONE)
        for lane in self.lanes:
            found = self._last(lane, self.start[late], self.start[late], late)
            better = (found != NONE) & (self.nodes["lane"][late] != self.nodes["lane"][lane[0]])
            better &= (best == NONE) | (self.end[found] > self.end[best])
            best[better] = found[better]
        close = (best != NONE) & (np.abs(self.start[late] - self.end[best]) <= CLOSE)
        self.inferred = int(np.count_nonzero(close))
        return edges_of(best[close], late[close])

    def _host_waits(self, known: NDArray[np.int64]) -> NDArray[np.void]:
        """Let a call of the host that waits for a device wait for what had been launched.

        One that waits for all of a device waits for all streams. Another that took long waits for the node that ended
        just before it returned; one that did not, or if none did, for the stream of its thread's last launch.
        """
        waits = np.setdiff1d(np.flatnonzero(self.nodes["kind"] == WAIT), known)
        if not len(waits) or not self.lanes:
            return np.zeros(0, EDGE)
        found = np.array([self._last(lane, self.start[waits], self.end[waits]) for lane in self.lanes])
        ends = np.where(found == NONE, np.iinfo(np.int64).min // 2, self.end[found])
        just_before = ends >= self.end[waits] - CLOSE
        long = (self.end[waits] - self.start[waits] > 2 * CLOSE) & just_before.any(axis=0)
        last = self._launched_beside(waits, -1)
        mine = self.nodes["lane"][[lane[0] for lane in self.lanes]][:, None] == self.nodes["lane"][last]
        chosen = np.where(long, ends == ends.max(axis=0), mine & (last != NONE))
        chosen = (chosen | self._named(_DEVICE_WAITS)[waits]) & (found != NONE)
        lane, place = np.nonzero(chosen)
        return edges_of(found[lane, place], waits[place])

    def _shorten(self, waits: NDArray[np.void]) -> None:
        """Leave of a wait what it takes to return once the device is done."""
        begun = self.start.copy()
        np.maximum.at(begun, waits["after"], self.end[waits["before"]])
        waiting = self.nodes["kind"] == WAIT
        self.nodes["duration"][waiting] = np.maximum(self.end - begun, 0)[waiting]
