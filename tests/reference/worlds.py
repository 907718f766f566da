"""A compiled world without hosts, cables or SimPy: bare resources and the flows that cross them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fabricsim.engine.flow.world import World
from fabricsim.engine.program.dispatch import COMPLETIONS
from fabricsim.records.program import HOP, NEVER, NONE, ROUTE

_BUDGET = 10**9


class BareWorld:
    """Resources of given capacities, units per second."""

    def __init__(self, capacities: Sequence[float], taps: Sequence[int] = ()) -> None:
        self.world = World(capacities, taps)
        self.finished: dict[int, int] = {}

    def route(self, costs: Mapping[int, float], *, latency: int = 0) -> int:
        """A route over resources at a cost per byte each."""
        row = np.zeros(1, ROUTE)
        hops = np.array([(resource, 1, cost) for resource, cost in costs.items()], HOP)
        row["first_hop"] = self.world.extend("hops", hops)
        row["hops"], row["latency"], row["moderation"] = len(costs), latency, NONE
        self.world.widen(len(costs))
        capacities = self.world.resources["capacity"]
        row["peak"] = min(capacities[resource] / cost for resource, cost in costs.items())
        return self.world.extend("routes", row)

    def send(self, route: int, size: int, *, weight: float = 1.0, at: int = 0) -> int:
        """Post a message whose first byte leaves at a time, ps; returns its number."""
        return self.world.post_message(int(self.world.world[0].now), route, size, weight, at - self.now)

    @property
    def now(self) -> int:
        """Time of the world, ps."""
        return int(self.world.world[0].now)

    def run(self, until: int = NEVER - 1) -> int:
        """Advance to a time; notes when each message was delivered; returns why the kernel stopped."""
        while True:
            code = self.world.advance(until, _BUDGET)
            if code != COMPLETIONS:
                return code
            for _, message in self.world.fetch():
                self.finished[message] = self.now

    def rates(self) -> dict[int, float]:
        """Present rate of each message in transfer, bytes/s."""
        leaves = self.world.tree[len(self.world.tree) // 2 :]
        return {int(flow.owner): float(flow.rate) for flow in self.world.flows[leaves != NEVER]}
