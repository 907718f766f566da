"""Ways through another group: Valiant's routing, and UGAL, which chooses between that and the shortest way.

Both are decided once for a connection, as adapters that route at their source do, and not again for each packet.
"""

from collections.abc import Callable

import numpy as np

from fabricsim.topology.shortest_paths import mix
from fabricsim.topology.wires import AVOIDED, Wires


class Detours:
    """Chooses the groups through which connections go.

    Valiant's routing (Valiant, "A scheme for fast parallel communication", SIAM J. Comput. 11(2), 1982; over groups of
    a dragonfly: Kim, Dally, Scott and Abts, ISCA 2008) goes to a group drawn by the connection's hash and from there to
    the target; inside a group it takes the shortest way. UGAL (Singh, Stanford 2005) takes the detour only if the
    shortest way has more connections already, each way weighed with its hops.

    `wires`: the network, with groups.
    `gates`: of each NIC, the switch next to it; its group is the NIC's.
    `by_load`: whether to choose as UGAL does.
    """

    def __init__(self, wires: Wires, gates: list[int], *, by_load: bool) -> None:
        self._wires, self._gates, self._by_load = wires, gates, by_load
        self._groups = np.unique(wires.group[wires.group >= 0]).tolist()
        self._load = np.zeros(len(wires.target), np.int64)
        self._chosen: dict[tuple[int, int, int], list[int]] = {}

    def members(self, group: int) -> np.ndarray:
        """Return the switches of a group, shape ``(n,)``."""
        return np.flatnonzero(self._wires.group == group)

    def _others(self, source: int, target: int, key: int) -> list[int]:
        """List the groups that a detour between two NICs may take, the one that is drawn first."""
        ends = {int(self._wires.group[self._gates[nic]]) for nic in (source, target)}
        others = [group for group in self._groups if group not in ends]
        if len(ends) == 1 or not others:
            return []
        drawn = int(mix(key)) % len(others)
        return others[drawn:] + others[:drawn]

    def route(
        self, source: int, target: int, key: int, shortest: list[int], detour: Callable[[int], list[int]]
    ) -> list[int]:
        """Choose between the shortest way and that through a group, which `detour` gives.

        A group that is reached only over withdrawn wires is left out.
        """
        if (source, target, key) in self._chosen:
            return self._chosen[source, target, key]
        detours = (detour(group) for group in self._others(source, target, key))
        way = next((way for way in detours if self._wires.cost[way].max() < AVOIDED), None)
        if way is None:
            return shortest
        if self._by_load:
            way = min((shortest, way), key=self._waiting)
            self._load[way] += 1
            self._chosen[source, target, key] = way
        return way

    def _waiting(self, way: list[int]) -> int:
        """Weigh a way by its wires and the routes over the fullest of them (UGAL)."""
        return len(way) * int(self._load[way].max())
