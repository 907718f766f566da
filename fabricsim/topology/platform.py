"""The frozen platform: every resource of hosts and network, and the way between any two endpoints.

Endpoints are numbered: GPUs (ranks) first, then one host memory per host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.errors import SimulationError
from fabricsim.scenario.network import Ends
from fabricsim.topology.dependencies import VirtualLanes
from fabricsim.topology.hop_lists import Paths, in_hosts, joined
from fabricsim.topology.host import Hop, HostKinds, HostPorts, Hosts, ProtocolCosts
from fabricsim.topology.resources import ResourceList
from fabricsim.topology.routing import Given, NextHops, Router, read_given
from fabricsim.topology.shortest_paths import flow_hash, hash_all
from fabricsim.topology.wires import WIRE, Wires, freeze, network_of
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fabricsim.scenario.cluster import Cluster
    from fabricsim.scenario.fabric import FabricSpec, SwitchSpec

__all__ = ["WIRE", "Path", "Platform", "ProtocolCosts"]


class Path(NamedTuple):
    """The way of one connection.

    ``hops`` are pairs of resource index and cost per payload byte; ``latency`` is that of cables and
    switches, ps; ``network`` says whether it leaves the host. Of a way from NIC to NIC, ``wires`` are
    those that it crosses, ``out`` is how many hops come before them, and ``key`` is what `Platform.key` makes of it.
    ``shares`` of a payload byte go by each hop; none given: all of it.
    """

    hops: tuple[tuple[int, float], ...]
    latency: int
    network: bool
    out: int = 0
    wires: tuple[int, ...] = ()
    key: int = 0
    shares: tuple[float, ...] = ()

    def shared_hops(self) -> Iterator[tuple[int, float, float]]:
        """Give each resource, what of a payload byte crosses it, and its cost."""
        for (resource, cost), share in zip(self.hops, self.shares or (1.0,) * len(self.hops), strict=True):
            yield resource, share, cost


class Platform:
    """All resources of a cluster on a fabric, and paths over them.

    `cluster`, `fabric`, `switch`: what is built.
    `link_rate`: rate of links for which the fabric names none, bytes/s.
    `costs`: what the transport adds per byte.
    `seed`: of the ECMP hashes.
    `kinds`: of hosts, if they are not all alike.
    `reduces`: whether switches have an adapter each by which packets reach what adds them up.

    `hosts`: how many there are. `endpoints`: GPUs and host memories together.
    `nics`: how many there are; their nodes are the first of the network, host by host, then those in switches.
    `nodes`: names of NICs and switches by node number; if a host has one NIC, that has the host's name and number.
    `embedded`: nodes of switches inside of hosts or their adapters.
    `wires`: both directions of all cables; the number of a wire is that of its resource.
    """

    def __init__(  # noqa: PLR0913, PLR0917  what a platform is made of, in one place
        self,
        cluster: Cluster,
        fabric: FabricSpec,
        switch: SwitchSpec,
        link_rate: float,
        costs: ProtocolCosts,
        seed: int,
        kinds: HostKinds | None = None,
        *,
        reduces: bool = False,
    ) -> None:
        self.cluster = cluster
        self._ranks, self._per_host = cluster.ranks, cluster.gpus_per_host
        self.hosts, self.endpoints = cluster.hosts, cluster.ranks + cluster.hosts
        self.switch = switch
        self.costs = costs
        self.seed = seed
        self._hash_seed = (seed ^ seed >> 31) % 2**31  # the upper half of a seed counts, too
        resources = ResourceList()
        hosts, nics = cluster.hosts, cluster.nics_per_host
        ends = Ends(hosts, nics)
        network = network_of(fabric, ends)
        reducers = network.add_reducers(ends, link_rate) if reduces else {}
        self.nics = ends.count + -(-len(reducers) // nics) * nics
        self.embedded = frozenset(network.nodes[name] for name in network.embedded)
        self._reducer = {network.nodes[switch]: network.nodes[name] for switch, name in reducers.items()}
        self.wires = freeze(network, link_rate, resources, fabric)
        self.nodes = self.wires.nodes
        speed = cluster.host_speed.of(hosts, seed, "host speed")
        self.kinds = HostKinds(((cluster, costs),), [0] * hosts) if kinds is None else kinds
        self._hosts = Hosts(self.kinds, speed, resources)
        self.resources = resources.done()
        self._given = {} if fabric.paths is None else read_given(fabric.paths, self.wires, hosts, nics)
        self._routing, self._fixed = fabric.routing, fabric.virtual_lanes > 1
        self.router = self._around = self._route_over(self.wires, self._given)
        self.withdrawn: frozenset[int] = frozenset()
        lanes = fabric.virtual_lanes
        self.lanes = VirtualLanes(self.wires, self.nics, lanes) if lanes > 1 else None
        switching = self._list_switching()
        self._switched, self._delays = switching, self.wires.propagation + switching
        self._switching: list[int] = switching.tolist()
        self._delay: list[int] = self._delays.tolist()
        self._ways_out: dict[tuple[int, int | None, float, int, bool], list[Hop]] = {}  # of each kind of host
        self._ways_in: dict[tuple[int, int | None, float, int | None, bool], list[Hop]] = {}

    def reducer(self, switch: int) -> int | None:
        """Give the node of the adapter inside of a switch; None if it has none."""
        return self._reducer.get(switch)

    def host_memory(self, host: int) -> int:
        """Endpoint number of a host's memory."""
        return self._ranks + host

    def host_of(self, endpoint: int) -> int:
        """Return the host of an endpoint."""
        return endpoint // self._per_host if endpoint < self._ranks else endpoint - self._ranks

    def _ports(self, host: int) -> HostPorts:
        return self._hosts.ports[self._hosts.kind[host]]

    def _gpu(self, endpoint: int) -> int | None:
        """Give the number of a GPU in its host; None for a host's memory."""
        return endpoint % self._per_host if endpoint < self._ranks else None

    def nics_of(self, source: int, target: int, port: int = 0) -> tuple[int, int]:
        """Find the nodes of the NICs by which a message leaves one endpoint's host and enters another's.

        With ``nic_failover`` these are of another rail if routing knows that no way is left from the one to the other;
        the ports of a pair then take one such rail after the other.
        """
        here, there = self.host_of(source), self.host_of(target)
        own_nic = self._hosts.ports[0].own_nic
        enters = own_nic(self._gpu(target))
        leaves = enters if self.cluster.pxn else own_nic(self._gpu(source))
        per_host = self.cluster.nics_per_host
        own = here * per_host + leaves, there * per_host + enters
        if not (self.withdrawn and self.cluster.nic_failover) or here == there or self._is_joined(*own):
            return own
        rails = [(enters + turn) % per_host for turn in range(1, per_host)]
        others = [
            pair for rail in rails if self._is_joined(*(pair := (here * per_host + rail, there * per_host + rail)))
        ]
        return others[port % len(others)] if others else own

    def _is_joined(self, source_nic: int, target_nic: int) -> bool:
        """Whether routing knows a way from one NIC to another over nothing that is down."""
        try:
            return self.withdrawn.isdisjoint(self._around.route(source_nic, target_nic, 0, 0))
        except SimulationError:  # no cable leads there
            return False

    def require_rank(self, rank: int) -> None:
        """Refuse a rank that the cluster does not have, by a `SimulationError`."""
        self._require(rank, self._ranks)

    def _require(self, endpoint: int, count: int) -> None:
        if not 0 <= endpoint < count:
            last = self._ranks - 1
            raise SimulationError(f"rank {endpoint} cannot be reached: the cluster has ranks 0 to {last}")

    def path(self, source: int, target: int, port: int = 0) -> Path:
        """Find the way from one endpoint to another.

        `source`, `target`: endpoint numbers.
        `port`: distinguishes connections of one pair; ECMP hashes it.
        Raises SimulationError if there is no such endpoint, both are one, or no cable leads there.
        """
        if not (0 <= source < self.endpoints > target >= 0):
            self._require(source, self.endpoints)
            self._require(target, self.endpoints)
        if source == target:
            what = f"rank {source}" if source < self._ranks else f"the memory of host {self.host_of(source)}"
            raise SimulationError(f"{what} cannot send to itself: nothing would cross a link; leave the message out")
        if self.host_of(source) == self.host_of(target):
            return Path(tuple(self.within(source, target)), 0, network=False)
        nics = self.nics_of(source, target, port)
        key = self.key(source, target, port)
        wires = self.route_links(*nics, key, port)
        costs = self.kinds.hosts[self.spoken(source, target)][1]
        out = self._leaving(source, costs.send_copy, nics[0], costs)
        back = self.way_in(target, costs=costs, nic=nics[1])
        cost = costs.wire
        hops = (*out, *[(wire, cost) for wire in wires], *back)
        return Path(hops, self.latency(wires), network=True, out=len(out), wires=tuple(wires), key=key)

    def paths(self, sources: NDArray[np.int64], targets: NDArray[np.int64], ports: NDArray[np.int64]) -> Paths | None:
        """Find what `path` does for many pairs of GPUs of different hosts; None if their ways are not `is_plain`."""
        if self.withdrawn or len(self.kinds.hosts) > 1 or not self.router.is_plain:
            return None
        per_host, ports_of = self.cluster.nics_per_host, self._hosts.ports[0]
        own_nic = np.array([ports_of.own_nic(gpu) for gpu in range(self._per_host)])
        (here, gpu), (there, other) = (np.divmod(ends, self._per_host) for ends in (sources, targets))
        enters = own_nic[other]
        leaves = enters if self.cluster.pxn else own_nic[gpu]
        keys = np.zeros(len(sources), np.int64)
        hash_all(sources, targets, ports, self._hash_seed, keys)
        count, wires = self.router.route_all(here * per_host + leaves, there * per_host + enters, keys)
        ends = np.cumsum(count)
        delay = np.concatenate([[0], np.cumsum(self._delays[wires])])
        latency = delay[ends] - delay[ends - count] - self._switched[wires[ends - count]]
        staged, costs = self.costs.staged, self.costs
        ways_out, ways_in = (
            [way(gpu, copy, staged=staged, nic=nic) for gpu in range(self._per_host) for nic in range(per_host)]
            for way, copy in ((ports_of.leave, costs.send_copy), (ports_of.enter, costs.receive_copy))
        )
        first = np.array(self._hosts.first)
        parts = [
            in_hosts(ways_out, gpu * per_host + leaves, first[here]),
            (count, wires, np.full(len(wires), costs.wire)),
            in_hosts(ways_in, other * per_host + enters, first[there]),
        ]
        return Paths(latency, *joined(parts))

    def paths_within(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> Paths | None:
        """Find what `path` does for many pairs of GPUs of one host each; None if hosts are not all alike."""
        if len(self.kinds.hosts) > 1:
            return None
        gpus, ports = range(self._per_host), self._hosts.ports[0]
        ways = [ports.within(gpu, other) if gpu != other else () for gpu in gpus for other in gpus]
        (here, gpu), other = np.divmod(sources, self._per_host), targets % self._per_host
        lists = in_hosts(ways, gpu * self._per_host + other, np.array(self._hosts.first)[here])
        return Paths(np.zeros(len(sources), np.int64), *lists)

    def key(self, source: int, target: int, port: int = 0) -> int:
        """Hash a connection for ECMP: endpoint numbers and port, 32 bits."""
        return int(flow_hash(source, target, port, self._hash_seed))

    def route_links(self, source_nic: int, target_nic: int, key: int, port: int = 0) -> list[int]:
        """Find the wires from one NIC to another, by the fabric's routing or its given paths.

        `source_nic`, `target_nic`: two nodes, such as `nics_of` gives.
        `key`: of the connection, as `key` makes it; only ECMP looks at it.
        `port`: of the connection; it picks among the given paths of the pair.
        Returns: numbers of wires in the order in which they are crossed.
        Raises SimulationError if no cable leads there.
        """
        way = self.router.route(source_nic, target_nic, key, port)
        return way if self.withdrawn.isdisjoint(way) else self._around.route(source_nic, target_nic, key, port)

    def way_back(self, wires: Sequence[int], key: int) -> list[int]:
        """Find the wires of what answers, as `Router.way_back` does, around those that are withdrawn."""
        way = self.router.way_back(wires, key)
        return way if self.withdrawn.isdisjoint(way) else self._around.way_back(wires, key)

    def _route_over(self, wires: Wires, given: Given) -> Router:
        return Router(wires, self.nics, self._routing, given, fixed=self._fixed)

    def withdraw(self, wires: frozenset[int]) -> None:
        """Have ways lead around some wires, but where only these lead to a NIC; other ways stay as they are.

        A connection whose given path crosses one is routed.
        """
        self.withdrawn, self._around = wires, self.router
        if wires:
            given = {pair: [way if wires.isdisjoint(way) else [] for way in ways] for pair, ways in self._given.items()}
            self._around = self._route_over(self.wires.without(wires), given)

    def called(self, endpoint: int) -> str:
        """Name an endpoint for a reader, such as ``"rank 3 (host1)"``."""
        host = f"host{self.host_of(endpoint)}"
        return f"rank {endpoint} ({host})" if endpoint < self._ranks else f"the memory of {host}"

    def next_hops(self) -> NextHops:
        """Group the wires by which each switch may forward to each NIC, for a choice made packet by packet.

        Given paths do not count here, nor does the choice of D-mod-k.
        """
        return self._around.next_hops()

    def within(self, source: int, target: int) -> list[Hop]:
        """List the hops between two endpoints of one host."""
        host = self.host_of(source)
        return self._hosts.of(host, self._ports(host).within(self._gpu(source), self._gpu(target)))

    def linked(self, rank: int, ranks: Iterable[int]) -> list[int]:
        """List the ranks of a group on a rank's host to which NVLinks lead, each in proportion to their number.

        There are none if a switch joins the GPUs of the host, or if links do not lead to all of the group on it.
        """
        host = self.host_of(rank)
        mesh, first = self._ports(host).mesh, host * self._per_host
        gpus = [other - first for other in ranks if self.host_of(other) == host]
        if mesh is None or not mesh.is_whole(gpus):
            return []
        return [first + gpu for gpu in mesh.partners(rank - first, gpus)]

    def way_out(self, source: int, copy: float | None = None, *, target: int | None = None) -> list[Hop]:
        """List the hops from an endpoint's memory onto the wire.

        `source`: endpoint number.
        `copy`: CPU seconds per payload byte of the sending thread; that of the transport if left out.
        `target`: endpoint to be reached, on which the NIC may depend; without it the source's own NIC is taken.
        """
        costs = self.kinds.hosts[self.spoken(source, source if target is None else target)][1]
        copy = costs.send_copy if copy is None else copy
        nic = self.nics_of(source, target)[0] if target is not None else self.nics_of(source, source)[1]
        return self._leaving(source, copy, nic, costs)

    def spoken(self, source: int, target: int) -> int:
        """Give the number of the kind of hosts whose transport two endpoints speak."""
        kind = self.kinds.kind
        if len(self.kinds.hosts) == 1:
            return 0
        return self.kinds.spoken((kind[self.host_of(source)], kind[self.host_of(target)]))

    def _leaving(self, source: int, copy: float, nic: int, costs: ProtocolCosts) -> list[Hop]:
        """List the hops from an endpoint's memory onto the wire of a NIC, by its node."""
        host, own = divmod(nic, self.cluster.nics_per_host)
        key = (self._hosts.kind[host], self._gpu(source), copy, own, costs.staged)
        if key not in self._ways_out:
            self._ways_out[key] = self._ports(host).leave(key[1], copy, staged=costs.staged, nic=own)
        return self._hosts.of(host, self._ways_out[key])

    def way_in(
        self, target: int, copy: float | None = None, *, costs: ProtocolCosts | None = None, nic: int | None = None
    ) -> list[Hop]:
        """List the hops from the wire into an endpoint's memory.

        `target`: endpoint number.
        `copy`: CPU seconds per payload byte of the receiving thread; that of the transport if left out.
        `costs`: of the transport; those of the cluster's if left out.
        `nic`: node of the NIC by which it enters; the target's own if left out.
        """
        costs = costs or self.costs
        copy = costs.receive_copy if copy is None else copy
        host = self.host_of(target)
        number = None if nic is None else nic % self.cluster.nics_per_host
        key = (self._hosts.kind[host], self._gpu(target), copy, number, costs.staged)
        if key not in self._ways_in:
            self._ways_in[key] = self._ports(host).enter(*key[1:3], staged=costs.staged, nic=number)
        return self._hosts.of(host, self._ways_in[key])

    def latency(self, path: Sequence[int]) -> int:
        """Time over cables and through switches, ps."""
        return sum([self._delay[wire] for wire in path]) - self._switching[path[0]]

    def _list_switching(self) -> NDArray[np.int64]:
        """Time that a full packet takes at the switch from which each wire leads, ps."""
        stored = np.zeros(len(self.wires.rate))
        if self.switch.forwarding == "store-and-forward":
            stored = np.rint(self.costs.packet / self.wires.rate * PS_PER_S)
        return stored.astype(np.int64) + self.switch.latency
