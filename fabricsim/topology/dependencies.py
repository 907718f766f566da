"""Which wire a packet may wait for while it fills the buffer behind another: circles of that may deadlock.

If nothing is ever dropped, a packet that came over one wire keeps its buffer until the next wire on its way takes it.
If these dependencies have a circle, all in it may wait for one another for good; without one no deadlock is possible
(Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection networks", IEEE ToC 1987). Hosts take
what arrives, so only wires between switches matter.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabricsim.topology.circles import MARKED, REFUSED, find_circle, leads_to, mark_shortest
from fabricsim.topology.wires import Wires


class Dependencies:
    """Pairs of wires of which a packet may fill the buffer behind the first while it waits for the second.

    `wires`: the network.
    `nics`: how many of its first nodes are NICs.
    """

    def __init__(self, wires: Wires, nics: int) -> None:
        self._wires, self._nics = wires, nics
        degree = np.diff(wires.first)[wires.target]
        self._offset = np.concatenate([[0], np.cumsum(degree)])[:-1]
        self._marks = np.zeros(int(degree.sum()), np.uint8)
        self._graph = wires.first, wires.target, self._offset, self._marks
        self._between = (wires.source >= nics) & (wires.target >= nics)
        self._seen, self._stamp = np.zeros(len(wires.target), np.int64), 0
        self._stack = np.empty(len(wires.target), np.int64)

    def add_shortest(
        self,
        distances: NDArray[np.int32],
        near: NDArray[np.bool_],
        sources: NDArray[np.int64],
        onwards: NDArray[np.bool_],
    ) -> None:
        """Enter all ways from some switches along wires that are `near`, and from where these end `onwards`."""
        reached = np.zeros(len(distances), np.uint8)
        reached[sources] = 1
        order = np.argsort(-distances, kind="stable")
        near, ends = near & self._between, distances == 0
        rest = onwards & self._between
        mark_shortest(self._graph, near, rest, ends, order, reached)

    def add(self, path: Iterable[int]) -> None:
        """Enter one way."""
        for place in self._places(path):
            self._marks[place] = MARKED

    def add_reversed(self) -> None:
        """Enter the way back of all that is there."""
        wire, first = self._wires, self._wires.first
        places = np.flatnonzero(self._marks == MARKED)
        i = np.searchsorted(self._offset, places, side="right") - 1
        j = first[wire.target[i]] + places - self._offset[i]
        back, on = wire.reverse[j], wire.reverse[i]
        self._marks[self._offset[back] + on - first[wire.target[back]]] = MARKED

    def try_to_add(self, path: Iterable[int]) -> bool:
        """Enter one way unless it would close a circle; tell whether it was entered."""
        places = self._places(path)
        if any(self._marks[place] == REFUSED for place in places):
            return False
        new: list[int] = []
        for place in places:
            if self._marks[place] == MARKED:
                continue
            i = int(np.searchsorted(self._offset, place, side="right")) - 1
            j = int(self._wires.first[self._wires.target[i]]) + place - int(self._offset[i])
            self._stamp += 1
            if leads_to(self._graph, j, i, self._seen, self._stamp, self._stack):
                self._marks[new] = 0
                if not new:
                    self._marks[place] = REFUSED
                return False
            self._marks[place] = MARKED
            new.append(place)
        return True

    def _places(self, path: Iterable[int]) -> list[int]:
        wires = self._wires
        inner = [wire for wire in path if self._between[wire]]
        return [int(self._offset[i] + j - wires.first[wires.target[i]]) for i, j in pairwise(inner)]

    def circle(self) -> list[int]:
        """Return wires each of which may wait for the next, the last for the first; none if there are no such."""
        count = len(self._wires.target)
        stack, place = np.empty(count, np.int64), np.empty(count, np.int64)
        begin, length = find_circle(self._graph, np.zeros(count, np.uint8), stack, place)
        found: list[int] = stack[begin : begin + length].tolist()
        return found


class VirtualLanes:
    """Virtual lanes: ways are shared out among them so that no lane has a circle.

    Each way takes the first lane in which it closes none, and stays in it from end to end, as service levels of
    InfiniBand do (LASH: Skeie, Lysne and Theiss, "Layered shortest path routing", IPDPS 2002).

    `wires`, `nics`: as of `Dependencies`.
    `count`: how many there are.
    """

    def __init__(self, wires: Wires, nics: int, count: int) -> None:
        self.count = count
        self._layers = [Dependencies(wires, nics) for _ in range(count)]

    def lane_of(self, path: Sequence[int]) -> int | None:
        """Return the lane of a way; None if it closes a circle in each of them."""
        return next((lane for lane, layer in enumerate(self._layers) if layer.try_to_add(path)), None)
