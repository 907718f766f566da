"""Where the time of a rank goes.

Every instant of an iteration belongs to exactly one state of a rank::

    compute    a compute op runs
    exposed    no compute op runs, and a collective moves data; booked under its dimension
    waiting    neither, and the rank is in a collective whose other ranks are not ready yet
    host       none of these, and the host works, or a device is about to begin
    idle       none of these

The five add up to the iteration. `waiting` and `idle` together are the bubble. Communication that
moves data while a compute op runs is overlapped: it costs no time and is counted besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.tables import COLLECTIVE, COMPUTE, HOST, MAIN_STREAM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.results.result import Result


@dataclass(frozen=True)
class RankTime:
    """Where the iteration of one rank goes, all in ps.

    Attributes
    ----------
    rank
        The rank.
    compute
        Time in which a compute op runs.
    exposed
        Time in which the rank only moves data, by dimension; dimensions in the order in which the program
        first calls them, zero included. A collective on the main stream goes before an overlapped one.
    waiting
        Time in collectives whose last rank is not ready.
    host
        Time in which only its host works, or a device begins.
    idle
        Time outside all ops.
    overlapped
        Time in which data moves behind compute.
    """

    rank: int
    compute: int
    exposed: dict[str, int]
    waiting: int
    host: int
    idle: int
    overlapped: int

    @property
    def bubble(self) -> int:
        """Time in which the rank neither computes nor moves data, ps."""
        return self.waiting + self.idle

    @property
    def communication(self) -> int:
        """Time that communication keeps the rank from computing, waiting for peers included, ps.

        This is what timers around collective calls see.
        """
        return self.waiting + sum(self.exposed.values())


def rank_count(result: Result) -> int:
    """Ranks that take part in the program of `result`, simulated or not."""
    if result.ranks is not None:
        return result.ranks
    return int(result.ops["rank"].max()) + 1 if len(result.ops) else 0


def simulated_ranks(result: Result) -> list[int]:
    """Ranks of `result` that have been simulated: all, or where it is folded those that stand for all."""
    if result.ranks is None:
        return list(range(rank_count(result)))
    ranks: list[int] = np.unique(result.ops["rank"]).tolist()
    return ranks


def critical_rank(result: Result) -> int:
    """Find the rank that the iteration waits for.

    Returns
    -------
    int
        The rank whose last op ends last; among equals the one with the most compute, which has the least
        slack, and among those the lowest. 0 where the program is empty.
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


def rank_time(result: Result, rank: int) -> RankTime:
    """Divide the iteration of `rank` among compute, exposed communication, waiting and idling.

    Parameters
    ----------
    result
        The run.
    rank
        A rank of its program.

    Returns
    -------
    RankTime
        ``compute + sum(exposed) + waiting + host + idle`` is the iteration.
    """
    mine = result.ops["rank"] == rank
    ops, spans = result.ops[mine], result.spans[mine]
    collective = ops["kind"] == COLLECTIVE
    begin = spans["start"].copy()
    begin[collective] = _transfer_start(result, ops["call"][collective], spans[collective])
    dimensions = tuple(dict.fromkeys(kind.dimension for kind in result.calls.kinds))
    place = {dimension: index for index, dimension in enumerate(dimensions)}
    of_call = np.array([place[kind.dimension] for kind in result.calls.kinds], np.int64)[result.calls.kind]
    dimension = np.full(len(ops), -1)
    dimension[collective] = of_call[ops["call"][collective]]

    edges = np.unique(np.concatenate([spans["start"], begin, spans["end"], [0, result.iteration]]))
    width = np.diff(edges)
    compute, host = ops["kind"] == COMPUTE, ops["kind"] == HOST
    computing = _covered(edges, begin[compute], spans["end"][compute])
    taken = computing.copy()
    moving = np.zeros_like(taken)
    exposed = dict.fromkeys(dimensions, 0)
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
    return RankTime(
        rank=rank,
        compute=int(width[computing].sum()),
        exposed=exposed,
        waiting=int(width[inside].sum()),
        host=int(width[hosting].sum()),
        idle=int(width[~inside & ~taken & ~hosting].sum()),
        overlapped=int(width[moving & computing].sum()),
    )


def _length(spans: NDArray[np.void]) -> NDArray[np.int64]:
    length: NDArray[np.int64] = spans["end"] - spans["start"]
    return length


def _transfer_start(result: Result, calls: NDArray[np.int32], spans: NDArray[np.void]) -> NDArray[np.int64]:
    """Give when each collective op began to move data: when the last rank of its call was ready.

    An op that is done before that (the sender of an eager message) has not waited at all.
    """
    ready = result.calls.start[calls]
    return np.where(ready >= spans["end"], spans["start"], np.maximum(ready, spans["start"]))


def _covered(edges: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which segments between `edges` lie in one of the intervals, shape ``(len(edges) - 1,)``."""
    depth = np.zeros(len(edges), np.int64)
    np.add.at(depth, np.searchsorted(edges, start), 1)
    np.add.at(depth, np.searchsorted(edges, end), -1)
    return np.cumsum(depth)[:-1] > 0
