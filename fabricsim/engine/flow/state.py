"""All tables of the flow engine and their growth."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.arena import Arena
from fabricsim.engine.program.lane import CLASSES, LACKS_LANES
from fabricsim.engine.program.queue import rehash
from fabricsim.engine.program.simulation import Simulation
from fabricsim.errors import SimulationError
from fabricsim.records import program as t
from fabricsim.records.program import NEVER, NONE, SLOWDOWN_BINS
from fabricsim.topology.resources import unusable

_FIRST_BIN = 1_000_000  # ps; the engine doubles it as the run grows longer
_CACHE_LINE = 64  # bytes
_MOST_ROWS = 2**31 - 1  # records refer to one another by 32-bit indices


def table(length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a zeroed plain array whose elements have attributes.

    So the kernels' source also runs uncompiled. A ``recarray`` would do so as well, but costs
    microseconds at each call into a kernel.
    """
    if length > _MOST_ROWS:
        msg = f"the run needs a table of {length} rows; at most {_MOST_ROWS} can be numbered: simulate less at once"
        raise SimulationError(msg)
    # On a line of the cache: records are laid out so that what is needed together lies on the same lines.
    memory = np.zeros(length * dtype.itemsize + _CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % _CACHE_LINE
    return np.ndarray(length, np.dtype((np.record, dtype)) if dtype.names else dtype, memory, first)


def power_of_two(count: int) -> int:
    """Return the least power of two that is at least `count` and 2."""
    return 1 << max(count - 1, 1).bit_length()


class State(Simulation):
    """Tables of one simulated fabric.

    Of what is posted, ``used`` rows of each table are filled; those of flows, events, lanes and
    inboxes are long enough for whatever may be in flight at once.
    """

    def __init__(self, capacities: Sequence[float], taps: Sequence[int]) -> None:
        for number in unusable(capacities):
            raise SimulationError(f"resource {number} has a capacity of {capacities[number]}: it must be above 0")
        super().__init__()
        self.world = table(1, t.WORLD)
        self.world["bin"] = _FIRST_BIN
        self._window = 1
        self.resources = table(len(capacities), t.RESOURCE)
        self.resources["capacity"] = self.resources["residual"] = np.array(capacities)
        self.resources["settled"] = np.inf
        self.resources["first"] = NONE
        self.tap(taps)
        self.heap = table(len(capacities), t.HEAP)
        self.touched = np.zeros(len(capacities), np.int32)
        self.moderation, self.routes, self.hops = table(16, t.MODERATION), table(16, t.ROUTE), table(16, t.HOP)
        self.ops, self.spans, self.jobs = table(16, t.OP), table(16, t.SPAN), table(16, t.JOB)
        self.successors, self.job_of_op, self.sources = (table(16, np.dtype(np.int64)) for _ in range(3))
        self.calls, self.communicators = table(16, t.CALL), table(16, t.COMMUNICATOR)
        self.scripts, self.steps, self.connections = table(16, t.SCRIPT), table(16, t.STEP), table(16, t.CONNECTION)
        self.messages, self.templates = table(16, t.MESSAGE), table(16, t.TEMPLATE)
        self.used: Counter[str] = Counter()
        self.op_arena, self.edge_arena, self.call_arena = Arena(), Arena(), Arena()
        self.free_blocks = np.full(2 * CLASSES, NONE, np.int64)
        self.lanes, self.inboxes = table(16, t.LANE), table(16, t.INBOX)
        self.flows, self.legs = table(0, t.FLOW), table(0, t.LEG)
        self.tree = np.full(2, NEVER, np.int64)
        self.begun = self.members = np.zeros(0, np.int32)
        self.events, self.buckets = table(0, t.EVENT), table(0, t.BUCKET)
        self.outbox = table(16, t.COMPLETION)
        self.slowdowns = np.zeros(SLOWDOWN_BINS, np.int64)
        self._width = 1
        self.world["free_flow"] = self.world["free_event"] = self.world["free_bucket"] = NONE
        self.reserve_flows()
        self.reserve_events()

    def tap(self, taps: Sequence[int]) -> None:
        """Record the payload rate of these resources, and of no others."""
        self.resources["tap"] = NONE
        self.resources["tap"][list(taps)] = np.arange(len(taps))
        self.series = table(len(taps), t.SERIES)

    def reserve(self, name: str, length: int) -> None:
        """Make a table at least `length` long, keeping what is in it."""
        rows = getattr(self, name)
        if length > len(rows):
            grown = table(power_of_two(length), self.TABLES[name])
            grown[: len(rows)] = rows
            setattr(self, name, grown)

    def extend(self, name: str, rows: Sequence[Any] | NDArray[Any]) -> int:
        """Append rows to a table; returns the index of the first.

        `rows`: records, tuples of all their columns, or integers for a table of indices.
        """
        first, end = self.used[name], self.used[name] + len(rows)
        self.used[name] = end
        self.reserve(name, end)
        getattr(self, name)[first:end] = rows if isinstance(rows, np.ndarray) else list(rows)
        return first

    def reserve_flows(self) -> None:
        """Have a flow for each connection of a lane and each message: neither has more than one in transfer."""
        wanted = power_of_two(len(self.inboxes) + len(self.messages))
        before = len(self.flows)
        if wanted <= before:
            return
        self.reserve("flows", wanted)
        self.flows["owner"][before:] = NONE
        self.flows["next_free"][before:] = np.arange(before + 1, wanted + 1)
        self.flows["next_free"][-1] = self.world["free_flow"][0]
        self.world["free_flow"] = before
        tree = np.full(2 * wanted, NEVER, np.int64)
        tree[wanted : wanted + before] = self.tree[before:] if before else NEVER
        level = wanted
        while level > 1:
            tree[level // 2 : level] = tree[level : 2 * level].reshape(-1, 2).min(axis=1)
            level //= 2
        legs = table(wanted * self._width, t.LEG)
        legs[: len(self.legs)] = self.legs
        self.legs, self.tree = legs, tree
        self.reserve("begun", wanted)  # keeping what is in it: a lack of lanes shows in the middle of an instant
        self.members = np.zeros(wanted, np.int32)

    def widen(self, hops: int) -> None:
        """Let routes have up to `hops` hops; flows in transfer keep their places in all lists."""
        old, new = self._width, hops
        if new <= old:
            return

        def moved(index: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(index < 0, index, index // old * new + index % old)

        legs = table(len(self.flows) * new, t.LEG)
        places = moved(np.arange(len(self.legs), dtype=np.int32))
        legs[places] = self.legs
        legs["previous"][places] = moved(self.legs["previous"])
        legs["next"][places] = moved(self.legs["next"])
        self.resources["first"] = moved(self.resources["first"])
        self.flows["first_leg"] = np.arange(len(self.flows)) * new
        self.legs, self._width = legs, new

    def reserve_events(self) -> None:
        """Have an event, and a bucket, for all that can be queued at once.

        An op has one event at a time (its start or its end), and so has a message. A lane has

        - one ``SEND`` or ``REDUCED``, for it does nothing else until the overhead or the reduction is over;
        - one ``RESUME`` of its joining;
        - in each inbox one ``ENTER`` of the message that has its turn, as many ``ARRIVED`` as the sender may be
          ahead, the window, and as many ``RESUME`` of the sender: each is for a message taken, which makes
          room for one more, and at one instant no more can be taken than the window. A call closes
          its lanes when all members have received all, so no arrival outlives its lane.

        Two more keep the bucket that is being emptied, and the event that a lack of lanes puts back.
        """
        in_calls = 2 * len(self.lanes) + (1 + 2 * self._window) * len(self.inboxes)
        posted = len(self.ops) + len(self.messages) + self.more_events()
        wanted = power_of_two(in_calls + posted + 2)
        before = len(self.events)
        if wanted <= before:
            return
        self.reserve("events", wanted)
        self.reserve("buckets", wanted)
        self.events["next"][before:] = np.arange(before + 1, wanted + 1)
        self.events["next"][-1] = self.world["free_event"][0]
        self.world["free_event"] = before
        rehash(self)

    def more_events(self) -> int:
        """Events of other kinds that may be queued at once."""
        return 0

    def reserve_window(self, window: int) -> None:
        """Let connections of calls hold up to `window` messages."""
        if window > self._window:
            self._window = window
            self.reserve_events()

    def grow_calls(self) -> None:
        """Have twice as many lanes or inboxes, whichever the next call lacks, with all that goes with them.

        Each lane has an inbox at least, so that with rings both are there at once.
        """
        if self.world["lacks"][0] == LACKS_LANES:
            self.reserve("lanes", 2 * len(self.lanes))
            self.reserve("inboxes", len(self.lanes))
        else:
            self.reserve("inboxes", 2 * len(self.inboxes))
        self.reserve_flows()
        self.reserve_events()

    def reserve_outbox(self) -> None:
        """Have room for the completion of every job and message: each has one before it is fetched."""
        room = self.used["jobs"] + self.used["messages"]
        if len(self.outbox) < room:
            self.reserve("outbox", 2 * room)
