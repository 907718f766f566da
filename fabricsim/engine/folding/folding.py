"""What stands for what in a folded run."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.choice import Choice
from fabricsim.engine.folding.footprint import Footprint
from fabricsim.engine.folding.quotient import Quotient, pairs
from fabricsim.engine.ways import Connection
from fabricsim.errors import SimulationError
from fabricsim.workload.program import Program

Indices = NDArray[np.int64]


class Inexact(NamedTuple):
    """How a folded run may differ from that of all ranks; it is exact if neither is so.

    `read_ahead`: time by which a message may start sooner or later: an adapter takes messages one after the other, and
        whose turn comes first is open, ps.
    `uneven`: whether a shard may be a byte longer than that of a rank alike.
    """

    read_ahead: int
    uneven: bool


class Folding:
    """What stands for what in a fabric.

    `program`: that of the representatives, its calls already folded.
    `inexact`: how the run may differ from that of all ranks.
    `rank_of`: the rank that stands for each, shape ``(ranks,)``.
    `resource_of`: the resource that stands for each, shape ``(resources,)``.
    `copies`: how many each of these stands for, shape ``(resources,)``.
    """

    def __init__(self, footprint: Footprint, quotient: Quotient, program: Program, inexact: Inexact) -> None:
        self._footprint, self._quotient, self.inexact = footprint, quotient, inexact
        self.rank_of, self.resource_of = quotient.ranks, quotient.resources
        self.copies = np.bincount(quotient.resources, minlength=len(quotient.resources))
        self._hops = self._shared_hops()
        self._seated: dict[tuple[str, tuple[int, ...], Choice], tuple[int, int, int]] = {}
        for call in program.calls.kinds:
            layout, group = footprint.find(call) or (0, 0)
            lanes = int(quotient.seats[layout].lanes[group])
            self._seated[call.collective, call.ranks, footprint.choice(call)] = (layout, group, lanes)

    def lanes(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> int:
        """How many members of a group have lanes: its first ones. `choice` is what its calls run with."""
        if (collective, ranks, choice) not in self._seated:
            raise SimulationError(f"the folded program has no {collective} over ranks {ranks}")
        return self._seated[collective, ranks, choice][2]

    def layout(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> int:
        """Give the number of the layout of a group."""
        return self._seated[collective, ranks, choice][0]

    def stand_in(self, key: Connection) -> Connection:
        """Return the connection that stands for another."""
        source, target, port, stripes = self._footprint.ends_of(int(self._footprint.routes.code[self._route(key)]))
        return key._replace(source=source, target=target, port=port, stripes=stripes)

    def hops(self, key: Connection) -> list[tuple[int, float, float]]:
        """Rows of ``HOP`` of a connection that stands for others."""
        return self._hops[self._route(key)]

    def _route(self, key: Connection) -> int:
        codes = self._footprint.routes.code
        code = self._footprint.code(key)
        route = int(np.searchsorted(codes, code))
        if route == len(codes) or codes[route] != code:
            msg = f"no call of the folded program sends from rank {key.source} to {key.target} on channel {key.port}"
            raise SimulationError(msg)
        return int(self._quotient.routes[route])

    def _shared_hops(self) -> dict[int, list[tuple[int, float, float]]]:
        """Hops of the routes that stand for others, with all images that cross each resource."""
        routes, lowest = self._footprint.routes, self._quotient
        here = lowest.resources[routes.hop_resource] == routes.hop_resource
        route, resource, which = pairs(lowest.routes[routes.hop_route[here]], routes.hop_resource[here])
        shares, costs = (np.bincount(which, each[here]) for each in (routes.hop_share, routes.hop_cost))
        rows = zip(shares.tolist(), costs.tolist(), strict=True)
        shared = dict(zip(zip(route.tolist(), resource.tolist(), strict=True), rows, strict=True))
        hops: dict[int, list[tuple[int, float, float]]] = {}
        mine = np.flatnonzero(lowest.routes[routes.hop_route] == routes.hop_route)
        crossed = lowest.resources[routes.hop_resource[mine]].tolist()
        for of, crossing in zip(routes.hop_route[mine].tolist(), crossed, strict=True):
            row = (crossing, *shared[of, crossing])
            if row not in hops.setdefault(of, []):
                hops[of].append(row)
        return hops

    def demand(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> dict[int, float]:
        """Units of each resource that a byte of the buffer takes in one group, its images left out."""
        number, group, _ = self._seated[collective, ranks, choice]
        routes, (route, share) = self._footprint.routes, self._footprint.carried(collective, number, group)
        # Added up one by one, as if nothing is folded: bounds are compared.
        first_hop = np.searchsorted(routes.hop_route, np.arange(len(routes.code) + 1))
        hops = first_hop[route + 1] - first_hop[route]
        begins = np.repeat(first_hop[route] - np.cumsum(hops) + hops, hops)
        crossed = begins + np.arange(len(begins))
        total = np.bincount(routes.hop_resource[crossed], routes.hop_cost[crossed] * np.repeat(share, hops))
        return {resource: float(total[resource]) for resource in np.flatnonzero(total).tolist()}

    def load(self, collective: str, ranks: tuple[int, ...], choice: Choice) -> dict[int, float]:
        """Units that a byte of the buffer takes of each resource that stands for others, all groups alike together.

        They spread evenly over the resources that are alike.
        """
        number, group, _ = self._seated[collective, ranks, choice]
        stand_in = self._quotient.seats[number].stand_in
        groups = int((stand_in == stand_in[group]).sum())
        units: dict[int, float] = {}
        for resource, each in self.demand(collective, ranks, choice).items():
            place = int(self.resource_of[resource])
            units[place] = units.get(place, 0.0) + each * groups / float(self.copies[place])
        return units
