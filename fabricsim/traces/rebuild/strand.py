"""The operations of one captured rank as ops of a program, before it is said which rank does them.

::

    node of the trace      ops
    gap before it          a HOST op: work of the host that is not captured, or a device that begins
    COMPUTE, COPY          a COMPUTE op
    COMMUNICATION          a COLLECTIVE op for each call that makes it up
    HOST, LAUNCH, WAIT     a HOST op, if it takes time
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.records import program as records
from fabricsim.records.program import CLOCK_END, HOST_STREAM, MAIN_STREAM, NONE, OVERLAPPED_STREAM
from fabricsim.traces.device_libraries import library_of
from fabricsim.traces.rebuild.dependencies import DEVICE_KINDS, Ordered
from fabricsim.traces.rebuild.matching import RankCall
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, OPERATIONS, WAIT, Recording
from fabricsim.workload.program import COLUMNS

TIMERS = ("kernels", "copies", "host", "launch", *OPERATIONS, records.UNMODELLED)
"""Under which the time of captured operations is booked; the last is that of kernels that communicate without NCCL."""

_RANK, _KIND, _STREAM, _TIMER, _CALL, _MEMBER, _DURATION = range(len(COLUMNS))


@dataclass(frozen=True)
class Strand:
    """Ops of one rank.

    `rows`: `fabricsim.workload.program.COLUMNS` of each op, shape ``(n_ops, columns)``; the rank is 0.
    `edges`: pairs of ops, shape ``(n_edges, 2)``.
    `communications`: for each op that communicates its communication, counted within the rank; NONE for others, shape
        ``(n_ops,)``.
    `steps`: ops with which each step begins and ends, shape ``(n_steps, 2)``.
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    communications: NDArray[np.int64]
    steps: NDArray[np.int64]


def strand(
    recording: Recording, ordered: Ordered, parts: Sequence[tuple[RankCall, ...]], *, gpu_speed: float = 1.0
) -> Strand:
    """Write the operations of a rank as ops.

    `parts`: the calls of each communication in order.
    `gpu_speed`: how many times faster kernels and copies run than they were captured.
    """
    return _Spinner(recording, ordered, parts, gpu_speed).strand()


class _Spinner:
    def __init__(
        self, recording: Recording, ordered: Ordered, parts: Sequence[tuple[RankCall, ...]], gpu_speed: float
    ) -> None:
        self.recording = recording
        self.nodes, self.edges, self.gaps = ordered.nodes, ordered.edges, ordered.gaps
        self.marks = ordered.steps
        self.parts = parts
        self.gpu_speed = gpu_speed
        count = len(self.nodes)
        self.communicating = np.flatnonzero(self.nodes["kind"] == COMMUNICATION)
        self.width = np.ones(count, np.int64)
        self.width[self.communicating] = [max(len(some), 1) for some in parts]
        self.gated = self._gated()
        sizes = self.width + self.gated
        self.gate = np.cumsum(sizes) - sizes  # of a node: its gap, or if it has none its first op
        self.body = self.gate + self.gated
        self.count = int(sizes.sum())

    def _gated(self) -> NDArray[np.bool_]:
        """Nodes with an op before them: those with a gap, of several ops, or that others wait for the start of."""
        gated: NDArray[np.bool_] = (self.gaps > 0) | (self.width > 1)
        gated[self.edges["before"][self.edges["on_start"]]] = True
        return gated

    def strand(self) -> Strand:
        """Write rows and edges."""
        rows = np.zeros((self.count, len(COLUMNS)), np.int64)
        rows[:, (_CALL, _MEMBER)] = NONE
        self._bodies(rows)
        gates = self.gate[self.gated]
        on_device = np.isin(self.nodes["kind"], DEVICE_KINDS)[self.gated]
        rows[gates, _KIND] = records.HOST
        rows[gates, _TIMER] = np.where(on_device, TIMERS.index("launch"), TIMERS.index("host"))
        rows[gates, _STREAM] = np.where(on_device, MAIN_STREAM, HOST_STREAM)
        rows[gates, _DURATION] = self.gaps[self.gated]
        communications = self._communications(rows)
        return Strand(rows, self._edges(), communications, self.body[self.marks])

    def _bodies(self, rows: NDArray[np.int64]) -> None:
        kind, duration = self.nodes["kind"], self.nodes["duration"].astype(np.int64)
        names = self.recording.names
        by_name = np.array([*(library_of(name) is not None for name in names), False])  # the last: of none
        foreign = kind == COMPUTE
        foreign[foreign] = by_name[self.nodes["name"][foreign]]
        on_device = np.isin(kind, (COMPUTE, COPY))
        faster = on_device & ~foreign
        duration = np.where(
            faster, np.rint(np.minimum(duration / self.gpu_speed, CLOCK_END)).astype(np.int64), duration
        )
        rows[self.body, _KIND] = np.where(on_device, records.COMPUTE, records.HOST)
        rows[self.body, _STREAM] = np.where(on_device, MAIN_STREAM, HOST_STREAM)
        rows[self.body, _DURATION] = np.where(kind == COMMUNICATION, 0, duration)
        timers = np.full(len(kind), TIMERS.index("host"))
        timers[kind == COMPUTE], timers[kind == COPY] = TIMERS.index("kernels"), TIMERS.index("copies")
        timers[foreign] = TIMERS.index(records.UNMODELLED)
        rows[self.body, _TIMER] = timers

    def _communications(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Fill in the ops that communicate; returns the communication of each op."""
        numbers = np.full(self.count, NONE)
        stream = self._streams()
        whats = self.nodes["communication"][self.communicating].tolist()
        for number, (node, what, some) in enumerate(zip(self.communicating.tolist(), whats, self.parts, strict=True)):
            first = int(self.body[node])
            numbers[first : first + self.width[node]] = number
            timer = TIMERS.index(self.recording.communications[what].operation)
            rows[first, _TIMER] = timer
            for op, (call, member) in enumerate(some, first):
                rows[op, 1:] = (records.COLLECTIVE, stream[node], timer, call, member, 0)
        return numbers

    def _streams(self) -> NDArray[np.int64]:
        """Communication on a stream that computes, too, keeps it from computing; on others it is overlapped."""
        lanes = self.nodes["lane"]
        computing = np.unique(lanes[self.nodes["kind"] == COMPUTE])
        return np.where(np.isin(lanes, computing), MAIN_STREAM, OVERLAPPED_STREAM)

    def _edges(self) -> NDArray[np.int64]:
        """Lead each dependency from the last op of the one to the first op of the other.

        What ends a wait of the host leads to the op behind its gap: that the host comes to wait takes as long as ever.
        """
        before, after = self.edges["before"], self.edges["after"]
        kind = self.nodes["kind"]
        ends_wait = (kind[after] == WAIT) & np.isin(kind[before], DEVICE_KINDS)
        targets = np.where(ends_wait, self.body[after], self.gate[after])
        times = np.where(self.edges["on_start"], 1, self.width[before])
        sources = np.where(self.edges["on_start"], self.gate[before], self.body[before])
        spread = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        between = np.stack([np.repeat(sources, times) + spread, np.repeat(targets, times)], axis=1)
        gated = np.flatnonzero(self.gated)
        times = self.width[gated]
        spread = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        inside = np.stack([np.repeat(self.gate[gated], times), np.repeat(self.body[gated], times) + spread], axis=1)
        return np.concatenate([between, inside])
