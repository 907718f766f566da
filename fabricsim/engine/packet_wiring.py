"""Connections of the packet engine: flows with their paths, servers and unloaded round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.engine.packet_times import PacketTimes
from fabricsim.engine.wiring import Connection, Wiring
from fabricsim.errors import SimulationError
from fabricsim.tables import NONE
from fabricsim.transport_tables import BY_FLOW, HPCC, SERVER
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fabricsim.collectives.choice import Choose
    from fabricsim.engine.packet_world import PacketWorld
    from fabricsim.spec.cluster import InterruptStep
    from fabricsim.topology.host import Hop
    from fabricsim.topology.platform import Path, Platform
    from fabricsim.transports.base import FlowModel

_Stages = list[tuple[int, float]]
"""Servers, and the time of each per payload byte, ps: rows of ``STAGE``."""


class _Way(NamedTuple):
    """Servers of the sending host, or of the only one; wires, none within a host; servers of the receiving host.

    ``key`` is what ECMP hashes.
    """

    out: _Stages
    wires: tuple[int, ...]
    back: _Stages
    key: int


class PacketWiring(Wiring):
    """Makes routes, communicators and flows in a packet world's tables.

    Parameters
    ----------
    world, platform, model, choose, moderation
        As for `Wiring`.
    law
        One ``LAW`` record: the transport of all flows.
    """

    def __init__(  # noqa: PLR0913, PLR0917  those of the parent, and the law
        self,
        world: PacketWorld,
        platform: Platform,
        model: FlowModel,
        choose: Choose,
        moderation: Sequence[InterruptStep],
        law: NDArray[np.void],
    ) -> None:
        super().__init__(world, platform, model, choose, moderation)
        self._network = world.network
        self._packet_world = world
        self._law = law[0]
        self._network.add_law(law)
        self._network.extend("servers", np.zeros(len(platform.resources.names), SERVER))
        if self._law["law"] == HPCC:
            self._network.world["telemetry"] = 1
            self._network.watch()
        self._times = PacketTimes(self._network.links, self._law)
        self._reverse: list[int] = self._network.links["reverse"].tolist()
        self._way_of: list[_Way] = []  # of each route
        self._endpoints: dict[int, int] = {}
        self._nic_of: dict[int, int] = {}  # node at which a server serves
        if self._law["balance"] != BY_FLOW:
            hops = platform.next_hops()
            self._network.group_of, self._network.group_links = hops.group_of, hops.group_links
            self._network.groups = hops.groups.astype(np.int64)

    def prepare(self, target: int, route: int, *, awaited: bool) -> None:
        """Give a route a flow for messages from outside, if it has none."""
        if awaited:
            self._await(route)
        if self._world.routes["flow"][route] == NONE:
            self._world.routes["flow"][route] = self._new_flow(target, route)

    def _connection_flow(self, target: int, route: int) -> int:
        self._await(route)
        return self._new_flow(target, route)

    def _await(self, route: int) -> None:
        """Expect reactions to messages of a route, which its latency keeps apart from their arrival."""
        if self._way_of[route].wires:
            self._packet_world.react_within(int(self._world.routes["latency"][route]))

    def _path(self, key: Connection) -> Path:
        if self._switches.is_in_network(max(key.source, key.target)):
            msg = 'no switch reduces in the packet engine: choose another algorithm than collnet, or engine = "flow"'
            raise SimulationError(msg)
        return super()._path(key)

    def _add_route(self, key: Connection, path: Path) -> int:
        route = super()._add_route(key, path)
        way = self._way(self._platform.path(key.source, key.target, key.port) if key.stripes else path)
        self._way_of.append(way)
        routes = self._world.routes
        # Cables and switches are in the network; what remains is what the hosts' software takes.
        routes["latency"][route] -= path.latency
        if way.wires:
            _set(routes, route, self._times.of_route(way.wires, [time for _, time in (*way.out, *way.back)]))
        return route

    def _way(self, path: Path) -> _Way:
        if not path.network:
            return _Way(self._stages(path.hops), (), [], 0)
        after = path.out + len(path.wires)
        return _Way(self._stages(path.hops[: path.out]), path.wires, self._stages(path.hops[after:]), path.key)

    def _stages(self, hops: Sequence[Hop]) -> _Stages:
        capacities = self._platform.resources.capacities
        return [(server, cost / capacities[server] * PS_PER_S) for server, cost in hops]

    # ---- flows ----------------------------------------------------------------------------------

    def _new_flow(self, target: int, route: int) -> int:
        """Make a flow; its messages belong to one connection of a collective, or to one route."""
        way = self._way_of[route]
        columns: dict[str, float] = {
            "route": route,
            "first_stage": self._network.extend("stages", way.out),
            "stages": len(way.out),
            "first_exit": self._network.extend("stages", way.back),
            "exits": len(way.back),
        }
        if way.wires:
            columns |= self._on_wire(way, target)
        self._network.add("receivers")
        flow = self._network.add("flows")
        _set(self._network.flows, flow, columns)
        return flow

    def _on_wire(self, way: _Way, target: int) -> dict[str, float]:
        """Columns of a flow that leaves its host."""
        wires, links = way.wires, self._network.links
        back = [self._reverse[wire] for wire in reversed(wires)]
        here, there = int(links["source"][wires[0]]), int(links["target"][wires[-1]])
        self._note_servers(way.out, here)
        self._note_servers(way.back, there)
        columns: dict[str, float] = {
            "key": way.key,
            "source": here,
            "target": there,
            "first_link": wires[0],
            "last_link": back[0],
            "hops": len(wires),
            "endpoint": self._endpoint(target),
            **self._times.of_flow(wires, back),
        }
        if self._law["balance"] == BY_FLOW:
            columns["path"], columns["reverse_path"] = self._network.add_path(wires), self._network.add_path(back)
        span = int(self._law["span"])
        if self._law["recovery"]:
            columns["slot"] = self._network.add_scores(2 * span)
        if self._law["law"] == HPCC:
            columns["first_telemetry"] = self._network.add("telemetry", (span + 1) * len(wires))
        return columns

    def _endpoint(self, target: int) -> int:
        if target not in self._endpoints:
            self._endpoints[target] = self._network.add("endpoints")
        return self._endpoints[target]

    def _note_servers(self, stages: _Stages, nic: int) -> None:
        """Have the NICs of a host run together where they turn out to share a server."""
        if any(self._nic_of.setdefault(server, nic) != nic for server, _ in stages):
            self._network.world["peers"] = self._platform.cluster.nics_per_host


def _set(records: NDArray[np.void], index: int, columns: Mapping[str, float]) -> None:
    for name, value in columns.items():
        records[name][index] = value
