"""The network frozen to arrays: its nodes, and both directions of each of its cables."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import networkx as nx
    from numpy.typing import NDArray

    from fabricsim.scenario.network import Cable, Link, Network
    from fabricsim.topology.resources import ResourceList

NS_PER_METRE = 5.0
"""Propagation in fibre of refractive index 1.468 (4.90 ns/m) and copper (4.3 to 5 ns/m), rounded up."""

WIRE = "wire"
"""Kind of a resource: one direction of a cable."""


@dataclass(frozen=True, eq=False)
class Wires:
    """Nodes, and the directed wires between them, sorted by source and then by target.

    A wire's number is that of its resource. With ``first`` and ``target`` the wires are a graph in CSR form.

    Attributes
    ----------
    nodes
        Names, the NICs first, in order of hosts and of NICs in each.
    first
        Wires ``first[node]`` to ``first[node + 1] - 1`` leave a node, shape ``(nodes + 1,)``.
    source, target
        Nodes that a wire joins, shape ``(wires,)``.
    reverse
        The wire of the other direction, shape ``(wires,)``.
    rate
        Bytes/s, shape ``(wires,)``.
    propagation
        ps, shape ``(wires,)``.
    cost
        What routing adds up, shape ``(wires,)``.
    rank
        In dimension-order routing, lower ones come first, shape ``(wires,)``.
    group
        Of each node that detours lead through, -1 of others, shape ``(nodes,)``.
    names
        Such as ``"host0->leaf0"``; of parallel cables ``"leaf0->spine0#0"``, ``"leaf0->spine0#1"``.
    """

    nodes: tuple[str, ...]
    first: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    reverse: NDArray[np.int64]
    rate: NDArray[np.float64]
    propagation: NDArray[np.int64]
    cost: NDArray[np.int32]
    rank: NDArray[np.int32]
    group: NDArray[np.int32]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Make the arrays read-only: a fabric that is built does not look at them again."""
        ways = (self.first, self.source, self.target, self.reverse)
        for values in (*ways, self.rate, self.propagation, self.cost, self.rank, self.group):
            values.flags.writeable = False

    def graph(self) -> nx.Graph:
        """Make a graph of the nodes; its edges carry ``rate``, bytes/s of all parallel cables, and ``propagation``, ps.

        It cannot be edited, since no run would notice; ``networkx.Graph(graph)`` is a copy that can.
        """
        import networkx as nx  # noqa: PLC0415  0.13 s that no run needs

        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        for source, target, rate, propagation in zip(
            self.source.tolist(), self.target.tolist(), self.rate.tolist(), self.propagation.tolist(), strict=True
        ):
            here, there = self.nodes[source], self.nodes[target]
            before = graph.edges[here, there]["rate"] if source < target and graph.has_edge(here, there) else 0.0
            if source < target:
                graph.add_edge(here, there, rate=before + rate, propagation=propagation)
        for beyond in graph._adj.values():  # noqa: SLF001  networkx freezes nodes and edges, not what they carry
            beyond |= {other: MappingProxyType(cable) for other, cable in beyond.items()}
        return nx.freeze(graph)


def _propagation(cable: Cable) -> int:
    return round(cable.length * NS_PER_METRE * 1000) if cable.delay is None else cable.delay


def freeze(network: Network, link_rate: float, resources: ResourceList) -> Wires:
    """Give nodes and wires their numbers, and enter the wires as the first resources.

    Parameters
    ----------
    network
        As a topology makes it.
    link_rate
        Of cables that name none, bytes/s.
    resources
        Still empty.
    """
    nodes, number, links = tuple(network.nodes), network.nodes, network.links
    times = np.array([link.times for link in links], np.int64)
    a, b = (np.repeat(np.array([number[end] for end in ends], np.int64), times) for ends in _ends(links))
    cables = {link.cable: None for link in links}
    kind = {cable: index for index, cable in enumerate(cables)}
    which = np.repeat(np.array([kind[link.cable] for link in links], np.int64), times)
    copy = np.arange(len(a)) - np.repeat(np.cumsum(times) - times, times)
    source, target = np.concatenate([a, b]), np.concatenate([b, a])
    which, copy, cable = np.tile(which, 2), np.tile(copy, 2), np.tile(np.arange(len(a)), 2)
    order = np.lexsort((copy, target, source))
    reverse = np.empty(len(order), np.int64)
    place = np.argsort(order)  # of each wire as joined
    reverse[place] = np.roll(place, len(a))
    source, target, which, copy = source[order], target[order], which[order], copy[order]
    several = np.repeat(times > 1, times)[cable[order]]
    names = tuple(_names(nodes, source.tolist(), target.tolist(), np.where(several, copy, NONE).tolist()))
    rate = np.array([link_rate if cable.rate is None else cable.rate for cable in cables], np.float64)[which]
    resources.add_all(names, WIRE, rate.tolist())
    group = np.full(len(nodes), NONE, np.int32)
    group[[number[node] for node in network.group]] = list(network.group.values())
    return Wires(
        nodes,
        np.searchsorted(source, np.arange(len(nodes) + 1)),
        source,
        target,
        reverse,
        rate,
        np.array([*map(_propagation, cables)], np.int64)[which],
        np.array([cable.cost for cable in cables], np.int32)[which],
        np.array([cable.rank for cable in cables], np.int32)[which],
        group,
        names,
    )


def _ends(links: Sequence[Link]) -> tuple[list[str], list[str]]:
    return [link.a for link in links], [link.b for link in links]


def _names(nodes: Sequence[str], source: list[int], target: list[int], copy: list[int]) -> Iterator[str]:
    for here, there, number in zip(source, target, copy, strict=True):
        yield f"{nodes[here]}->{nodes[there]}" if number < 0 else f"{nodes[here]}->{nodes[there]}#{number}"
