"""Operations of one CPU of a GOAL schedule, which take turns as they become ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.traces.trace import Recording


def turns(recording: Recording) -> NDArray[np.int64]:
    """Pair operations that become ready at one instant, since they wait for the same, with the next of them.

    Receives are left out: they keep no CPU busy until their message is there. Of operations that wait for different
    things it is not known beforehand which is ready first; they are taken to find the CPU free. As all of a set wait
    for the same, an order among them can close no circle.

    Returns: indices of nodes, shape ``(n_pairs, 2)``: the second runs after the first, in the order of the file.
    """
    own = np.array([kind == "cpu" for kind, _ in recording.lanes], np.bool_)
    receives = np.array([what.operation == "recv" for what in recording.communications] + [False], np.bool_)
    nodes = np.flatnonzero(own[recording.nodes["lane"]] & ~receives[recording.nodes["communication"]])
    if not len(nodes):
        return np.zeros((0, 2), np.int64)
    waits: dict[int, set[tuple[int, bool]]] = {}
    for before, after, on_start in recording.edges.tolist():
        waits.setdefault(after, set()).add((before, on_start))
    last: dict[tuple[int, frozenset[tuple[int, bool]]], int] = {}
    pairs = []
    for node, lane in zip(nodes.tolist(), recording.nodes["lane"][nodes].tolist(), strict=True):
        key = (lane, frozenset(waits.get(node, ())))
        before = last.get(key, NONE)
        if before != NONE:
            pairs.append((before, node))
        last[key] = node
    return np.array(pairs, np.int64).reshape(-1, 2)
