"""The compiled world: all tables of the flow engine, what is posted to it, and the call into the kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.kernels.flows import cancel
from fabricsim.engine.flow.kernels.main_loop import advance
from fabricsim.engine.flow.outages import Outages
from fabricsim.engine.program.dispatch import COMPLETIONS, HORIZON, IDLE, JOB_DONE, LANES
from fabricsim.engine.program.lane import MESSAGE as MESSAGE_EVENT
from fabricsim.engine.program.lane import OP_START
from fabricsim.engine.program.queue import next_time, post
from fabricsim.errors import SimulationError
from fabricsim.records.program import CLOCK_END, NEVER, NONE

_LONGEST_OP = 10**18  # ps (11 days); with CLOCK_END it stays below the largest int64


@dataclass(frozen=True)
class ProgramPlace:
    """Place of a program in the tables."""

    number: int
    first_op: int
    ops: int
    first_edge: int
    edges: int
    first_call: int
    calls: int


@dataclass(frozen=True)
class Batch:
    """Messages from outside that are counted together: the job that counts them, and their numbers."""

    job: int
    messages: tuple[int, ...]


def past_the_clock() -> SimulationError:
    """Make what an engine raises that has something to do after the end of the clock."""
    return SimulationError(
        "simulated time runs past 92 days, the end of the clock: a rate is too small or a time too long"
    )


class World(Outages):
    """One simulated fabric.

    `capacities`: of the resources, units per second.
    `taps`: resources whose payload rate is recorded over time.
    Raises SimulationError if a capacity is not above 0.
    """

    def __init__(self, capacities: Sequence[float], taps: Sequence[int]) -> None:
        super().__init__(capacities, taps)
        self._free_jobs: list[int] = []
        self._free_messages: list[int] = []

    # ---- what is posted -------------------------------------------------------------------------

    def post_message(self, now: int, route: int, size: int, weight: float, delay: int) -> int:
        """Send a message from outside.

        `now`, `delay`: its first byte leaves at ``now + delay`` ps.
        `route`: index into the routes.
        `size`: bytes.
        `weight`: share of a contended resource relative to other messages.
        Returns: the number under which it will be in the outbox.
        """
        (message,) = self._take_messages(1)
        self.messages[message] = (route, weight, size, NONE, 0)
        post(self, now + delay, MESSAGE_EVENT, message, 0)
        return message

    def _take_messages(self, count: int) -> list[int]:
        """Numbers of messages, free ones first; their records are those of whoever had them."""
        reused = [self._free_messages.pop() for _ in range(min(count, len(self._free_messages)))]
        first = self.used["messages"]
        self.used["messages"] += count - len(reused)
        self.reserve("messages", self.used["messages"])
        self.reserve_flows()
        self.reserve_events()
        return [*reused, *range(first, self.used["messages"])]

    def cancel_message(self, now: int, message: int) -> None:
        """Send nothing more of a message; what has left by `now` (ps) arrives."""
        cancel(self, now, message)

    def free_message(self, message: int) -> None:
        """Forget a delivered message."""
        self._free_messages.append(message)

    def post_batch(self, starts: NDArray[np.int64], routes: Sequence[int], sizes: NDArray[np.int64]) -> Batch:
        """Send messages at given times, which nobody reacts to before the last is there.

        `starts`: when each first byte leaves, ps, not before now.
        `routes`, `sizes`: of each message; bytes.
        """
        job = self._take_job(0, 0, 0).number
        self.jobs[job] = (len(starts), 0)
        messages = self._take_messages(len(starts))
        columns = {"route": routes, "weight": 1.0, "bytes": sizes, "batch": job, "ended": 0}
        for column, values in columns.items():
            self.messages[column][messages] = values
        for start, message in zip(starts.tolist(), messages, strict=True):
            post(self, start, MESSAGE_EVENT, message, 0)
        return Batch(job, tuple(messages))

    def free_batch(self, batch: Batch) -> None:
        """Forget a batch that is done."""
        self._free_messages.extend(batch.messages)
        self._free_jobs.append(batch.job)

    def post_job(
        self, now: int, ops: NDArray[np.void], successors: NDArray[np.int64], calls: NDArray[np.void]
    ) -> ProgramPlace:
        """Start a program: its ops without predecessors become ready now.

        `now`: time, ps.
        `ops`, `successors`, `calls`: ``OP`` records, their edges as in `fabricsim.workload.program.Program`, and
            ``CALL`` records with ``first_lane`` NONE.
        Raises SimulationError if an op takes longer than the clock can tell.
        """
        longest = int(ops["duration"].max(initial=0))
        if longest > _LONGEST_OP:
            msg = f"an operation of {longest / 1e12:.3g} s is longer than the clock can tell: 11 days at most"
            raise SimulationError(msg)
        job = self._take_job(len(ops), len(successors), len(calls))
        here = slice(job.first_op, job.first_op + job.ops)
        table = self.ops
        table[here] = ops
        table["first_successor"][here] += job.first_edge
        table["call"][here] += np.where(ops["call"] >= 0, job.first_call, 0).astype(np.int32)
        self.spans[here] = np.zeros(1, self.spans.dtype)
        self.job_of_op[here] = job.number
        self.successors[job.first_edge : job.first_edge + job.edges] = successors + job.first_op
        self.calls[job.first_call : job.first_call + job.calls] = calls
        self.jobs[job.number] = (job.ops, 0)
        for op in np.flatnonzero(ops["predecessors"] == 0).tolist():
            post(self, now, OP_START, job.first_op + op, 0)
        return job

    def _take_job(self, ops: int, edges: int, calls: int) -> ProgramPlace:
        job = ProgramPlace(
            self._free_jobs.pop() if self._free_jobs else self.used["jobs"],
            self.op_arena.take(ops),
            ops,
            self.edge_arena.take(edges),
            edges,
            self.call_arena.take(calls),
            calls,
        )
        self.used["jobs"] = max(self.used["jobs"], job.number + 1)
        for name in ("ops", "spans", "job_of_op"):
            self.reserve(name, self.op_arena.size)
        self.reserve("successors", self.edge_arena.size)
        self.reserve("calls", self.call_arena.size)
        self.reserve("jobs", self.used["jobs"])
        self.reserve_events()
        return job

    def free_job(self, job: ProgramPlace) -> None:
        """Give the tables of a finished program back."""
        self.op_arena.give_back(job.first_op, job.ops)
        self.edge_arena.give_back(job.first_edge, job.edges)
        self.call_arena.give_back(job.first_call, job.calls)
        self._free_jobs.append(job.number)

    # ---- the kernel -----------------------------------------------------------------------------

    def explain(self) -> str | None:
        """Say why nothing can happen any more, where the network is to blame: never if it is a fluid."""
        return None

    def advance(self, horizon: int, budget: int) -> int:
        """Run the kernel until it stops for something other than a lack of lanes, or than what happens to the fabric.

        `horizon`: nothing after this time (ps) is done.
        `budget`: number of events after which it pauses.
        Returns: ``IDLE``, ``HORIZON``, ``COMPLETIONS`` or ``PAUSED`` of `fabricsim.engine.program.dispatch`.
            COMPLETIONS may also mean that `take_failed` has something.
        Raises SimulationError if simulated time runs past the end of the clock.
        """
        self.reserve_outbox()
        if self.intact() and not self._failed:
            return self.run(horizon, budget)
        while not self._failed:
            code = self.run(min(horizon, self._next_event() - 1), budget)
            due = self._next_event()
            if code == IDLE and due < NEVER:
                code = HORIZON
            if code != HORIZON or due > horizon:
                return code
            self.act(max(due, int(self.world["now"][0])))
        return COMPLETIONS

    def _next_event(self) -> int:
        """When something happens to the fabric next, ps; NEVER if nothing does, or nobody would notice."""
        due = self.due()
        return NEVER if due == NEVER or (self.moves_at() == NEVER and self.world["active"][0] == 0) else due

    def run(self, horizon: int, budget: int) -> int:
        """Run the kernel on a fabric to which nothing happens; as `advance`."""
        while True:
            code = int(advance(min(horizon, CLOCK_END), budget, self))
            if code == LANES:
                self.grow_calls()
            elif code == HORIZON and horizon > CLOCK_END:
                raise past_the_clock()
            else:
                return code

    def moves_at(self) -> int:
        """When something moves next, ps; NEVER if nothing does."""
        return min(int(next_time(self)), int(self.tree[1]))

    def next_time(self) -> int:
        """When something happens next, ps; NEVER if nothing does."""
        return self.moves_at() if self.intact() else min(self.moves_at(), self._next_event())

    def fetch(self) -> list[tuple[bool, int]]:
        """Empty the outbox: for each completion whether it is a job, and its number."""
        count = int(self.world[0]["outbox"])
        self.world[0]["outbox"] = 0
        return [(kind == JOB_DONE, number) for kind, number in self.outbox[:count].tolist()]
