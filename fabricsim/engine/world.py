"""The compiled world: all tables of the flow engine, their growth, and the call into the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.engine.arena import Arena
from fabricsim.kernels.lane import CLASSES, MESSAGE as MESSAGE_EVENT, OP_START
from fabricsim.kernels.queue import post, rehash
from fabricsim.kernels.replay import JOB_DONE, LANES, advance
from fabricsim.tables import (
    BUCKET,
    CALL,
    COMMUNICATOR,
    CONNECTION,
    EVENT,
    FLOW,
    HOP,
    INBOX,
    JOB,
    LANE,
    LEG,
    MESSAGE,
    MODERATION,
    NEVER,
    NONE,
    OP,
    RESOURCE,
    ROUTE,
    SCRIPT,
    SPAN,
    STEP,
    TEMPLATE,
    WORLD,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_TABLES = {
    "moderation": MODERATION,
    "routes": ROUTE,
    "hops": HOP,
    "ops": OP,
    "spans": SPAN,
    "jobs": JOB,
    "calls": CALL,
    "communicators": COMMUNICATOR,
    "templates": TEMPLATE,
    "scripts": SCRIPT,
    "steps": STEP,
    "connections": CONNECTION,
    "messages": MESSAGE,
}
_INDEX_TABLES = ("successors", "job_of_op", "sources")
_WINDOW = 2
"""Messages that a sender may be ahead of its receiver: NCCL's 8 buffer steps hold two chunks of 4."""
_SERIES_BINS = 1024
_FIRST_BIN = 1_000_000  # ps; the engine doubles it as the run grows longer


def _table(length: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    # Records with attribute access, so that the kernels' source also runs uncompiled.
    return np.zeros(length, dtype).view(np.recarray)


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 1).bit_length()


class World:
    """Tables of one simulated fabric.

    Parameters
    ----------
    capacities
        Of the resources, units per second.
    taps
        Resources whose payload rate is recorded over time.
    """

    def __init__(self, capacities: Sequence[float], taps: Sequence[int]) -> None:
        self.world = _table(1, WORLD)
        self.world[0].bin = _FIRST_BIN
        self.world[0].window = _WINDOW
        self.world[0].inboxes = 1
        self.resources = _table(len(capacities), RESOURCE)
        self.resources["capacity"] = capacities
        self.resources["first"] = NONE
        self.resources["tap"] = NONE
        self.resources["tap"][list(taps)] = np.arange(len(taps))
        self.series = np.zeros((len(taps), _SERIES_BINS))
        self.heap = np.zeros(len(capacities), np.int32)
        self.touched = np.zeros(len(capacities), np.int32)
        self.tables = {name: _table(16, dtype) for name, dtype in _TABLES.items()}
        self.indices = {name: np.zeros(16, np.int64) for name in _INDEX_TABLES}
        self.used = dict.fromkeys((*_TABLES, *_INDEX_TABLES), 0)
        self.op_arena, self.edge_arena, self.call_arena = Arena(), Arena(), Arena()
        self.free_blocks = np.full(CLASSES, NONE, np.int64)
        self.lanes = _table(16, LANE)
        self.inboxes = _table(16, INBOX)
        self.flows = _table(0, FLOW)
        self.legs = _table(0, LEG)
        self.tree = np.full(2, NEVER, np.int64)
        self.begun = self.members = np.zeros(0, np.int32)
        self.events = _table(0, EVENT)
        self.buckets = _table(0, BUCKET)
        self.outbox = np.zeros((16, 2), np.int64)
        self._width = 1
        self._free_jobs: list[int] = []
        self._free_messages: list[int] = []
        self.world[0].free_flow = self.world[0].free_event = self.world[0].free_bucket = NONE
        self._reserve_flows()
        self._reserve_events()

    # ---- growth ---------------------------------------------------------------------------------

    def reserve(self, name: str, length: int) -> None:
        """Make a table at least `length` long, keeping what is in it."""
        store = self.tables if name in self.tables else self.indices
        table = store[name]
        if length > len(table):
            grown = np.zeros(_power_of_two(length), table.dtype)
            grown[: len(table)] = table
            store[name] = grown.view(np.recarray) if table.dtype.names else grown

    def extend(self, name: str, rows: NDArray[np.void] | NDArray[np.int64]) -> int:
        """Append rows to a table; returns the index of the first."""
        first = self.used[name]
        self.used[name] = first + len(rows)
        self.reserve(name, self.used[name])
        (self.tables if name in self.tables else self.indices)[name][first : self.used[name]] = rows
        return first

    def _reserve_flows(self) -> None:
        wanted = _power_of_two(len(self.lanes) + len(self.tables["messages"]))
        before = len(self.flows)
        if wanted <= before:
            return
        flows = _table(wanted, FLOW)
        flows[:before] = self.flows
        flows["next_free"][before:] = np.arange(before + 1, wanted + 1)
        flows["next_free"][-1] = self.world[0].free_flow
        self.world[0].free_flow = before
        legs = _table(wanted * self._width, LEG)
        legs[: len(self.legs)] = self.legs
        tree = np.full(2 * wanted, NEVER, np.int64)
        tree[wanted : wanted + before] = self.tree[before:] if before else NEVER
        level = wanted
        while level > 1:
            tree[level // 2 : level] = tree[level : 2 * level].reshape(-1, 2).min(axis=1)
            level //= 2
        self.flows, self.legs, self.tree = flows, legs, tree
        self.begun, self.members = np.zeros(wanted, np.int32), np.zeros(wanted, np.int32)

    def widen(self, hops: int) -> None:
        """Let routes have up to `hops` hops."""
        old, new = self._width, hops
        if new <= old:
            return

        def moved(index: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(index < 0, index, index // old * new + index % old)

        legs = _table(len(self.flows) * new, LEG)
        places = moved(np.arange(len(self.legs), dtype=np.int32))
        legs[places] = self.legs
        legs["previous"][places] = moved(self.legs["previous"])
        legs["next"][places] = moved(self.legs["next"])
        self.resources["first"] = moved(self.resources["first"])
        self.legs, self._width = legs, new

    def _reserve_events(self) -> None:
        # A lane has at most a send, a wake and a resume waiting, and a window of arrivals per inbox;
        # an op has one event at a time, a message too.
        per_lane = 3 + _WINDOW * int(self.world[0].inboxes)
        wanted = _power_of_two(len(self.lanes) * per_lane + len(self.tables["ops"]) + len(self.tables["messages"]) + 2)
        before = len(self.events)
        if wanted <= before:
            return
        events, buckets = _table(wanted, EVENT), _table(wanted, BUCKET)
        events[:before], buckets[:before] = self.events, self.buckets
        events["next"][before:] = np.arange(before + 1, wanted + 1)
        events["next"][-1] = self.world[0].free_event
        self.world[0].free_event = before
        self.events, self.buckets = events, buckets
        rehash(self.world, self.buckets)

    def _reserve_lanes(self, lanes: int, inboxes: int) -> None:
        stride = int(self.world[0].inboxes)
        if lanes <= len(self.lanes) and inboxes <= stride:
            return
        grown = _table(max(lanes, len(self.lanes)), LANE)
        grown[: len(self.lanes)] = self.lanes
        boxes = _table(len(grown) * max(inboxes, stride), INBOX)
        boxes.reshape(len(grown), -1)[: len(self.lanes), :stride] = self.inboxes.reshape(len(self.lanes), stride)
        self.lanes, self.inboxes = grown, boxes
        self.world[0].inboxes = max(inboxes, stride)

    def reserve_inboxes(self, inboxes: int) -> None:
        """Let members have up to `inboxes` incoming connections."""
        self._reserve_lanes(len(self.lanes), inboxes)

    # ---- what is posted -------------------------------------------------------------------------

    def post_message(self, now: int, route: int, size: int, weight: float, delay: int) -> int:
        """Send a message from outside; returns the number under which it will be in the outbox."""
        if self._free_messages:
            message = self._free_messages.pop()
        else:
            message = self.used["messages"]
            self.used["messages"] += 1
            self.reserve("messages", message + 1)
        row = self.tables["messages"][message]
        row.route, row.bytes, row.weight = route, size, weight
        self._reserve_flows()
        self._reserve_events()
        post(self.world, self.events, self.buckets, now + delay, MESSAGE_EVENT, message, 0)
        return message

    def free_message(self, message: int) -> None:
        """Forget a delivered message."""
        self._free_messages.append(message)

    def post_job(self, now: int, ops: NDArray[np.void], successors: NDArray[np.int64], calls: NDArray[np.void]) -> Job:
        """Start a program: its ops without predecessors become ready now."""
        job = Job(
            self._free_jobs.pop() if self._free_jobs else self.used["jobs"],
            self.op_arena.take(len(ops)),
            len(ops),
            self.edge_arena.take(len(successors)),
            len(successors),
            self.call_arena.take(len(calls)),
            len(calls),
        )
        self.used["jobs"] = max(self.used["jobs"], job.number + 1)
        for name in ("ops", "spans", "job_of_op"):
            self.reserve(name, self.op_arena.size)
        self.reserve("successors", self.edge_arena.size)
        self.reserve("calls", self.call_arena.size)
        self.reserve("jobs", self.used["jobs"])
        here = slice(job.first_op, job.first_op + job.ops)
        table = self.tables["ops"]
        table[here] = ops
        table["first_successor"][here] += job.first_edge
        table["call"][here] += np.where(ops["call"] >= 0, job.first_call, 0)
        self.tables["spans"][here] = 0
        self.indices["job_of_op"][here] = job.number
        self.indices["successors"][job.first_edge : job.first_edge + job.edges] = successors + job.first_op
        self.tables["calls"][job.first_call : job.first_call + job.calls] = calls
        self.tables["jobs"][job.number].open_ops = job.ops
        self._reserve_events()
        for op in np.flatnonzero(ops["predecessors"] == 0):
            post(self.world, self.events, self.buckets, now, OP_START, job.first_op + int(op), 0)
        return job

    def free_job(self, job: Job) -> None:
        """Give the tables of a finished program back."""
        self.op_arena.give_back(job.first_op, job.ops)
        self.edge_arena.give_back(job.first_edge, job.edges)
        self.call_arena.give_back(job.first_call, job.calls)
        self._free_jobs.append(job.number)

    # ---- the kernel -----------------------------------------------------------------------------

    def advance(self, horizon: int, budget: int) -> int:
        """Run the kernel until it stops for something other than a lack of lanes.

        Returns
        -------
        int
            ``IDLE``, ``HORIZON``, ``COMPLETIONS`` or ``PAUSED`` of `fabricsim.kernels.replay`.
        """
        room = self.used["jobs"] + self.used["messages"]
        if len(self.outbox) < room:
            self.outbox = np.zeros((2 * room, 2), np.int64)
        while True:
            code = int(advance(horizon, budget, *self._arguments()))
            if code != LANES:
                return code
            self._reserve_lanes(2 * len(self.lanes), 1)
            self._reserve_flows()
            self._reserve_events()

    def fetch(self) -> list[tuple[bool, int]]:
        """Empty the outbox: for each completion whether it is a job, and its number."""
        count = int(self.world[0].outbox)
        self.world[0].outbox = 0
        return [(int(kind) == JOB_DONE, int(number)) for kind, number in self.outbox[:count]]

    def _arguments(self) -> tuple[NDArray[np.generic], ...]:
        tables, indices = self.tables, self.indices
        return (
            self.world,
            self.resources,
            tables["routes"],
            tables["hops"],
            tables["moderation"],
            self.flows,
            self.legs,
            self.tree,
            self.series,
            self.begun,
            self.touched,
            self.members,
            self.heap,
            self.events,
            self.buckets,
            tables["ops"],
            tables["spans"],
            indices["successors"],
            tables["jobs"],
            indices["job_of_op"],
            tables["calls"],
            tables["communicators"],
            tables["templates"],
            tables["scripts"],
            tables["steps"],
            tables["connections"],
            indices["sources"],
            self.lanes,
            self.inboxes,
            self.free_blocks,
            tables["messages"],
            self.outbox,
        )


class Job:
    """Where a program lies in the tables."""

    def __init__(
        self, number: int, first_op: int, ops: int, first_edge: int, edges: int, first_call: int, calls: int
    ) -> None:
        self.number = number
        self.first_op, self.ops = first_op, ops
        self.first_edge, self.edges = first_edge, edges
        self.first_call, self.calls = first_call, calls
