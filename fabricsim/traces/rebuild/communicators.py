"""Collectives of one group, one after the other, as NCCL runs them on a communicator.

A trace of streams has them in order already. One that has dependencies alone lets all run at once that are ready.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def in_turn(
    ranks: NDArray[np.int64], calls: NDArray[np.int64], groups: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Pair each rank's part of a call with its part of the next call of the same group.

    All ranks take the calls in one order: that of the file as far as operations do not wait for one another otherwise.
    So no circle comes about.

    `ranks`, `calls`, `groups`: of each op, shape ``(n_ops,)``; group NONE of what keeps no order, call NONE of what is
        none.
    `edges`: pairs of ops, the second of which waits for the first, shape ``(n_edges, 2)``.
    Returns: pairs of ops likewise.
    """
    place = _places(calls, edges)
    chosen = np.flatnonzero((groups >= 0) & (place >= 0))
    chosen = chosen[np.lexsort((place[chosen], groups[chosen], ranks[chosen]))]
    before, after = chosen[:-1], chosen[1:]
    follows = (ranks[before] == ranks[after]) & (groups[before] == groups[after]) & (calls[before] != calls[after])
    return np.stack([before[follows], after[follows]], axis=1)


def circle(ops: NDArray[np.void], successors: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which ops wait for one another in a circle, if all of a call wait for what one of them waits for.

    `ops`, `successors`: of a program.
    """
    edges = np.stack([np.repeat(np.arange(len(ops)), ops["successors"]), successors], axis=1).astype(np.int64)
    calls = ops["call"].astype(np.int64)
    behind, before = (_places(calls, some) < 0 for some in (edges, edges[:, ::-1]))
    found: NDArray[np.bool_] = behind & before
    return found


def _places(calls: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Place each op behind what it waits for, all of a call at once; NONE in a circle and behind it (Kahn 1962)."""
    count = int(calls.max(initial=-1)) + 1
    node = np.where(calls >= 0, calls, count + np.arange(len(calls)))
    first = np.full(count + len(calls), len(calls), np.int64)  # op of each node that comes first in the file
    np.minimum.at(first, node, np.arange(len(calls)))
    behind = node[edges[np.argsort(node[edges[:, 0]], kind="stable")]]
    waiting = np.bincount(behind[:, 1], minlength=len(first)).tolist()
    begin = np.searchsorted(behind[:, 0], np.arange(len(first) + 1)).tolist()
    after = behind[:, 1].tolist()
    ready = [(op, one) for one, op in enumerate(first.tolist()) if op < len(calls) and not waiting[one]]
    heapq.heapify(ready)
    places = np.full(len(first), -1, np.int64)
    for place in range(len(first)):
        if not ready:
            break
        _, one = heapq.heappop(ready)
        places[one] = place
        for other in after[begin[one] : begin[one + 1]]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (int(first[other]), other))
    return places[node]


def numbered(groups: Sequence[tuple[str, tuple[int, ...]] | None]) -> NDArray[np.int64]:
    """Give groups numbers in the order in which they come; None has NONE."""
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    return np.array([-1 if group is None else known.setdefault(group, len(known)) for group in groups], np.int64)
