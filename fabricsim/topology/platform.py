"""The frozen platform: every resource of hosts and network, and the way between any two endpoints.

Endpoints are numbered: GPUs (ranks) first, then one host memory per host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import SimulationError
from fabricsim.kernels.path import distances_to, flow_hash, shortest_path
from fabricsim.topology.host import build_hosts
from fabricsim.topology.network import TOPOLOGIES
from fabricsim.topology.resources import Resources
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import NDArray

    from fabricsim.spec.cluster import Cluster
    from fabricsim.spec.fabric import Fabric, Switch
    from fabricsim.topology.host import Hop

NS_PER_METRE = 5.0
"""Propagation in fibre of refractive index 1.468 (4.90 ns/m) and copper (4.3 to 5 ns/m), rounded up."""

WIRE = "wire"
"""Kind of a resource: one direction of a cable."""


@dataclass(frozen=True)
class ProtocolCosts:
    """What a payload byte costs on its way.

    Parameters
    ----------
    wire
        Wire bytes per payload byte: headers, framing and adapter efficiency.
    send_copy, receive_copy
        CPU seconds per payload byte of the thread that moves the data; zero where the NIC does.
    packet
        Wire bytes of a full packet, for store-and-forward switches.
    staged
        Whether data passes through host memory even with GPUDirect.
    proxy_threads
        Threads of a GPU's process that share its copying.
    """

    wire: float
    send_copy: float
    receive_copy: float
    packet: int
    staged: bool
    proxy_threads: int = 1


@dataclass(frozen=True)
class Path:
    """The way of one connection.

    ``hops`` are pairs of resource index and cost per payload byte; ``latency`` is that of cables and
    switches, ps; ``network`` says whether it leaves the host.
    """

    hops: tuple[tuple[int, float], ...]
    latency: int
    network: bool


@dataclass(frozen=True)
class _Wires:
    """The network as a graph in CSR form; ``links[i]`` leads to ``neighbours[i]``."""

    nodes: tuple[str, ...]
    first: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    links: NDArray[np.int64]
    propagation: tuple[int, ...]  # per resource, ps


def _freeze(graph: nx.Graph, link_rate: float, resources: Resources) -> _Wires:
    nodes = tuple(graph.nodes)
    number = {node: index for index, node in enumerate(nodes)}
    first, neighbours, links, propagation = [0], [], [], []
    for node in nodes:
        for other, cable in sorted(graph[node].items(), key=lambda item: number[item[0]]):
            rate = link_rate if cable["rate"] is None else cable["rate"]
            links.append(resources.add(f"{node}->{other}", WIRE, rate))
            neighbours.append(number[other])
            propagation.append(round(cable["length"] * NS_PER_METRE * 1000))
        first.append(len(links))
    index = (np.array(first, np.int64), np.array(neighbours, np.int64), np.array(links, np.int64))
    return _Wires(nodes, *index, tuple(propagation))


class Platform:
    """All resources of a cluster on a fabric, and paths over them.

    Parameters
    ----------
    cluster, fabric, switch
        What is built.
    link_rate
        Rate of links for which the fabric names none, bytes/s.
    costs
        What the transport adds per byte.
    seed
        Of the ECMP hashes.
    """

    def __init__(  # noqa: PLR0913, PLR0917  what a platform is made of, in one place
        self, cluster: Cluster, fabric: Fabric, switch: Switch, link_rate: float, costs: ProtocolCosts, seed: int
    ) -> None:
        self.cluster = cluster
        self.switch = switch
        self.costs = costs
        self.seed = seed
        self._hash_seed = (seed ^ seed >> 31) % 2**31  # the upper half of a seed counts, too
        self.resources = Resources()
        self._wires = _freeze(TOPOLOGIES[fabric.topology](cluster.hosts, fabric), link_rate, self.resources)
        self._hosts = build_hosts(cluster, self.resources, costs.proxy_threads)
        self._distances: dict[int, NDArray[np.int64]] = {}
        self._ways_out: dict[int, list[Hop]] = {}
        self._ways_in: dict[int, list[Hop]] = {}

    @property
    def endpoints(self) -> int:
        """GPUs and host memories together."""
        return self.cluster.ranks + self.cluster.hosts

    def host_memory(self, host: int) -> int:
        """Endpoint number of a host's memory."""
        return self.cluster.ranks + host

    def host_of(self, endpoint: int) -> int:
        """Return the host of an endpoint."""
        ranks = self.cluster.ranks
        return endpoint // self.cluster.gpus_per_host if endpoint < ranks else endpoint - ranks

    def require_rank(self, rank: int) -> None:
        """Refuse a rank that the cluster does not have, by a `SimulationError`."""
        self._require(rank, self.cluster.ranks)

    def _require(self, endpoint: int, count: int) -> None:
        if not 0 <= endpoint < count:
            last = self.cluster.ranks - 1
            msg = f"rank {endpoint} cannot be reached: the cluster has ranks 0 to {last}"
            raise SimulationError(msg)

    def path(self, source: int, target: int, port: int = 0) -> Path:
        """Find the way from one endpoint to another.

        Parameters
        ----------
        source, target
            Endpoint numbers.
        port
            Distinguishes connections of one pair; ECMP hashes it.

        Raises
        ------
        SimulationError
            Where there is no such endpoint, both are one, or no cable leads there.
        """
        for endpoint in (source, target):
            self._require(endpoint, self.endpoints)
        if source == target:
            msg = f"rank {source} cannot send to itself"
            raise SimulationError(msg)
        source_host, target_host = self.host_of(source), self.host_of(target)
        if source_host == target_host:
            hops = self._hosts[source_host].within(source, target)
            return Path(tuple(hops), 0, network=False)
        wires, latency = self._across(source_host, target_host, flow_hash(source, target, port, self._hash_seed))
        out, back = self._way_out(source), self._way_in(target)
        return Path((*out, *[(wire, self.costs.wire) for wire in wires], *back), latency, network=True)

    def _way_out(self, source: int) -> list[Hop]:
        if source not in self._ways_out:
            host = self._hosts[self.host_of(source)]
            self._ways_out[source] = host.leave(source, self.costs.send_copy, staged=self.costs.staged)
        return self._ways_out[source]

    def _way_in(self, target: int) -> list[Hop]:
        if target not in self._ways_in:
            host = self._hosts[self.host_of(target)]
            self._ways_in[target] = host.enter(target, self.costs.receive_copy, staged=self.costs.staged)
        return self._ways_in[target]

    def _across(self, source: int, target: int, key: int) -> tuple[list[int], int]:
        wires = self._wires
        if target not in self._distances:
            distances = np.empty(len(wires.nodes), np.int64)
            distances_to(wires.first, wires.neighbours, target, distances, np.empty(len(wires.nodes), np.int64))
            self._distances[target] = distances
        distances = self._distances[target]
        if distances[source] < 0:
            msg = f"no cable leads from host{source} to host{target}"
            raise SimulationError(msg)
        walked = np.empty(int(distances[source]), np.int64)
        shortest_path(wires.first, wires.neighbours, wires.links, distances, source, key, walked)
        path: list[int] = walked.tolist()
        latency = sum([wires.propagation[wire] for wire in path]) + (len(path) - 1) * self.switch.latency
        if self.switch.forwarding == "store-and-forward":
            rates = [self.resources.capacities[wire] for wire in path[1:]]
            latency += sum(round(self.costs.packet / rate * PS_PER_S) for rate in rates)
        return path, latency
