"""Networks as graphs: hosts and switches, and cables with a rate and a length.

A topology is a function ``(hosts, fabric, nics_per_host=1) -> networkx.Graph`` in `TOPOLOGIES`. Host nodes are
``"host0"``, ``"host1"``, ... and carry ``host=<number>``; where hosts have several NICs, each is a node,
``"host0/nic0"``, ``"host0/nic1"``, ... Every edge carries ``length`` in metres, or ``delay`` in
picoseconds in its place, and ``rate`` in bytes per second, ``None`` for the host link rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fabricsim.errors import SimulationError
from fabricsim.traces import topology as files

if TYPE_CHECKING:
    import networkx as nx

    from fabricsim.spec.fabric import Fabric


class Topology(Protocol):
    """Makes the graph of a number of hosts."""

    def __call__(self, hosts: int, fabric: Fabric, nics_per_host: int = 1) -> nx.Graph:
        """Make it."""


def _graph(ends: files.Ends) -> nx.Graph:
    import networkx as nx  # noqa: PLC0415  a slow import that the command line's start must not pay

    graph = nx.Graph()
    for end in range(ends.count):
        graph.add_node(ends.name(end), host=end // ends.nics_per_host)
    return graph


def single_switch(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> nx.Graph:
    """All hosts on one non-blocking switch, or those NICs of theirs that are of one rail."""
    ends = files.Ends(hosts, nics_per_host)
    graph = _graph(ends)
    for end in range(ends.count):
        switch = end % nics_per_host if fabric.rails else 0
        graph.add_edge(ends.name(end), f"switch{switch}", rate=None, length=fabric.host_cable)
    return graph


def leaf_spine(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> nx.Graph:
    """Two tiers: every leaf has one link to every spine, at ``uplink_rate`` where that is given.

    A leaf has all NICs of ``hosts_per_leaf`` hosts, or with rails those of one rail.
    """
    if fabric.hosts_per_leaf is None or fabric.spines is None:
        msg = "a leaf-spine fabric needs fabric.hosts_per_leaf and fabric.spines"
        raise SimulationError(msg)
    ends = files.Ends(hosts, nics_per_host)
    graph = _graph(ends)
    rails = nics_per_host if fabric.rails else 1
    for end in range(ends.count):
        leaf = end // nics_per_host // fabric.hosts_per_leaf * rails + end % rails
        graph.add_edge(ends.name(end), f"leaf{leaf}", rate=None, length=fabric.host_cable)
    for leaf in range(-(-hosts // fabric.hosts_per_leaf) * rails):
        for spine in range(fabric.spines):
            graph.add_edge(f"leaf{leaf}", f"spine{spine}", rate=fabric.uplink_rate, length=fabric.switch_cable)
    return graph


def smallest_k(hosts: int) -> int:
    """Smallest even port count whose fat tree, of ``k**3 / 4`` hosts, holds them."""
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


def fat_tree(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> nx.Graph:
    """Three-tier k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008); unused edge ports stay empty."""
    ends = files.Ends(hosts, nics_per_host)
    k = fabric.k if fabric.k is not None else smallest_k(ends.count)
    half = k // 2
    graph = _graph(ends)
    for end in range(ends.count):
        graph.add_edge(ends.name(end), f"edge{end // half}", rate=None, length=fabric.host_cable)
    for pod in range(-(-ends.count // half**2)):
        for i in range(half):
            for j in range(half):
                edge, aggregation = f"edge{pod * half + i}", f"aggregation{pod * half + j}"
                graph.add_edge(edge, aggregation, rate=fabric.uplink_rate, length=fabric.switch_cable)
                core = f"core{i * half + j}"
                graph.add_edge(
                    f"aggregation{pod * half + i}", core, rate=fabric.uplink_rate, length=fabric.switch_cable
                )
    return graph


def _natural(node: str) -> tuple[str, int, str]:
    """Sort key that puts ``leaf2`` before ``leaf10``."""
    name = node.rstrip("0123456789")
    return name, int(node[len(name) :] or -1), node


def from_file(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> nx.Graph:
    """Whatever a file of cables says; switches in the order of their names and numbers.

    Raises
    ------
    SimulationError
        Where no file is named.
    TraceError
        Where it cannot be read or does not describe a fabric of these hosts.
    """
    if fabric.links is None:
        msg = "a fabric from a file needs fabric.links"
        raise SimulationError(msg)
    cables = files.read(fabric.links, hosts, nics_per_host)
    graph = _graph(files.Ends(hosts, nics_per_host))
    nodes = {node for cable in cables for node in (cable.a, cable.b)}
    graph.add_nodes_from(sorted(nodes.difference(graph), key=_natural))
    for cable in cables:
        graph.add_edge(cable.a, cable.b, rate=cable.rate, delay=cable.delay)
    return graph


TOPOLOGIES: dict[str, Topology] = {
    "single-switch": single_switch,
    "leaf-spine": leaf_spine,
    "fat-tree": fat_tree,
    "file": from_file,
}
"""Topologies by the name that a scenario uses."""
