"""The network frozen to arrays: its nodes, and both directions of each of its cables."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.errors import SimulationError
from fabricsim.extensions import answer
from fabricsim.records.program import NONE
from fabricsim.scenario.network import Cable, Ends, Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import networkx as nx
    from numpy.typing import NDArray

    from fabricsim.scenario.fabric import CableChange, FabricSpec
    from fabricsim.topology.resources import ResourceList

NS_PER_METRE = 5.0
"""Propagation in fibre of refractive index 1.468 (4.90 ns/m) and copper (4.3 to 5 ns/m), rounded up."""

AVOIDED = 2**20
"""Cost of a wire that is avoided: more than that of any way without one, while sums stay 32-bit numbers."""

WIRE = "wire"
"""Kind of a resource: one direction of a cable."""


@dataclass(frozen=True, eq=False)
class Wires:
    """Nodes, and the directed wires between them, sorted by source and then by target.

    A wire's number is that of its resource. With ``first`` and ``target`` the wires are a graph in CSR form.

    `nodes`: names, the NICs first, in order of hosts and of NICs in each.
    `first`: wires ``first[node]`` to ``first[node + 1] - 1`` leave a node, shape ``(nodes + 1,)``.
    `source`, `target`: nodes that a wire joins, shape ``(wires,)``.
    `reverse`: the wire of the other direction, shape ``(wires,)``.
    `rate`: bytes/s, shape ``(wires,)``.
    `propagation`: ps, shape ``(wires,)``.
    `cost`: what routing adds up, shape ``(wires,)``.
    `rank`: in dimension-order routing, lower ones come first, shape ``(wires,)``.
    `loss`: bit error rate, shape ``(wires,)``.
    `group`: of each node that detours lead through, -1 of others, shape ``(nodes,)``.
    `lowest`: switches of the tier next to the NICs, though some have none, shape ``(n,)``.
    `names`: such as ``"host0->leaf0"``; of parallel cables ``"leaf0->spine0#0"``, ``"leaf0->spine0#1"``.
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
    loss: NDArray[np.float64]
    group: NDArray[np.int32]
    lowest: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Make the arrays read-only: a fabric that is built does not look at them again."""
        ways = (self.first, self.source, self.target, self.reverse)
        for values in (*ways, self.rate, self.propagation, self.cost, self.rank, self.loss, self.group, self.lowest):
            values.flags.writeable = False

    def without(self, wires: Iterable[int]) -> Wires:
        """Make some wires so costly that the shortest way takes one only if no other way leads there."""
        cost = self.cost.copy()
        cost[list(wires)] = AVOIDED
        return replace(self, cost=cost)

    def lacking(self, wires: Iterable[int]) -> Wires:
        """Leave out some cables, by the wires of both their directions; the others get new numbers."""
        kept = np.ones(len(self.rate), bool)
        kept[list(wires)] = False
        number = np.cumsum(kept) - 1
        of_wires = ("source", "target", "rate", "propagation", "cost", "rank", "loss")
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in of_wires},
            first=np.searchsorted(self.source[kept], np.arange(len(self.nodes) + 1)),
            reverse=number[self.reverse[kept]],
            names=tuple(name for name, there in zip(self.names, kept.tolist(), strict=True) if there),
        )

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


def propagation(length: float) -> int:
    """Time that light takes for some metres, ps."""
    return round(length * NS_PER_METRE * 1000)


def _propagation(cable: Cable) -> int:
    return propagation(cable.length) if cable.delay is None else cable.delay


def network_of(fabric: FabricSpec, ends: Ends) -> Network:
    """Join the ends as a topology says. Raises SimulationError if switches have too few ports."""
    network = answer(fabric.network, Network, ends)
    network.require_ports(fabric.radix)
    return network


def freeze(network: Network, link_rate: float, resources: ResourceList, fabric: FabricSpec | None = None) -> Wires:
    """Give nodes and wires their numbers, and enter the wires as the first resources.

    `network`: as a topology makes it.
    `link_rate`: of cables that name none, bytes/s.
    `resources`: still empty.
    `fabric`: gives bit errors and changes of single cables.
    Raises SimulationError if no cable is called as a change has it.
    """
    nodes, number, links = tuple(network.nodes), network.nodes, network.links
    times = np.array([link.times for link in links], np.int64)
    ends = [link.a for link in links], [link.b for link in links]
    a, b = (np.repeat(np.array([number[end] for end in each], np.int64), times) for each in ends)
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
    rates = [(link_rate if cable.rate is None else cable.rate) * cable.times_rate for cable in cables]
    rate = np.array(rates, np.float64)[which]
    delay = np.array([*map(_propagation, cables)], np.int64)[which]
    loss = np.full(len(rate), 0.0 if fabric is None else fabric.bit_error_rate)
    for pattern, change in {} if fabric is None else fabric.cables.items():
        _change(named(pattern, names), change, rate, delay, loss)
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
        delay,
        np.array([cable.cost for cable in cables], np.int32)[which],
        np.array([cable.rank for cable in cables], np.int32)[which],
        loss,
        group,
        np.array(sorted(number[node] for node in network.lowest), np.int64),
        names,
    )


def _change(
    some: list[int], change: CableChange, rate: NDArray[np.float64], delay: NDArray[np.int64], loss: NDArray[np.float64]
) -> None:
    """Change some wires in place."""
    length = None if change.length is None else propagation(change.length)
    for values, value in ((rate, change.rate), (delay, length), (delay, change.delay), (loss, change.bit_error_rate)):
        if value is not None:
            values[some] = value


def named(pattern: str, names: Sequence[str]) -> list[int]:
    """Find the wires that a pattern such as ``leaf0-spine*`` names, in both directions, or with ``->`` in one.

    Parallel cables are meant together unless one is named: ``leaf0-spine0#1``.

    Raises SimulationError if there is none.
    """
    found = matching(pattern, names)
    if not found:
        example = names[0].replace("->", "-") if names else "host0-leaf0"
        msg = f"fabric.cables: no cable matches {pattern!r}; they are called as {example}, and * stands for anything"
        raise SimulationError(msg)
    return found


def matching(pattern: str, names: Sequence[str]) -> list[int]:
    """Find the wires that a pattern names, as `named` does; perhaps none."""
    whole = re.compile(fnmatch.translate(pattern) if "#" in pattern else rf"{fnmatch.translate(pattern)[:-2]}(#\d+)?\Z")
    return [number for number, name in enumerate(names) if any(map(whole.match, _called(name, "->" in pattern)))]


def _called(wire: str, one_way: bool) -> tuple[str, ...]:  # noqa: FBT001  of a private function
    """Give what a wire is called: its own name, or that of its cable from either end."""
    if one_way:
        return (wire,)
    ends, hash_, number = wire.partition("#")
    here, _, there = ends.partition("->")
    return f"{here}-{there}{hash_}{number}", f"{there}-{here}{hash_}{number}"


def _names(nodes: Sequence[str], source: list[int], target: list[int], copy: list[int]) -> Iterator[str]:
    for here, there, number in zip(source, target, copy, strict=True):
        yield f"{nodes[here]}->{nodes[there]}" if number < 0 else f"{nodes[here]}->{nodes[there]}#{number}"
