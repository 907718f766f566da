"""Small captured jobs made by hand, and when their operations would run without a fabric."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import COLLECTIVE
from fabricsim.traces.rebuild.strand import Strand
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    LAUNCH,
    WAIT,
    Communication,
    Recording,
    RecordingBuilder,
    Trace,
)

US = 10**6
"""Picoseconds."""


class Captured:
    """Writes down what one rank did, in microseconds."""

    def __init__(self, source: str = "rank.json") -> None:
        self.builder = RecordingBuilder(source)
        self.thread = self.builder.lane("thread", "thread 1")

    def stream(self, number: int) -> int:
        return self.builder.lane("stream", f"stream {number}")

    def host(self, name: str, start: int, duration: int, *, thread: int | None = None) -> int:
        lane = self.thread if thread is None else thread
        return self.builder.node(HOST, lane, name, start=start * US, duration=duration * US)

    def wait(self, name: str, start: int, duration: int) -> int:
        return self.builder.node(WAIT, self.thread, name, start=start * US, duration=duration * US)

    def launch(self, stream: int, called: int, start: int, duration: int, call: int = 2) -> int:
        """Launch a kernel at `called`, which runs from `start` for `duration`."""
        return self._launched(COMPUTE, stream, called, start, duration, call, None)

    def communicate(self, stream: int, called: int, start: int, duration: int, what: Communication) -> int:
        return self._launched(COMMUNICATION, stream, called, start, duration, 2, what)

    def _launched(  # noqa: PLR0913, PLR0917  columns of a row
        self, kind: int, stream: int, called: int, start: int, duration: int, call: int, what: Communication | None
    ) -> int:
        before = self.builder.node(LAUNCH, self.thread, "cudaLaunchKernel", start=called * US, duration=call * US)
        node = self.builder.node(
            kind, self.stream(stream), "kernel", communication=what, start=start * US, duration=duration * US
        )
        self.builder.edge(before, node)
        return node

    def step(self, number: int, start: int, end: int) -> None:
        self.builder.steps.append((number, start * US, end * US))

    def recording(self, rank: int = 0, world: int = 1, *, origin: int = 0, host: str = "") -> Recording:
        return self.builder.build(rank, world, origin=origin, host=host)


def trace_of(*recordings: Recording, world: int | None = None) -> Trace:
    """Put recordings together, as files of one job."""
    return Trace("kineto", recordings, len(recordings) if world is None else world)


def starts(strand: Strand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each op of a rank starts and ends if all communication takes no time, ps."""
    rows, count = strand.rows, len(strand.rows)
    before: list[list[int]] = [[] for _ in range(count)]
    for first, second in strand.edges.tolist():
        before[second].append(first)
    start, end = np.full(count, -1), np.full(count, -1)

    def visit(op: int) -> int:
        if end[op] < 0:
            start[op] = max((visit(other) for other in before[op]), default=0)
            end[op] = start[op] + (0 if rows[op, 1] == COLLECTIVE else rows[op, 6])
        return int(end[op])

    for op in range(count):
        visit(op)
    return start, end
