"""Where the time of an iteration goes.

Every instant of an iteration belongs to exactly one state of a rank::

    compute    a compute op runs
    exposed    no compute op runs, and a collective moves data; booked under its dimension. Captured kernels that
               communicate, of which nothing more is known, are in a dimension of their own
    waiting    neither, and the rank is in a collective whose other ranks are not ready yet
    host       none of these, and the host works, or a device is about to begin
    idle       none of these

The five add up to the iteration. `waiting` and `idle` together are the bubble. Communication that
moves data while a compute op runs is overlapped: it costs no time and is counted besides.

A replayed trace may have marked several iterations, on each of its ranks. Then `iteration_parts` gives their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import ResultError
from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, MAIN_STREAM, UNMODELLED
from fabricsim.results.result import RunRecord


@dataclass(frozen=True)
class IterationParts:
    """The parts of an iteration, all in ps.

    `compute`: time in which a compute op runs.
    `exposed`: time in which the rank only moves data, by dimension; dimensions in the order in which the program first
        calls them, zero included. A collective on the main stream goes before an overlapped one.
    `waiting`: time in collectives whose last rank is not ready.
    `host`: time in which only its host works, or a device begins.
    `idle`: time outside all ops.
    `overlapped`: time in which data moves behind compute.
    """

    compute: float
    exposed: dict[str, float]
    waiting: float
    host: float
    idle: float
    overlapped: float

    @property
    def bubble(self) -> float:
        """Time in which the rank neither computes nor moves data, ps."""
        return self.waiting + self.idle

    @property
    def exposed_communication(self) -> float:
        """Time in which the rank only moves data, in all dimensions, ps."""
        return sum(self.exposed.values())

    @property
    def iteration(self) -> float:
        """All parts together, ps."""
        return self.compute + self.exposed_communication + self.host + self.bubble

    @classmethod
    def mean(cls, of: Sequence[IterationParts]) -> IterationParts:
        """Take the mean of each part; of one it is that one."""
        if len(of) == 1:
            return of[0]
        names = [field.name for field in fields(cls) if field.name != "exposed"]
        means = {name: sum(getattr(parts, name) for parts in of) / len(of) for name in names}
        exposed = {name: sum(parts.exposed[name] for parts in of) / len(of) for name in of[0].exposed}
        return cls(exposed=exposed, **means)


def rank_count(result: RunRecord) -> int:
    """Ranks that take part in the program of `result`, simulated or not."""
    if result.ranks is not None:
        return result.ranks
    return int(result.ops["rank"].max()) + 1 if len(result.ops) else 0


def simulated_ranks(result: RunRecord) -> list[int]:
    """Ranks of `result` that have been simulated: all, or where it is folded those that stand for all."""
    if result.ranks is None:
        return list(range(rank_count(result)))
    ranks: list[int] = np.unique(result.ops["rank"]).tolist()
    return ranks


def critical_rank(result: RunRecord) -> int:
    """Find the rank that the iteration waits for.

    Returns: the rank whose last op ends last; among equals the one with the most compute, which has the least slack,
        and among those the lowest. 0 if the program is empty.
    """
    ranks = rank_count(result)
    if not ranks:
        return 0
    end = np.zeros(ranks, np.int64)
    np.maximum.at(end, result.ops["rank"], result.spans["end"])
    compute = np.zeros(ranks, np.int64)
    computing = result.ops["kind"] == COMPUTE
    np.add.at(compute, result.ops["rank"][computing], _length(result.spans[computing]))
    return int(np.lexsort((-compute, -end))[0])


def iteration_parts(result: RunRecord) -> IterationParts:
    """Divide the iteration: of a replayed trace the mean of all that it marks, else all of the critical rank.

    Raises ResultError if the run took no time: there is nothing to divide.
    """
    parts = IterationParts.mean([rank_time(result, rank) for rank in marked_ranks(result) or [critical_rank(result)]])
    if parts.iteration <= 0:
        raise ResultError(f"{result.name}: the iteration took no time; the program holds no work")
    return parts


def marked_ranks(result: RunRecord) -> list[int]:
    """Ranks whose iterations a replayed trace has marked, in order; none if there are no marks."""
    return sorted({step.rank for step in result.steps})


def rank_time(result: RunRecord, rank: int) -> IterationParts:
    """Divide the iteration of a rank among compute, exposed communication, waiting, host and idling.

    `result`: the run.
    `rank`: a rank of its program.
    Returns: they add up to the iteration; if a replayed trace marks several of this rank, to their mean.
    """
    windows = [(step.start, step.start + step.replayed) for step in result.steps if step.rank == rank]
    return IterationParts.mean([_window(result, rank, *window) for window in windows or [(0, result.iteration)]])


def _window(result: RunRecord, rank: int, begins: int, ends: int) -> IterationParts:
    """Divide what a rank does from one time to another, ps."""
    mine = (result.ops["rank"] == rank) & (result.spans["end"] > begins) & (result.spans["start"] < ends)
    ops, spans = result.ops[mine], result.spans[mine].copy()
    for side in ("start", "end"):
        np.clip(spans[side], begins, ends, out=spans[side])
    collective = ops["kind"] == COLLECTIVE
    begin = spans["start"].copy()
    begin[collective] = _transfer_start(result, ops["call"][collective], spans[collective])
    place = {dimension: index for index, dimension in enumerate(result.calls.dimensions)}
    of_call = np.array([place[kind.dimension] for kind in result.calls.kinds], np.int64)[result.calls.kind]
    dimension = np.full(len(ops), -1)
    dimension[collective] = of_call[ops["call"][collective]]

    unmodelled = _unmodelled(result.ops, result.timers)
    if unmodelled.any():  # in any rank, so that all have this dimension
        dimension[unmodelled[mine]] = place[UNMODELLED] = len(place)

    edges = np.unique(np.concatenate([spans["start"], begin, spans["end"], [begins, ends]]))
    width = np.diff(edges)
    compute, host = (ops["kind"] == COMPUTE) & ~unmodelled[mine], ops["kind"] == HOST
    computing = _covered(edges, begin[compute], spans["end"][compute])
    taken = computing.copy()
    moving = np.zeros_like(taken)
    exposed: dict[str, float] = dict.fromkeys(place, 0)
    main = ops["stream"] == MAIN_STREAM
    for stream in (main, ~main):
        for name, index in place.items():
            chosen = stream & (dimension == index)
            busy = _covered(edges, begin[chosen], spans["end"][chosen])
            exposed[name] += int(width[busy & ~taken].sum())
            moving |= busy
            taken |= busy
    inside = _covered(edges, spans["start"][collective], spans["end"][collective]) & ~taken
    hosting = _covered(edges, begin[host], spans["end"][host]) & ~taken & ~inside
    return IterationParts(
        compute=int(width[computing].sum()),
        exposed=exposed,
        waiting=int(width[inside].sum()),
        host=int(width[hosting].sum()),
        idle=int(width[~inside & ~taken & ~hosting].sum()),
        overlapped=int(width[moving & computing].sum()),
    )


def _unmodelled(ops: NDArray[np.void], timers: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which ops are kernels that communicate, of which a trace says no more than how long they took."""
    number = timers.index(UNMODELLED) if UNMODELLED in timers else -1
    found: NDArray[np.bool_] = (ops["timer"] == number) & (ops["kind"] == COMPUTE)
    return found


def _length(spans: NDArray[np.void]) -> NDArray[np.int64]:
    length: NDArray[np.int64] = spans["end"] - spans["start"]
    return length


def _transfer_start(result: RunRecord, calls: NDArray[np.int32], spans: NDArray[np.void]) -> NDArray[np.int64]:
    """Give when each collective op began to move data: when the last rank of its call was ready.

    An op that is done before that (the sender of an eager message) has not waited at all; one that is done
    just then has done nothing else, as a send that waits for its receiver does without latency.
    """
    ready = result.calls.start[calls]
    return np.where(ready > spans["end"], spans["start"], np.maximum(ready, spans["start"]))


def _covered(edges: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which segments between `edges` lie in one of the intervals, shape ``(len(edges) - 1,)``."""
    depth = np.zeros(len(edges), np.int64)
    np.add.at(depth, np.searchsorted(edges, start), 1)
    np.add.at(depth, np.searchsorted(edges, end), -1)
    return np.cumsum(depth)[:-1] > 0
