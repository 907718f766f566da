"""Connections of the packet engine: flows with their paths, servers and unloaded round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.engine.wiring import Connection, Wiring
from fabricsim.errors import SimulationError
from fabricsim.packet_tables import BY_FLOW, FLOW, HEADER_BYTES, HPCC, RECEIVER, SERVER, STAGE
from fabricsim.tables import NEVER, NONE
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fabricsim.collectives.choice import Choose
    from fabricsim.engine.packet_world import PacketWorld
    from fabricsim.spec.cluster import InterruptStep
    from fabricsim.topology.host import Hop
    from fabricsim.topology.platform import Platform
    from fabricsim.transports.base import FlowModel


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
        self._network.extend("laws", law)
        self._network.extend("servers", np.zeros(len(platform.resources.names), SERVER))
        if self._law["law"] == HPCC:
            self._network.world["telemetry"] = 1
            self._network.watch()
        self._endpoints: dict[int, int] = {}
        self._nic_of: dict[int, int] = {}  # node at which a server serves
        self._on_wire: dict[int, bool] = {}
        if self._law["balance"] != BY_FLOW:
            hops = platform.next_hops()
            self._network.group_of, self._network.group_links = hops.group_of, hops.group_links
            self._network.groups = hops.groups.astype(np.int64)

    def prepare(self, source: int, target: int, port: int, route: int, *, awaited: bool) -> None:
        """Give a route a flow for messages from outside, if it has none."""
        if awaited:
            self._await(route)
        routes = self._world.tables["routes"]
        if routes["flow"][route] == NONE:
            flow = self._new_flow(source, target, port, route)
            self._world.tables["routes"]["flow"][route] = flow

    def _connection_flow(self, source: int, target: int, port: int, route: int) -> int:
        self._await(route)
        return self._new_flow(source, target, port, route)

    def _await(self, route: int) -> None:
        """Expect reactions to messages of a route, which its latency keeps apart from their arrival."""
        if self._on_wire[route]:
            self._packet_world.react_within(int(self._world.tables["routes"]["latency"][route]))

    def _add_route(self, key: Connection) -> int:
        if self._switches.is_in_network(max(key.source, key.target)):
            msg = 'no switch reduces in the packet engine: choose another algorithm than collnet, or engine = "flow"'
            raise SimulationError(msg)
        route = super()._add_route(key)
        row = self._world.tables["routes"][route]
        path = self._ways.path(key.source, key.target, key.port, key.stripes)
        # Cables and switches are in the network; what remains is what the hosts' software takes.
        row["latency"] -= path.latency
        self._on_wire[route] = path.network
        if path.network:
            way = self._way(key.source, key.target, key.port)
            self._set_time_alone(row, way, [*self._way_out(key.source, key.target), *self._way_in(key.target)])
        return route

    def _way(self, source: int, target: int, port: int) -> list[int]:
        platform = self._platform
        return platform.route_links(*platform.nics_of(source, target), platform.key(source, target, port), port)

    def _way_out(self, source: int, target: int) -> list[Hop]:
        return self._platform.way_out(source, target=target)

    def _way_in(self, target: int) -> list[Hop]:
        return self._platform.way_in(target)

    # ---- flows ----------------------------------------------------------------------------------

    def _new_flow(self, source: int, target: int, port: int, route: int) -> int:
        """Make a flow; its messages belong to one connection of a collective, or to one route."""
        table = np.zeros(1, FLOW)
        flow = table[0]
        flow["timeout_at"] = flow["alarm_at"] = NEVER
        flow["rate"] = np.inf
        for name in ("tap", "first_telemetry", "path", "reverse_path", "first_link", "last_link", "next_ready"):
            flow[name] = NONE
        flow["route"] = route
        if self._switches.is_switch(max(source, target)):
            self._set_stages(flow, self._switches.path(source, target, port).hops, ())
        elif self._platform.host_of(source) == self._platform.host_of(target):
            self._set_stages(flow, self._platform.within(source, target), ())
        else:
            self._set_ways(flow, source, target, port)
            self._set_recovery(flow)
        receiver = np.zeros(1, RECEIVER)
        receiver["due"], receiver["nacked"], receiver["transfer"] = NEVER, NONE, NONE
        self._network.extend("receivers", receiver)
        return self._network.extend("flows", table)

    def _set_ways(self, flow: np.void, source: int, target: int, port: int) -> None:
        way = self._way(source, target, port)
        links = self._network.links
        back = [int(links["reverse"][link]) for link in reversed(way)]
        flow["key"] = self._platform.key(source, target, port)
        flow["source"], flow["target"] = links["source"][way[0]], links["target"][way[-1]]
        flow["first_link"], flow["last_link"] = way[0], back[0]
        flow["hops"] = len(way)
        if self._law["balance"] == BY_FLOW:
            flow["path"], flow["reverse_path"] = self._network.add_path(way), self._network.add_path(back)
        before, after = self._way_out(source, target), self._way_in(target)
        self._set_stages(flow, before, after)
        self._note_servers(before, int(flow["source"]))
        self._note_servers(after, int(flow["target"]))
        if target not in self._endpoints:
            fifo = np.zeros(1, self._network.grown["endpoints"].dtype)
            fifo["head"] = fifo["tail"] = NONE
            self._endpoints[target] = self._network.extend("endpoints", fifo)
        flow["endpoint"] = self._endpoints[target]
        packet, ack = int(self._law["payload"] + self._law["overhead"]), int(self._law["ack_wire"])
        flow["wire"] = packet
        flow["line_rate"] = PS_PER_S / links["ps_per_byte"][way[0]]
        flow["base_rtt"] = self._one_way(way, packet) + self._one_way(back, ack)
        flow["connect"] = int(self._law["handshake"]) * (self._one_way(way, ack) + self._one_way(back, ack))

    def _set_stages(self, flow: np.void, out: Sequence[Hop], back: Sequence[Hop]) -> None:
        """Store the servers before and after the wire."""
        flow["first_stage"], flow["stages"] = self._network.extend("stages", self._stages(out)), len(out)
        flow["first_exit"], flow["exits"] = self._network.extend("stages", self._stages(back)), len(back)

    def _note_servers(self, hops: Sequence[Hop], nic: int) -> None:
        """Have the NICs of a host run together where they turn out to share a server."""
        if any(self._nic_of.setdefault(resource, nic) != nic for resource, _ in hops):
            self._network.world["peers"] = self._platform.cluster.nics_per_host

    def _stages(self, hops: Sequence[Hop]) -> NDArray[np.void]:
        stages = np.zeros(len(hops), STAGE)
        for stage, (resource, cost) in zip(stages, hops, strict=True):
            stage["server"] = resource
            stage["ps_per_byte"] = cost / self._platform.resources.capacities[resource] * PS_PER_S
        return stages

    def _set_recovery(self, flow: np.void) -> None:
        span = int(self._law["span"])
        if self._law["recovery"]:
            flow["slot"] = self._network.add_scores(2 * span)
        if self._law["law"] == HPCC:
            flow["first_telemetry"] = self._network.extend(
                "telemetry", np.zeros((span + 1) * int(flow["hops"]), self._network.grown["telemetry"].dtype)
            )

    # ---- times ----------------------------------------------------------------------------------

    def _one_way(self, way: Sequence[int], size: int) -> int:
        """Time of a packet over idle links, ps."""
        links = self._network.links[list(way)]
        forwarded = np.where(links["cut_through"] == 1, min(size, HEADER_BYTES), size)
        return int((np.floor(forwarded * links["ps_per_byte"] + 0.5) + links["delay"]).sum())

    def _set_time_alone(self, row: np.void, way: Sequence[int], servers: Sequence[Hop]) -> None:
        """Set what `fabricsim.kernels.transfer.time_alone` needs to know of the packets of a route."""
        links = self._network.links[list(way)]
        cut_through = links["cut_through"] == 1
        per_byte = links["ps_per_byte"][~cut_through].sum()
        row["packet"], row["framing"] = self._law["payload"], self._law["overhead"]
        row["base_time"] = links["delay"].sum() + per_byte * row["framing"]
        row["byte_time"] = per_byte + self._stages(servers)["ps_per_byte"].sum()
        row["header_time"] = links["ps_per_byte"][cut_through].sum()
