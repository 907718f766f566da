"""Connections of the packet engine: flows with their paths, servers and unloaded round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.engine.packet_times import PacketTimes
from fabricsim.engine.wiring import Connection, Wiring
from fabricsim.errors import SimulationError
from fabricsim.tables import NEVER, NONE
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

    ``reverse`` are the wires of acknowledgements, ``key`` is what ECMP hashes, ``target`` is the receiving endpoint.
    """

    out: _Stages
    wires: tuple[int, ...]
    back: _Stages
    reverse: tuple[int, ...]
    key: int
    target: int


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

    def prepare(self, routes: Sequence[int], *, awaited: bool) -> None:
        """Give routes flows for messages from outside, where they have none."""
        if awaited:
            self._await(routes)
        flows = self._world.routes["flow"]
        new = [route for route in dict.fromkeys(routes) if flows[route] == NONE]
        if new:
            flows[new] = self._new_flows(new)

    def _connection_flows(self, routes: Sequence[int]) -> NDArray[np.int64]:
        self._await(routes)
        return self._new_flows(routes)

    def _await(self, routes: Sequence[int]) -> None:
        """Expect reactions to messages of routes, which their latency keeps apart from their arrival."""
        latencies = self._world.routes["latency"][[route for route in routes if self._way_of[route].wires]]
        self._packet_world.react_within(int(latencies.min(initial=NEVER)))

    def _path(self, key: Connection) -> Path:
        if self._switches.is_in_network(max(key.source, key.target)):
            msg = 'no switch reduces in the packet engine: choose another algorithm than collnet, or engine = "flow"'
            raise SimulationError(msg)
        return super()._path(key)

    def _add_routes(self, keys: Sequence[Connection], paths: Sequence[Path]) -> int:
        first = super()._add_routes(keys, paths)
        own = [  # packets are not striped
            self._platform.path(key.source, key.target, key.port) if key.stripes else path
            for key, path in zip(keys, paths, strict=True)
        ]
        ways = [self._way(key.target, path) for key, path in zip(keys, own, strict=True)]
        self._way_of += ways
        routes = self._world.routes
        # Cables and switches are in the network; what remains is what the hosts' software takes.
        routes["latency"][first : first + len(keys)] -= [path.latency for path in paths]
        wired = [number for number, way in enumerate(ways, first) if way.wires]
        servers = [[time for _, time in (*way.out, *way.back)] for way in ways if way.wires]
        crossed = [way.wires for way in ways if way.wires]
        _set(routes, wired, [*map(self._times.of_route, crossed, servers)])
        return first

    def _way(self, target: int, path: Path) -> _Way:
        if not path.network:
            return _Way(self._stages(path.hops), (), [], (), 0, target)
        after = path.out + len(path.wires)
        out, back = self._stages(path.hops[: path.out]), self._stages(path.hops[after:])
        reverse = self._reverse
        return _Way(out, path.wires, back, tuple([reverse[wire] for wire in path.wires[::-1]]), path.key, target)

    def _stages(self, hops: Sequence[Hop]) -> _Stages:
        capacities = self._platform.resources.capacities
        return [(server, cost / capacities[server] * PS_PER_S) for server, cost in hops]

    # ---- flows ----------------------------------------------------------------------------------

    def _new_flows(self, routes: Sequence[int]) -> NDArray[np.int64]:
        """Make flows; the messages of each belong to one connection of a collective, or to one route."""
        network, ways = self._network, [self._way_of[route] for route in routes]
        network.add("receivers", len(ways))
        new = network.add("flows", len(ways)) + np.arange(len(ways))
        flows = network.flows
        flows["route"][new] = routes
        stages, exits = np.array([len(way.out) for way in ways]), np.array([len(way.back) for way in ways])
        first = network.extend("stages", [stage for way in ways for stage in (*way.out, *way.back)])
        flows["stages"][new], flows["exits"][new] = stages, exits
        flows["first_stage"][new] = first + _before(stages + exits)
        flows["first_exit"][new] = flows["first_stage"][new] + stages
        wired = np.array([bool(way.wires) for way in ways])
        if wired.any():
            self._set_on_wire(new[wired], [way for way in ways if way.wires])
        return new

    def _set_on_wire(self, new: NDArray[np.int64], ways: Sequence[_Way]) -> None:
        """Fill in the columns of flows that leave their hosts."""
        network, law, flows = self._network, self._law, self._network.flows
        hops = np.array([len(way.wires) for way in ways])
        path = _before(2 * hops)
        links = np.array([link for way in ways for link in (*way.wires, *way.reverse)])
        flows["hops"][new], flows["key"][new] = hops, [way.key for way in ways]
        flows["first_link"][new], flows["last_link"][new] = links[path], links[path + hops]
        here, there = network.links["source"][links[path]], network.links["source"][links[path + hops]]
        flows["source"][new], flows["target"][new] = here, there
        flows["endpoint"][new] = self._endpoints_of([way.target for way in ways])
        if self._platform.cluster.nics_per_host > 1:
            self._note_servers(ways, here.tolist(), there.tolist())
        _set(flows, new, [self._times.of_flow(way.wires, way.reverse) for way in ways])
        if law["balance"] == BY_FLOW:
            path += network.add_path(links)
            flows["path"][new], flows["reverse_path"][new] = path, path + hops
        span = int(law["span"])
        if law["recovery"]:
            flows["slot"][new] = network.add_scores(2 * span * len(ways)) + 2 * span * np.arange(len(ways))
        if law["law"] == HPCC:
            entries = (span + 1) * hops
            flows["first_telemetry"][new] = network.add("telemetry", int(entries.sum())) + _before(entries)

    def _endpoints_of(self, targets: Sequence[int]) -> list[int]:
        new = [target for target in dict.fromkeys(targets) if target not in self._endpoints]
        first = self._network.add("endpoints", len(new))
        self._endpoints.update(zip(new, range(first, first + len(new)), strict=True))
        return [self._endpoints[target] for target in targets]

    def _note_servers(self, ways: Sequence[_Way], here: Sequence[int], there: Sequence[int]) -> None:
        """Have the NICs of a host run together where they turn out to share a server."""
        for way, *nics in zip(ways, here, there, strict=True):
            for stages, nic in zip((way.out, way.back), nics, strict=True):
                if any(self._nic_of.setdefault(server, nic) != nic for server, _ in stages):
                    self._network.world["peers"] = self._platform.cluster.nics_per_host


def _before(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add up all counts before each."""
    return np.cumsum(counts) - counts


def _set(
    records: NDArray[np.void], rows: Sequence[int] | NDArray[np.int64], columns: Sequence[Mapping[str, float]]
) -> None:
    """Fill in some columns, the same ones of each row."""
    for name in columns[0] if columns else ():
        records[name][rows] = [each[name] for each in columns]
