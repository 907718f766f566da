"""Dependencies as pairs of nodes, and whether they can be met at all."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabricsim.traces.trace import EDGE, Lane


def edges_of(
    before: NDArray[np.int64], after: NDArray[np.int64], *, on_start: NDArray[np.bool_] | bool = False
) -> NDArray[np.void]:
    """Make ``EDGE`` records of columns of shape ``(n,)``."""
    edges = np.empty(len(before), EDGE)
    edges["before"], edges["after"], edges["on_start"] = before, after, on_start
    return edges


def in_a_cycle(count: int, edges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Find the nodes that could never run because they wait, at last, for themselves.

    `count`: nodes, numbered from 0.
    `edges`: pairs of arrays: those waited for, and those that wait.
    Returns: nodes of cycles, and those that wait for them; empty if all can run.
    """
    before = np.concatenate([one for one, _ in edges])
    after = np.concatenate([other for _, other in edges])
    if np.all(before < after):  # most files have their nodes in an order in which they can run
        return np.zeros(0, np.int64)
    order = np.argsort(before, kind="stable")
    successors = after[order].tolist()
    ends = np.cumsum(np.bincount(before, minlength=count)).tolist()
    waiting = np.bincount(after, minlength=count).tolist()
    ready = [node for node in range(count) if not waiting[node]]
    while ready:
        node = ready.pop()
        for successor in successors[ends[node - 1] if node else 0 : ends[node]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.append(successor)
    return np.flatnonzero(waiting)


def of_lanes(places: NDArray[np.int32], lanes: Sequence[Lane]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the edges that the order of streams and threads stands for.

    `places`: lane of each node, in the order in which lanes run them.
    `lanes`: what these numbers stand for.
    """
    ordered = np.array([*(lane.kind in {"stream", "thread"} for lane in lanes), False])
    nodes = np.flatnonzero(ordered[places])
    nodes = nodes[np.argsort(places[nodes], kind="stable")]
    same = places[nodes[1:]] == places[nodes[:-1]]
    return nodes[:-1][same], nodes[1:][same]
