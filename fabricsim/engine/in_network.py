"""Switches as ends of messages: where algorithms reduce in the network, and the ways there."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fabricsim.collectives import by_host
from fabricsim.collectives.base import NETWORK, Group, counted
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import ALGORITHMS
from fabricsim.topology.host import Hop
from fabricsim.topology.platform import Path, Platform

_FIRST = 2**40  # endpoint number of the switch of host 0, beyond any that a user may name


@dataclass
class Switches:
    """Switches of a platform as endpoints: those of hosts, then the network's nodes. `platform`: hosts and network."""

    platform: Platform
    _ways: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    @property
    def _first_node(self) -> int:
        return _FIRST + self.platform.hosts

    @property
    def count(self) -> int:
        """How many switches there may be."""
        return self.platform.hosts + len(self.platform.nodes)

    def place(self, endpoint: int) -> int:
        """Count a switch among all of them, from 0."""
        return endpoint - _FIRST

    def at(self, place: int) -> int:
        """Return the endpoint number of the switch at a `place`."""
        return _FIRST + place

    def is_switch(self, endpoint: int) -> bool:
        """Whether an endpoint is a switch, not a GPU or host memory."""
        return endpoint >= _FIRST

    def is_in_network(self, endpoint: int) -> bool:
        """Whether an endpoint is a switch of the network."""
        return endpoint >= self._first_node

    def called(self, endpoint: int) -> str:
        """Name an end of messages for a reader, such as ``"spine0"`` or ``"rank 3 (host1)"``."""
        if not self.is_switch(endpoint):
            return self.platform.called(endpoint)
        if self.is_in_network(endpoint):
            return self.platform.nodes[endpoint - self._first_node]
        return f"the switch of host{endpoint - _FIRST}"

    def reducer(self, endpoint: int) -> int | None:
        """Give the node of the adapter by which packets reach a switch; None if it has none, or is no switch."""
        return self.platform.reducer(endpoint - self._first_node)

    def group_for(self, collective: str, algorithm: str, ranks: Sequence[int]) -> Group | None:
        """Say where ranks are to an algorithm that looks at it; None to others."""
        if not by_host(collective, algorithm):
            return None
        found = ALGORITHMS.find(algorithm)
        return self.group(ranks, with_leaves=found is not None and found.switches == "network")

    def group(self, ranks: Sequence[int], *, with_leaves: bool) -> Group:
        """Say where ranks are; their first switches only if they are asked for."""
        hosts = [self.platform.host_of(rank) for rank in ranks]
        leaves = counted([self._leaf(ranks, rank) for rank in ranks]) if with_leaves else (0,) * len(hosts)
        return Group(counted(hosts), leaves)

    def _leaf(self, ranks: Sequence[int], rank: int) -> int:
        """Node of the first switch on a rank's way to a rank of another host; 0 if there is none."""
        own = self.platform.host_of(rank)
        other = next((peer for peer in ranks if self.platform.host_of(peer) != own), None)
        if other is None:
            return 0
        wires, hops = self.platform.wires, self.platform.path(rank, other).hops
        return int(wires.target[next(resource for resource, _ in hops if resource < len(wires.names))])

    def endpoints(self, ranks: Sequence[int], switches: Sequence[int]) -> list[int]:
        """Endpoint of each of a template's switches, as `Template.switches` names them."""
        if not switches:
            return []
        hosts = list(dict.fromkeys(self.platform.host_of(rank) for rank in ranks))
        nodes: list[int] = []
        if min(switches) <= NETWORK:
            nodes = list(dict.fromkeys(self._leaf(ranks, rank) for rank in ranks))
            nodes.append(self._root(nodes))
        return [
            _FIRST + hosts[switch] if switch >= 0 else self._first_node + nodes[NETWORK - switch] for switch in switches
        ]

    def _root(self, leaves: Sequence[int]) -> int:
        """Find the switch in the middle between the first of some switches and the one farthest from it."""
        ways = [self._way(leaves[0], leaf) for leaf in leaves]
        longest = max(ways, key=len)
        return int(self.platform.wires.target[longest[(len(longest) - 1) // 2]]) if longest else leaves[0]

    def _way(self, source: int, target: int) -> list[int]:
        """Wires of a shortest way between two switches; of several that with the lowest numbers first."""
        if (source, target) not in self._ways:
            self._ways[source, target] = self._search(source, target)
        return self._ways[source, target]

    def _search(self, source: int, target: int) -> list[int]:
        wires = self.platform.wires
        came: dict[int, int | None] = {source: None}
        queue = deque([source])
        while queue and target not in came:
            node = queue.popleft()
            for wire in range(int(wires.first[node]), int(wires.first[node + 1])):
                beyond = int(wires.target[wire])
                if beyond not in came:
                    came[beyond] = wire
                    queue.append(beyond)
        if target not in came:
            raise SimulationError(f"no cable leads from switch {wires.nodes[source]} to {wires.nodes[target]}")
        way: list[int] = []
        wire_in = came[target]
        while wire_in is not None:
            way.append(wire_in)
            wire_in = came[int(wires.source[wire_in])]
        return way[::-1]

    def path(self, source: int, target: int, port: int) -> Path:
        """Find the way between two ends of which one at least is a switch.

        Raises SimulationError if a host's GPUs are not joined by a switch, or a rank does not reach the switch.
        """
        if self.is_in_network(source) or self.is_in_network(target):
            return self._network_path(source, target, port)
        if self.platform.cluster.intra_host != "nvlink":
            msg = 'nvls needs the switch of a host: set cluster.intra_host = "nvlink", or choose another algorithm'
            raise SimulationError(msg)
        if self.is_switch(target):
            return Path(tuple(self.platform.within(source, self._neighbour(source))[:1]), 0, network=False)
        return Path(tuple(self.platform.within(self._neighbour(target), target)[-1:]), 0, network=False)

    def _neighbour(self, rank: int) -> int:
        """Another GPU of a rank's host."""
        first = self.platform.host_of(rank) * self.platform.cluster.gpus_per_host
        return first if rank != first else first + 1

    def _network_path(self, source: int, target: int, port: int) -> Path:
        platform, wires = self.platform, self.platform.wires
        reducers = [self.reducer(end) for end in (source, target)]
        if self.is_in_network(source) and self.is_in_network(target):
            way = self._way(source - self._first_node, target - self._first_node)
            if None not in reducers:
                return self._packets((), way, (), reducers)
            hops = tuple((wire, platform.costs.wire) for wire in way)
            return Path(hops, self._latency(way), network=True)
        rank, node = (source, target) if self.is_in_network(target) else (target, source)
        outwards = rank == source
        for host in range(platform.hosts):
            other = host * platform.cluster.gpus_per_host
            if platform.host_of(rank) == host:
                continue
            path = platform.path(*((rank, other) if outwards else (other, rank)), port)
            on_wire = [at for at, (resource, _) in enumerate(path.hops) if resource < len(wires.names)]
            at = on_wire[0 if outwards else -1]
            wire = path.hops[at][0]
            if (wires.target if outwards else wires.source)[wire] == node - self._first_node:
                if self.reducer(node) is not None:
                    ends = (path.hops[:at], ()) if outwards else ((), path.hops[at + 1 :])
                    return self._packets(ends[0], [wire], ends[1], reducers)
                hops, out = (path.hops[: at + 1], at) if outwards else (path.hops[at:], 0)
                return Path(hops, self._latency([wire]), network=True, out=out)
        raise SimulationError(f"rank {rank} has no cable to switch {wires.nodes[node - self._first_node]}")

    def _packets(self, out: Sequence[Hop], way: Sequence[int], back: Sequence[Hop], ends: Sequence[int | None]) -> Path:
        """Find the way of packets over some wires, from and to the adapters inside of switches at its ends."""
        first, reverse = self.platform.wires.first, self.platform.wires.reverse
        up, down = ([] if end is None else [int(first[end])] for end in ends)
        wires = [*up, *way, *(int(reverse[wire]) for wire in down)]
        hops = (*out, *[(wire, self.platform.costs.wire) for wire in wires], *back)
        return Path(hops, self.platform.latency(wires), network=True, out=len(out), wires=tuple(wires))

    def _latency(self, way: Sequence[int]) -> int:
        """Time over wires and through the switches at which each begins or ends, ps."""
        return sum(int(self.platform.wires.propagation[wire]) + self.platform.switch.latency for wire in way)
