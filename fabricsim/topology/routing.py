"""Routes between NICs: equal-cost multipath, D-mod-k, dimension order, detours, and paths given one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import SimulationError, TraceError
from fabricsim.records.program import NONE
from fabricsim.scenario.fabric import Routing
from fabricsim.scenario.network import REDUCER
from fabricsim.topology import path_file
from fabricsim.topology.dependencies import Dependencies
from fabricsim.topology.detours import Detours
from fabricsim.topology.path_file import GivenPath
from fabricsim.topology.shortest_paths import distances_to, mix, shortest_path, walk_all
from fabricsim.topology.wires import Wires

DETOURS = ("valiant", "ugal")
"""Ways of routing that take longer ways than the shortest."""

_NO_PORT = 2**31
"""Of connections that take no given path."""

Given = dict[tuple[int, int], list[list[int]]]
"""Wires of the connections of a pair of NICs, by port; none of one that is routed all the same."""


@dataclass(frozen=True, eq=False)
class NextHops:
    """By which wires a switch may forward to a NIC: those that lead a hop nearer.

    `group_of`: group of ``switch * nics + nic``, switches numbered in the order of the nodes; -1 if no cable leads
        there.
    `groups`: group ``g`` is ``group_links[groups[g]:groups[g + 1]]``; destinations of one switch share a group if they
        share all wires.
    `group_links`: wires, within a group in order of their numbers.
    """

    group_of: NDArray[np.int32]
    groups: NDArray[np.int32]
    group_links: NDArray[np.int32]

    def without(self, wires: Iterable[int]) -> NextHops:
        """Leave some wires out of each group that has others."""
        sizes = np.diff(self.groups)
        group = np.repeat(np.arange(len(sizes)), sizes)
        kept = ~np.isin(self.group_links, np.fromiter(wires, np.int64))
        kept |= (np.bincount(group, kept, len(sizes)) == 0)[group]
        left = np.bincount(group, kept, len(sizes)).astype(np.int64)
        groups = np.concatenate([[0], np.cumsum(left)]).astype(np.int32)
        return NextHops(self.group_of, groups, self.group_links[kept])


def read_given(path: Path | str, wires: Wires, hosts: int, nics_per_host: int = 1) -> Given:
    """Read a file of paths over these wires.

    Raises TraceError if `fabricsim.topology.path_file.read` refuses the file, or a path names a node that is not there
        or passes from a node to another without a cable between them.
    """
    number = {node: index for index, node in enumerate(wires.nodes)}
    pairs = zip(wires.source.tolist(), wires.target.tolist(), strict=True)
    wire = {ends: index for index, ends in reversed([*enumerate(pairs)])}  # of parallel cables the first
    given: Given = {}
    for way in path_file.read(path, hosts, nics_per_host):
        given.setdefault((way.source, way.target), []).append(_wires_of(path, way, number, wire))
    return given


def _wires_of(
    path: Path | str, way: GivenPath, number: Mapping[str, int], wire: Mapping[tuple[int, int], int]
) -> list[int]:
    for node in way.nodes:
        if node not in number:
            raise TraceError(path, f"the fabric has no node {node}; mend node_path", way.line)
    steps = []
    for here, there in pairwise(way.nodes):
        ends = (number[here], number[there])
        if ends not in wire:
            raise TraceError(path, f"no cable joins {here} and {there}; mend node_path", way.line)
        steps.append(wire[ends])
    return steps


class _Searched(NamedTuple):
    """What ways are searched in: the switches alone if each NIC has one cable, to a switch; else all nodes.

    `base`: number of the first node; nodes are counted from it.
    `wires`: number of each wire.
    `first`, `target`, `cost`, `rank`: as of `Wires`.
    """

    base: int
    wires: NDArray[np.int64]
    first: NDArray[np.int64]
    target: NDArray[np.int64]
    cost: NDArray[np.int32]
    rank: NDArray[np.int32]


def _searched(wires: Wires, rank: NDArray[np.int32], base: int) -> _Searched:
    inner = np.flatnonzero((wires.source >= base) & (wires.target >= base))
    first = np.searchsorted(wires.source[inner], np.arange(base, len(wires.nodes) + 1))
    return _Searched(base, inner, first, wires.target[inner] - base, wires.cost[inner], rank[inner])


class Router:
    """Finds ways over the wires.

    `wires`: the network; its first nodes are the NICs.
    `nics`: how many.
    `routing`: how to choose among equally short ways, or whether to take longer ones.
    `given`: paths that connections take instead.
    `fixed`: whether all connections between two edge switches take the same way.
    """

    def __init__(self, wires: Wires, nics: int, routing: Routing, given: Given, *, fixed: bool = False) -> None:
        self._wires = wires
        self._nics = nics
        self.routing = routing
        self._given = given
        self._fixed = fixed
        self._rank = wires.rank if routing == "dimension-order" else np.zeros_like(wires.rank)
        self._gates = self._find_gates()
        self._gate_of: list[int] = self._gates.tolist()
        self._searched = _searched(wires, self._rank, nics if (self._gates >= nics).all() else 0)
        self._distances: dict[int, NDArray[np.int32]] = {}
        self._to_group: dict[int, NDArray[np.int32]] = {}
        self._detours = Detours(wires, self._gate_of, by_load=routing == "ugal")

    def _find_gates(self) -> NDArray[np.int64]:
        """Find the one neighbour of each NIC, or the NIC if it has not one.

        All ways to a NIC lead through its gate: what is near to that is near to all NICs behind it, so that
        distances are searched and kept once for each edge switch.
        """
        first = self._wires.first[: self._nics + 1]
        gates = np.arange(self._nics)
        single = np.diff(first) == 1
        gates[single] = self._wires.target[first[:-1][single]]
        return gates

    def _distances_to(self, gate: int) -> NDArray[np.int32]:
        if gate not in self._distances:
            self._distances[gate] = self._search(np.array([gate]))
        return self._distances[gate]

    def _distances_to_group(self, group: int) -> NDArray[np.int32]:
        if group not in self._to_group:
            self._to_group[group] = self._search(self._detours.members(group))
        return self._to_group[group]

    def _search(self, targets: NDArray[np.int64]) -> NDArray[np.int32]:
        graph, nodes = self._searched, len(self._searched.first) - 1
        distances = np.empty(nodes, np.int32)
        scratch = np.empty(nodes, np.int64), np.zeros(nodes, np.uint8)
        distances_to(graph.first, graph.target, graph.cost, targets - graph.base, distances, *scratch)
        return distances

    def _of_all(self, distances: NDArray[np.int32]) -> NDArray[np.int32]:
        """Put the NICs, which no way leads through, before those that were searched."""
        return np.concatenate([np.full(self._searched.base, NONE, np.int32), distances])

    def route(self, source: int, target: int, key: int, port: int) -> list[int]:
        """Find the wires from one NIC to another.

        `source`, `target`: nodes of NICs.
        `key`: what ECMP hashes, 32 bits.
        `port`: of the connection; it picks among the given paths of the pair.
        Raises SimulationError if no cable leads there.
        """
        given = self._given.get((source, target), [])
        if port < len(given) and given[port]:
            return list(given[port])
        if self._fixed:
            key = int(mix(self._gate_of[source] ^ mix(self._gate_of[target])))
        shortest = self._direct(source, target, key)
        if self.routing not in DETOURS:
            return shortest
        by_way_of = partial(self._by_way_of, source, target, key)
        return self._detours.route(source, target, key, shortest, by_way_of)

    def _direct(self, source: int, target: int, key: int) -> list[int]:
        """Find a shortest way from any node to a NIC."""
        wires, gate = self._wires, self._gate_of[target]
        distances = self._distances_to(gate)
        start = source if source >= self._searched.base else self._gate_of[source]
        if distances[start - self._searched.base] < 0:
            ends = f"{wires.nodes[source]} to {wires.nodes[target]}"
            msg = f"no cable leads from {ends}: join their switches, or set cluster.pxn if they are on two rails"
            raise SimulationError(msg)
        path = self._walk(distances, source, target, key)
        if gate != target:
            path.append(int(wires.reverse[wires.first[target]]))
        return path

    def _walk(self, distances: NDArray[np.int32], source: int, target: int, key: int) -> list[int]:
        base, numbers, *graph = self._searched
        path: list[int] = []
        if source < base:
            path.append(int(self._wires.first[source]))
            source = self._gate_of[source]
        walked = np.empty(min(int(distances[source - base]), len(distances)), np.int64)
        by_host = self.routing == "d-mod-k"
        label = target if by_host else key
        count = shortest_path(tuple(graph), distances, source - base, label, by_host, base, walked, 0)
        path += numbers[walked[:count]].tolist()
        return path

    @property
    def is_plain(self) -> bool:
        """Whether each connection takes a shortest way by its own ends and port, and each NIC has one cable."""
        return not (self._fixed or self._given or self.routing in DETOURS) and self._searched.base > 0

    def route_all(
        self, sources: NDArray[np.int64], targets: NDArray[np.int64], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find what `route` does for many pairs of NICs, if `is_plain`.

        Distances are searched for one edge switch after the other, and not kept.

        Returns: how many wires each has, and all of these, pair by pair.
        Raises SimulationError if no cable leads there.
        """
        base, numbers, *graph = self._searched
        counts, order = np.zeros(len(sources), np.int64), np.argsort(self._gates[targets], kind="stable")
        found: list[NDArray[np.int64]] = []
        gates, begins = np.unique(self._gates[targets[order]], return_index=True)
        for gate, pairs in zip(gates.tolist(), np.split(order, begins[1:]), strict=False):
            distances, starts = self._search(np.array([gate])), self._gates[sources[pairs]] - base
            alone = np.flatnonzero(distances[starts] < 0)
            if len(alone):
                self._direct(int(sources[pairs[alone[0]]]), int(targets[pairs[alone[0]]]), 0)
            path = np.empty(int(np.minimum(distances[starts], len(distances)).sum()), np.int64)
            place, by_host = np.zeros(len(pairs) + 1, np.int64), self.routing == "d-mod-k"
            labels = (targets if by_host else keys)[pairs]
            walk_all(tuple(graph), distances, base, starts, labels, by_host, place, path)
            counts[pairs] = np.diff(place) + 2
            found.append(numbers[path[: place[-1]]])
        wires = np.empty(int(counts.sum()), np.int64)
        ends = np.cumsum(counts)
        wires[ends - counts] = self._wires.first[sources]
        wires[ends - 1] = self._wires.reverse[self._wires.first[targets]]
        inner = counts[order] - 2
        shift = np.repeat((ends - counts)[order] + 1 - (np.cumsum(inner) - inner), inner)
        wires[shift + np.arange(len(shift))] = np.concatenate(found) if found else 0
        return counts, wires

    def _by_way_of(self, source: int, target: int, key: int, group: int) -> list[int]:
        """Go to the nearest switch of a group, and from there to a NIC."""
        out = self._walk(self._distances_to_group(group), source, target, key)
        return out + self._direct(int(self._wires.target[out[-1]]), target, key)

    def way_back(self, wires: Sequence[int], key: int) -> list[int]:
        """Find the wires of what answers: those of the way there, but in dimension order a shortest way of its own."""
        if self.answers_alike:
            ends = self._wires.target[wires[-1]], self._wires.source[wires[0]]
            return self.route(int(ends[0]), int(ends[1]), key, _NO_PORT)
        back: list[int] = self._wires.reverse[list(wires[::-1])].tolist()
        return back

    def dependencies(self) -> Dependencies:
        """Find which wires packets may wait for while they fill the buffer behind others, whatever is sent."""
        found, wires = Dependencies(self._wires, self._nics), self._wires
        none, onwards = np.zeros(len(wires.target), bool), np.zeros(len(wires.target), bool)
        gates, groups = self.gates(), list(map(int, np.unique(wires.group[wires.group >= 0])))
        for gate in gates:
            distances = self._of_all(self._distances_to(gate))
            near = self._near(distances)
            onwards |= near
            found.add_shortest(distances, near, np.array(gates), none)
        for group in groups if self.routing in DETOURS else []:
            distances = self._of_all(self._distances_to_group(group))
            found.add_shortest(distances, self._near(distances), np.array(gates), onwards)
        for ways in self._given.values():
            for way in filter(None, ways):
                found.add(way)
        return found

    def gates(self) -> list[int]:
        """List the switches next to NICs of hosts, each once."""
        return sorted(first := self._first_nics(), key=first.__getitem__)

    def _first_nics(self) -> dict[int, int]:
        """Give the first NIC at each switch next to NICs of hosts."""
        nodes = self._wires.nodes
        return {gate: nic for nic, gate in reversed([*enumerate(self._gate_of)]) if REDUCER not in nodes[nic]}

    def fixed(self) -> Router:
        """Make a router that gives all connections between two edge switches the same way."""
        return Router(self._wires, self._nics, self.routing, self._given, fixed=True)

    @property
    def answers_alike(self) -> bool:
        """Whether answers take the ways that data takes, and not those of the data that they answer."""
        return self.routing == "dimension-order"

    def ways(self, *, every: bool = False) -> Iterator[list[int]]:
        """Yield the way between each two edge switches, or between every pair of NICs; and given ones."""
        nics = [nic for nic in range(self._nics) if REDUCER not in self._wires.nodes[nic]]
        for source, target in permutations(nics if every else self._first_nics().values(), 2):
            yield self.route(source, target, 0, _NO_PORT)
        yield from (way for ways in self._given.values() for way in ways if way)

    def _near(self, distances: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Tell which of all wires are on shortest ways, of the lowest rank of their node."""
        wires = self._wires
        left = distances[wires.source] - wires.cost
        near = (distances[wires.target] == left) & (left >= 0)
        lowest = np.full(len(wires.nodes), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(lowest, wires.source[near], self._rank[near])
        return np.asarray(near & (self._rank == lowest[wires.source]))

    def next_hops(self) -> NextHops:
        """Group the wires by which each switch may forward to each NIC."""
        wires, nics = self._wires, self._nics
        gates, gate_of = np.unique(self._gates, return_inverse=True)
        distances = np.stack([self._of_all(self._distances_to(gate)) for gate in gates.tolist()], axis=1)
        ports = int(np.diff(wires.first[nics:]).max(initial=0))
        bits = np.zeros((len(wires.nodes) - nics, len(gates), -(-ports // 32) * 4), np.uint8)  # of each port, by words
        for switch, row in enumerate(bits, nics):
            leaving = slice(wires.first[switch], wires.first[switch + 1])
            near = np.packbits(self._nearer(leaving, distances, switch), axis=0)
            row[:, : len(near)] = near.T
        numbers, switch_of, sets = _grouped(bits)
        of_set, port = np.nonzero(sets)
        links = wires.first[nics + switch_of[of_set]] + port
        # A switch forwards to its own NICs by a wire of each.
        behind = np.flatnonzero((self._gates >= nics) & (self._gates != np.arange(nics)))
        group_of = numbers[:, gate_of]
        group_of[self._gates[behind] - nics, behind] = len(sets) + np.arange(len(behind))
        links = np.concatenate([links, wires.reverse[wires.first[behind]]])
        sizes = np.concatenate([[0], sets.sum(axis=1), np.ones(len(behind), np.int64)])
        return NextHops(group_of.ravel(), np.cumsum(sizes).astype(np.int32), links.astype(np.int32))

    def _nearer(self, leaving: slice, distances: NDArray[np.int32], switch: int) -> NDArray[np.bool_]:
        """Tell which wires of a switch are on shortest ways, of the lowest rank; shape ``(wires, gates)``."""
        wires = self._wires
        left = distances[switch] - wires.cost[leaving, None]
        near = (distances[wires.target[leaving]] == left) & (left >= 0)
        rank = np.where(near, self._rank[leaving, None], np.iinfo(np.int32).max)
        return np.asarray(near & (rank == rank.min(axis=0, initial=np.iinfo(np.int32).max)))


def _grouped(bits: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """Give equal sets of ports of a switch one number.

    `bits`: a bit for each port, the first one highest, shape ``(switches, destinations, bytes)``, in words of 4 bytes.
    Returns: number of each switch and destination, switch by switch; -1 if there are no ports. Of each number, its
        switch and whether each port is in it.
    """
    switches, destinations, width = bits.shape
    rows = bits.reshape(switches * destinations, width)
    where = rank = np.repeat(np.arange(switches), destinations)
    for word in rows.view(">u4").T:
        _, where, rank = np.unique(rank << 32 | word, return_index=True, return_inverse=True)
    sets = np.unpackbits(rows[where], axis=1).astype(bool)
    some = sets.any(axis=1)
    numbers = np.where(some, np.cumsum(some) - 1, NONE)[rank].reshape(switches, destinations)
    return numbers.astype(np.int32), where[some] // destinations, sets[some]
