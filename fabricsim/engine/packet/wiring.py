"""Connections of the packet engine: flows with their paths, servers and unloaded round trips."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.choice import Choose
from fabricsim.engine.packet.times import PacketTimes
from fabricsim.engine.packet.world import PacketWorld
from fabricsim.engine.ways import Connection
from fabricsim.engine.wiring import Wiring
from fabricsim.errors import SimulationError
from fabricsim.records.program import NONE
from fabricsim.records.transport import SERVER
from fabricsim.scenario.cluster import InterruptStep
from fabricsim.topology.host import Hop
from fabricsim.topology.platform import Path, Platform
from fabricsim.transports.base import FlowModel
from fabricsim.units import PS_PER_S

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

    @property
    def servers(self) -> list[float]:
        """Time per payload byte of each server, ps."""
        return [time for _, time in (*self.out, *self.back)]


class PacketWiring(Wiring):
    """Makes routes, communicators and flows in a packet world's tables.

    `world`, `platform`, `model`, `choose`, `moderation`: as for `Wiring`.
    `law`: one ``LAW`` record: the transport of all flows.
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
        if self._network.dispatch.laws[self._law["law"]].telemetry:
            self._network.world["telemetry"] = 1
            self._network.watch()
        self._times = PacketTimes(self._network.links, self._law)
        self._law_of: dict[tuple[int, int], int] = {(0, 0): 0}
        self._lanes = platform.lanes
        self._way_of: list[_Way] = []  # of each route
        self._endpoints: dict[tuple[int, int], int] = {}
        self._nic_of: dict[int, int] = {}  # node at which a server serves
        world.renew = self._renew
        self.repairs = not self._law["one_path"]
        if self.repairs:
            self._next_hops = platform.next_hops()
            self.repair(())

    def prepare(self, routes: Sequence[int], *, awaited: bool) -> None:
        """Give routes flows for messages from outside, if they have none."""
        if awaited:
            self._await(routes)
        flows = self._world.routes["flow"]
        new = [route for route in dict.fromkeys(routes) if flows[route] == NONE]
        if new:
            flows[new] = self._new_flows(new)

    def _renew(self, flows: Sequence[int]) -> None:
        """Have new flows where messages would go by these, which send nothing any more."""
        routes = self._world.routes["flow"]
        routes[np.isin(routes, flows)] = NONE  # which `prepare` mends
        connections = self._world.connections
        gone = np.flatnonzero(np.isin(connections["flow"], flows))
        if len(gone):
            connections["flow"][gone] = self._new_flows(connections["route"][gone].tolist())

    # ---- ways that fail ---------------------------------------------------------------------------

    def repair(self, down: Iterable[int]) -> list[int]:
        """Have switches leave links that are down out of those among which they choose, packet by packet."""
        if self.repairs:
            hops = self._next_hops.without(down)
            self._network.group_of, self._network.group_links = hops.group_of, hops.group_links
            self._network.groups = hops.groups.astype(np.int64)
        return []

    def reroute(self, withdrawn: Iterable[int]) -> list[int]:
        """Do so where switches choose, too."""
        if self.repairs:
            self._next_hops = self._platform.next_hops()
            self.repair(withdrawn)
        return super().reroute(withdrawn)

    def routes_over(self, wires: Iterable[int]) -> dict[int, set[int]]:
        """Give the routes that cross each of some wires, or whose answers do."""
        found = super().routes_over(wires)
        for route, way in enumerate(self._way_of):
            for wire in found.keys() & set(way.reverse):
                found[wire].add(route)
        return found

    def _is_way(self, route: int, crossed: tuple[int, ...], path: Path) -> bool:
        before, ends = self._way_of[route].wires, self._network.links
        if before and (ends["source"][before[0]], ends["target"][before[-1]]) != (
            ends["source"][path.wires[0]],
            ends["target"][path.wires[-1]],
        ):
            return True  # connections of adapters stay with these
        same = super()._is_way(route, crossed, path)
        return same and (not path.network or self._way(0, path).reverse == self._way_of[route].reverse)

    def _change_way(self, key: Connection, route: int, path: Path, row: tuple[float, ...]) -> None:
        """Have the flows of a route send by its new way; packets that have been sent go on by the old one."""
        del row
        self._way_of[route] = way = self._way(key.target, path)
        network = self._network
        flows = np.flatnonzero(network.flows["route"][: network.used["flows"]] == route).tolist()
        for flow in flows if self._law["one_path"] and way.wires else ():
            place = network.extend("paths", [*way.wires, *way.reverse])
            hops = len(way.wires)
            columns = {"path": [place], "reverse_path": [place + hops], "hops": [hops]}
            if network.world["telemetry"][0]:
                columns["first_telemetry"] = [self._add_telemetry(hops)]
            _set(network.flows, [flow], columns)

    def _add_telemetry(self, hops: int) -> int:
        """Have room for the telemetry of a flow, none of which is that of a packet on its way."""
        entries = (int(self._law["span"]) + 1) * hops
        first = self._network.add("telemetry", entries)
        self._network.telemetry["stamp"][first : first + entries] = NONE
        return first

    # ---- flows ----------------------------------------------------------------------------------

    def _connection_flows(self, routes: Sequence[int]) -> Sequence[int]:
        self._await(routes)
        return self._new_flows(routes)

    def _await(self, routes: Sequence[int]) -> None:
        """Expect reactions to messages of routes, which their latency keeps apart from their arrival."""
        latencies = self._world.routes["latency"]
        for route in routes:
            if self._way_of[route].wires:
                self._packet_world.react_within(int(latencies[route]))

    def _path(self, key: Connection) -> Path:
        end = max(key.source, key.target)
        if self.switches.is_in_network(end) and self.switches.reducer(end) is None:
            msg = "switches reduce packets only if collectives.algorithm names an algorithm for which they do: set it"
            raise SimulationError(msg)
        return super()._path(key)

    def _add_routes(self, keys: Sequence[Connection], paths: Sequence[Path]) -> int:
        first = super()._add_routes(keys, paths)
        ways = [self._way(key.target, path) for key, path in zip(keys, paths, strict=True)]
        self._way_of += ways
        routes = self._world.routes
        # Cables and switches are in the network; what remains is what the hosts' software takes.
        routes["latency"][first : first + len(keys)] -= [path.latency for path in paths]
        times = [self._times.of_route(way.wires, way.servers) for way in ways if way.wires]
        _set(routes, [number for number, way in enumerate(ways, first) if way.wires], _columns(times))
        return first

    def _way(self, target: int, path: Path) -> _Way:
        if not path.network:
            return _Way(self._stages(path.hops), (), [], (), 0, target)
        after, reverse = path.out + len(path.wires), self._platform.way_back(path.wires, path.key)
        out, back = self._stages(path.hops[: path.out]), self._stages(path.hops[after:])
        return _Way(out, path.wires, back, tuple(reverse), path.key, target)

    def _stages(self, hops: Sequence[Hop]) -> _Stages:
        capacities = self._platform.resources.capacities
        return [(server, cost / capacities[server] * PS_PER_S) for server, cost in hops]

    def _new_flows(self, routes: Sequence[int]) -> range:
        """Make flows; the messages of each belong to one connection of a collective, or to one route."""
        network, ways = self._network, [self._way_of[route] for route in routes]
        stages, exits = [len(way.out) for way in ways], [len(way.back) for way in ways]
        both = list(map(sum, zip(stages, exits, strict=True)))
        first_stage = _starts(network.extend("stages", [each for way in ways for each in (*way.out, *way.back)]), both)
        columns = {
            "route": routes,
            "first_stage": first_stage,
            "stages": stages,
            "first_exit": list(map(sum, zip(first_stage, stages, strict=True))),
            "exits": exits,
        }
        network.add("receivers", len(ways))
        first = network.add("flows", len(ways))
        new = range(first, first + len(ways))
        _set(network.flows, new, columns)
        wired = [flow for flow, way in zip(new, ways, strict=True) if way.wires]
        if wired:
            _set(network.flows, wired, self._on_wire([way for way in ways if way.wires]))
        if self._law["device_queue"]:
            busiest = int(np.bincount(network.flows["source"][: first + len(ways)]).max())
            network.expect_burst(busiest * int(self._law["maximum_window"]))
        return new

    def _on_wire(self, ways: Sequence[_Way]) -> dict[str, Sequence[float]]:
        """Columns of flows that leave their hosts."""
        network, law, source = self._network, self._law, self._network.links["source"]
        hops = [len(way.wires) for way in ways]
        first, last = [way.wires[0] for way in ways], [way.reverse[0] for way in ways]
        here, there = source[first].tolist(), source[last].tolist()
        self._note_servers(ways, here, there)
        columns: dict[str, Sequence[float]] = {
            "key": [way.key for way in ways],
            "source": here,
            "target": there,
            "first_link": first,
            "last_link": last,
            "hops": hops,
            "endpoint": self._endpoints_of([(way.target, way.wires[-1]) for way in ways]),
            "law": [self._law_in_lanes(way) for way in ways],
            **_columns([self._times.of_flow(way.wires, way.reverse, way.servers) for way in ways]),
        }
        if law["one_path"]:
            links = [link for way in ways for link in (*way.wires, *way.reverse)]
            paths = _starts(network.extend("paths", links), [2 * each for each in hops])
            columns |= {"path": paths, "reverse_path": list(map(sum, zip(paths, hops, strict=True)))}
        else:
            columns |= {"path": [~node for node in there], "reverse_path": [~node for node in here]}
        span = int(law["span"])
        if law["recovery"]:
            columns["slot"] = _starts(network.add("scoreboard", 2 * span * len(ways)), [2 * span] * len(ways))
        if network.world["telemetry"][0]:
            entries = [(span + 1) * each for each in hops]
            columns["first_telemetry"] = _starts(network.add("telemetry", sum(entries)), entries)
        return columns

    def _law_in_lanes(self, way: _Way) -> int:
        """Give the law of a flow whose packets go by the lanes of its way, and answers by those of the way back."""
        if self._lanes is None:
            return 0
        data, back = (self._lanes.lane_of(wires) for wires in (way.wires, way.reverse))
        if data is None or back is None:
            nodes = self._platform.nodes
            ends = [nodes[self._network.links["source"][wires[0]]] for wires in (way.wires, way.reverse)]
            msg = f"no virtual lane of {self._lanes.count} is left for the way from {ends[0]} to {ends[1]}, as each "
            msg += "would close a circle: raise fabric.virtual_lanes, and fabric.switch.classes to as many"
            raise SimulationError(msg)
        if (data, back) not in self._law_of:
            law = np.array([self._law])
            law["data_class"], law["ack_class"] = data, back
            self._law_of[data, back] = self._network.add_law(law)
        return self._law_of[data, back]

    def _endpoints_of(self, targets: Sequence[tuple[int, int]]) -> list[int]:
        """Give the queue of what a receiver has not taken up yet, one for each NIC by whose wire it is reached."""
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


def _starts(first: int, counts: Sequence[int]) -> list[int]:
    """Give where each of some ranges begins that follow each other from `first` on."""
    return list(accumulate(counts[:-1], initial=first))


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Sequence[float]]:
    """Turn rows of the same columns into those."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _set(records: NDArray[np.void], rows: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
    """Fill in columns of some rows, in plain lists: for a single row arrays take several times as long."""
    where = slice(rows[0], rows[-1] + 1) if rows and rows[-1] - rows[0] == len(rows) - 1 else rows  # both ascend
    for name, values in columns.items():
        records[name][where] = values
