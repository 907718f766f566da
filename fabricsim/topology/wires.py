"""The network frozen to arrays: its nodes, and both directions of each of its cables."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import NDArray

    from fabricsim.topology.network import Cable, Network
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
    names
        Such as ``"host0->leaf0"``.
    """

    nodes: tuple[str, ...]
    first: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    reverse: NDArray[np.int64]
    rate: NDArray[np.float64]
    propagation: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Make the arrays read-only: a fabric that is built does not look at them again."""
        for values in (self.first, self.source, self.target, self.reverse, self.rate, self.propagation):
            values.flags.writeable = False

    def graph(self) -> nx.Graph:
        """Make a graph of the nodes; its edges carry ``rate``, bytes/s, and ``propagation``, ps.

        It cannot be edited, since no run would notice; ``networkx.Graph(graph)`` is a copy that can.
        """
        import networkx as nx  # noqa: PLC0415  0.13 s that no run needs

        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        for source, target, rate, propagation in zip(
            self.source.tolist(), self.target.tolist(), self.rate.tolist(), self.propagation.tolist(), strict=True
        ):
            graph.add_edge(self.nodes[source], self.nodes[target], rate=rate, propagation=propagation)
        for beyond in graph._adj.values():  # noqa: SLF001  networkx freezes nodes and edges, not what they carry
            beyond |= {other: MappingProxyType(cable) for other, cable in beyond.items()}
        return nx.freeze(graph)


def _propagation(cable: Cable) -> int:
    return round(cable["delay"] if "delay" in cable else cable["length"] * NS_PER_METRE * 1000)


def freeze(network: Network, link_rate: float, resources: ResourceList) -> Wires:
    """Give nodes and wires their numbers, and enter the wires as the first resources.

    Parameters
    ----------
    network
        As the functions of `fabricsim.topology.network` make it.
    link_rate
        Of cables that name none, bytes/s.
    resources
        Still empty.
    """
    nodes = tuple(network)
    number = {node: index for index, node in enumerate(nodes)}
    first = np.cumsum([0, *map(len, network.values())])
    source = np.repeat(np.arange(len(nodes)), np.diff(first))
    target = np.array([number[other] for beyond in network.values() for other in beyond], np.int64)
    cables = [cable for beyond in network.values() for cable in beyond.values()]
    # Most cables of a network are alike, and are one object.
    _, one, which = np.unique(np.array([*map(id, cables)], np.int64), return_index=True, return_inverse=True)
    distinct = [cables[index] for index in one.tolist()]
    rates = [link_rate if cable["rate"] is None else cable["rate"] for cable in distinct]
    order = np.lexsort((target, source))
    target, which = target[order], which[order]
    rate, propagation = np.array(rates, np.float64)[which], np.array([*map(_propagation, distinct)], np.int64)[which]
    ends = zip(map(nodes.__getitem__, source.tolist()), map(nodes.__getitem__, target.tolist()), strict=True)
    names = tuple([f"{here}->{there}" for here, there in ends])
    resources.add_all(names, WIRE, rate.tolist())
    reverse = np.lexsort((source, target))  # wires by target, then source: each stands where its reverse does
    return Wires(nodes, first, source, target, reverse, rate, propagation, names)
