"""Who waits for what in a world: events of processes, and what these are told when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import SimulationError
from fabricsim.records.program import CALL, SPAN
from fabricsim.scenario.suggest import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import simpy
    from numpy.typing import NDArray

    from fabricsim.engine.flow.outages import Failed
    from fabricsim.engine.flow.world import Batch, ProgramPlace, World

_MOST_NAMED = 8  # ranks of a message


@dataclass(frozen=True, eq=False)
class Replay:
    """A replayed program.

    Attributes
    ----------
    start, end
        When it was posted and when its last op was done, ps.
    spans
        ``SPAN`` records, one per op, ps since the environment's zero.
    calls
        ``CALL`` records, one per collective call, with the times at which its last rank joined and
        was done.
    """

    start: int
    end: int
    spans: NDArray[np.void]
    calls: NDArray[np.void]


@dataclass(frozen=True)
class _Waiting:
    event: simpy.Event
    posted: int
    job: ProgramPlace | None = None
    elapsed: bool = True


class Completions:
    """The events that processes wait for, by the job, message or batch of a world that ends them.

    Parameters
    ----------
    world
        Whose outbox tells what is done.
    unit
        Picoseconds per unit of the environment's time.
    """

    def __init__(self, world: World, unit: int) -> None:
        self._world, self._unit = world, unit
        self._jobs: dict[int, _Waiting] = {}
        self._messages: dict[int, _Waiting] = {}
        self._batches: dict[int, tuple[simpy.Event, Batch, NDArray[np.int64]]] = {}

    def await_message(self, message: int, event: simpy.Event, posted: int) -> None:
        """Have `event` succeed when a message is delivered, with the time since `posted` (ps) in units."""
        self._messages[message] = _Waiting(event, posted)

    def await_batch(self, batch: Batch, event: simpy.Event, starts: NDArray[np.int64]) -> None:
        """Have `event` succeed when all messages are delivered, with the time of each since its start (ps), ps."""
        self._batches[batch.job] = (event, batch, starts)

    def await_job(self, job: ProgramPlace, event: simpy.Event, posted: int, *, elapsed: bool) -> None:
        """Have `event` succeed when a job is done: with the time since `posted` (ps) in units, or with a `Replay`."""
        self._jobs[job.number] = _Waiting(event, posted, job, elapsed=elapsed)

    def deliver(self, now: int) -> None:
        """Let those events succeed whose job, message or batch is done, at time `now` (ps)."""
        for is_job, number in self._world.fetch():
            if number in self._batches and is_job:
                self._finish_batch(number)
            elif is_job:
                self._finish_job(number)
            else:
                self._finish_message(number, now)
        for failed in self._world.take_failed():
            self._fail_some(failed)

    def cancel(self, message: int, now: int) -> None:
        """Have the event of a message fail; nothing more is sent of it after `now` (ps)."""
        self._world.cancel_message(now, message)
        event = self._messages.pop(message).event
        event.defused = True  # who gave it up need not wait for it
        event.fail(SimulationError("the transfer was cancelled"))

    def _finish_message(self, number: int, now: int) -> None:
        waiting = self._messages.pop(number, None)
        self._world.free_message(number)
        if waiting is not None:
            waiting.event.succeed((now - waiting.posted) / self._unit)

    def _finish_batch(self, number: int) -> None:
        event, batch, starts = self._batches.pop(number)
        ended = self._world.messages["ended"][list(batch.messages)]
        self._world.free_batch(batch)
        event.succeed(ended - starts)

    def _finish_job(self, number: int) -> None:
        waiting = self._jobs.pop(number, None)
        if waiting is None or waiting.job is None:
            return
        world, job = self._world, waiting.job
        end = int(world.jobs["ended"][number])
        if waiting.elapsed:
            value: float | Replay = (end - waiting.posted) / self._unit
        else:
            spans = np.array(world.spans[job.first_op : job.first_op + job.ops], SPAN)
            calls = np.array(world.calls[job.first_call : job.first_call + job.calls], CALL)
            value = Replay(waiting.posted, end, spans, calls)
        world.free_job(job)
        waiting.event.succeed(value)

    def fail(self) -> None:
        """Let all that still wait fail: nothing can happen any more."""
        stuck = len(self._jobs) + len(self._messages) + len(self._batches)
        if stuck == 0:
            return
        some = f"{stuck} of all jobs and messages {'is' if stuck == 1 else 'are'}"
        msg = (
            f"nothing can happen any more, yet {some} not done{self._stuck_ranks()}: "
            "they wait for one another, or their rate is too small for the clock"
        )
        msg = self._world.explain() or msg
        self._fail(self._jobs, list(self._jobs), msg)
        self._fail(self._messages, list(self._messages), msg)
        self._fail_batches(list(self._batches), msg)

    def _stuck_ranks(self) -> str:
        """Name the ranks whose operations have not all ended, and how far the first of them is."""
        jobs = [waiting.job for waiting in self._jobs.values() if waiting.job is not None]
        places = [np.arange(job.first_op, job.first_op + job.ops) for job in jobs]
        here = np.concatenate([np.zeros(0, np.int64), *places])
        ranks, done = self._world.ops["rank"][here], self._world.spans["end"][here] > 0
        stuck = np.unique(ranks[~done]).tolist()
        if not stuck:
            return ""
        first = ranks == stuck[0]
        far = f"rank {stuck[0]} has done {np.count_nonzero(done[first])} of {np.count_nonzero(first)} operations"
        return f" (ranks {some_of(list(map(str, stuck)), _MOST_NAMED)}; {far})"

    def _fail_some(self, failed: Failed) -> None:
        """Let those fail whose messages or calls will not be done any more; their rows of the tables stay taken."""
        jobs = [number for number, waiting in self._jobs.items() if waiting.job and self._needs(waiting.job, failed)]
        calls = [
            range(job.first_call, job.first_call + job.calls)
            for job in (self._jobs[number].job for number in jobs)
            if job is not None
        ]
        self._fail(self._jobs, jobs, failed.reason)
        self._fail(self._messages, sorted(failed.messages & self._messages.keys()), failed.reason)
        batches = [
            key for key, (_, batch, _) in self._batches.items() if not failed.messages.isdisjoint(batch.messages)
        ]
        self._fail_batches(batches, failed.reason)
        if failed.ranks:
            self._world.stop_calls(chain.from_iterable(calls))

    def _needs(self, job: ProgramPlace, failed: Failed) -> bool:
        """Whether one of a job's calls has failed, or a rank that has more to do."""
        if any(job.first_call <= call < job.first_call + job.calls for call in failed.calls):
            return True
        here = slice(job.first_op, job.first_op + job.ops)
        left = self._world.ops["rank"][here][self._world.spans["end"][here] == 0]
        return bool(np.isin(left, list(failed.ranks)).any())

    @staticmethod
    def _fail(waiting: dict[int, _Waiting], numbers: Iterable[int], reason: str) -> None:
        for number in numbers:
            waiting.pop(number).event.fail(SimulationError(reason))

    def _fail_batches(self, numbers: Iterable[int], reason: str) -> None:
        for number in sorted(numbers):
            self._batches.pop(number)[0].fail(SimulationError(reason))
