"""Routes between NICs: equal-cost multipath, D-mod-k, and paths given one by one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import SimulationError, TraceError
from fabricsim.kernels.path import d_mod_k_path, distances_to, shortest_path
from fabricsim.tables import NONE
from fabricsim.traces import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Literal

    from numpy.typing import NDArray

    from fabricsim.topology.wires import Wires
    from fabricsim.traces.paths import GivenPath

Given = dict[tuple[int, int], list[list[int]]]
"""Wires of the connections of a pair of NICs, by port."""


@dataclass(frozen=True, eq=False)
class NextHops:
    """By which wires a switch may forward to a NIC: those that lead a hop nearer.

    Attributes
    ----------
    group_of
        Group of ``switch * nics + nic``, switches numbered in the order of the nodes; -1 where no cable leads there.
    groups
        Group ``g`` is ``group_links[groups[g]:groups[g + 1]]``; destinations of one switch share a group where they
        share all wires.
    group_links
        Wires, within a group in order of their numbers.
    """

    group_of: NDArray[np.int32]
    groups: NDArray[np.int32]
    group_links: NDArray[np.int32]


def read_given(path: Path | str, wires: Wires, hosts: int, nics_per_host: int = 1) -> Given:
    """Read a file of paths over these wires.

    Raises
    ------
    TraceError
        Where `fabricsim.traces.paths.read` refuses the file, or a path names a node that is not there or passes from a
        node to another without a cable between them.
    """
    number = {node: index for index, node in enumerate(wires.nodes)}
    wire = {ends: index for index, ends in enumerate(zip(wires.source.tolist(), wires.target.tolist(), strict=True))}
    given: Given = {}
    for way in paths.read(path, hosts, nics_per_host):
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


class Router:
    """Finds ways over the wires.

    Parameters
    ----------
    wires
        The network; its first nodes are the NICs.
    nics
        How many.
    routing
        How to choose among equally short ways.
    given
        Paths that connections take instead.
    """

    def __init__(self, wires: Wires, nics: int, routing: Literal["ecmp", "d-mod-k"], given: Given) -> None:
        self._wires = wires
        self._nics = nics
        self._routing = routing
        self._given = given
        self._links = np.arange(len(wires.target))
        self._gates = self._find_gates()
        self._gate_of: list[int] = self._gates.tolist()
        self._distances: dict[int, NDArray[np.int32]] = {}

    def _find_gates(self) -> NDArray[np.int64]:
        """Find the one neighbour of each NIC, or the NIC where it has not one.

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
            wires = self._wires
            distances = np.empty(len(wires.nodes), np.int32)
            distances_to(wires.first, wires.target, gate, distances, np.empty(len(wires.nodes), np.int64))
            self._distances[gate] = distances
        return self._distances[gate]

    def route(self, source: int, target: int, key: int, port: int) -> list[int]:
        """Find the wires from one NIC to another.

        Parameters
        ----------
        source, target
            Nodes of NICs.
        key
            What ECMP hashes, 32 bits.
        port
            Of the connection; it picks among the given paths of the pair.

        Raises
        ------
        SimulationError
            Where no cable leads there.
        """
        given = self._given.get((source, target), [])
        if port < len(given):
            return list(given[port])
        wires = self._wires
        gate = self._gate_of[target]
        distances = self._distances_to(gate)
        length = int(distances[source])
        if length < 0:
            ends = f"{wires.nodes[source]} to {wires.nodes[target]}"
            msg = f"fabric.links: no cable leads from {ends}; write cables that join their switches"
            raise SimulationError(msg)
        walked = np.empty(length, np.int64)
        if self._routing == "ecmp":
            shortest_path(wires.first, wires.target, self._links, distances, source, key, walked)
        else:
            d_mod_k_path(wires.first, wires.target, self._links, distances, source, target, walked)
        path: list[int] = walked.tolist()
        if gate != target:
            path.append(int(wires.reverse[wires.first[target]]))
        return path

    def next_hops(self) -> NextHops:
        """Group the wires by which each switch may forward to each NIC."""
        wires, nics = self._wires, self._nics
        gates, gate_of = np.unique(self._gates, return_inverse=True)
        distances = np.stack([self._distances_to(gate) for gate in gates.tolist()], axis=1)
        by_gate = np.empty((len(wires.nodes) - nics, len(gates)), np.int32)
        sizes, links, count = [], [], 0
        for switch, row in enumerate(by_gate):
            leaving = np.arange(wires.first[nics + switch], wires.first[nics + switch + 1])
            nearer = distances[wires.target[leaving]] == distances[nics + switch] - 1
            row[:], sets = _grouped(nearer.T, count)
            sizes.append(sets.sum(axis=1))
            links.append(leaving[np.nonzero(sets)[1]])
            count += len(sets)
        # A switch forwards to its own NICs by a wire of each.
        behind = np.flatnonzero((self._gates >= nics) & (self._gates != np.arange(nics)))
        group_of = by_gate[:, gate_of]
        group_of[self._gates[behind] - nics, behind] = count + np.arange(len(behind))
        sizes.append(np.ones(len(behind), np.int64))
        links.append(wires.reverse[wires.first[behind]])
        groups = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return NextHops(group_of.ravel(), groups.astype(np.int32), np.concatenate(links).astype(np.int32))


def _grouped(rows: NDArray[np.bool_], start: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Give equal rows one number, from `start`; returns the number of each row, and the row of each number.

    Rows without any true value have the number -1.
    """
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    words = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, where, which = np.unique(words, return_index=True, return_inverse=True)
    sets = rows[where]
    some = sets.any(axis=1)
    numbers = np.where(some, start + np.cumsum(some) - 1, NONE)
    return numbers[which].astype(np.int32), sets[some]
