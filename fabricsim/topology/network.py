"""Networks as graphs: hosts and switches, and cables with a rate and a length.

A topology is a function ``(hosts, fabric) -> networkx.Graph`` in `TOPOLOGIES`. Host nodes are
``"host0"``, ``"host1"``, ... and carry ``host=<number>``; every edge carries ``length`` in metres, or ``delay`` in
picoseconds in its place, and ``rate`` in bytes per second, ``None`` for the host link rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import SimulationError
from fabricsim.traces import topology as files

if TYPE_CHECKING:
    from collections.abc import Callable

    import networkx as nx

    from fabricsim.spec.fabric import Fabric


def _graph(hosts: int) -> nx.Graph:
    import networkx as nx  # noqa: PLC0415  a slow import that the command line's start must not pay

    graph = nx.Graph()
    for host in range(hosts):
        graph.add_node(f"host{host}", host=host)
    return graph


def single_switch(hosts: int, fabric: Fabric) -> nx.Graph:
    """All hosts on one non-blocking switch."""
    graph = _graph(hosts)
    for host in range(hosts):
        graph.add_edge(f"host{host}", "switch0", rate=None, length=fabric.host_cable)
    return graph


def leaf_spine(hosts: int, fabric: Fabric) -> nx.Graph:
    """Two tiers: every leaf has one link to every spine, at ``uplink_rate`` where that is given."""
    if fabric.hosts_per_leaf is None or fabric.spines is None:
        msg = "a leaf-spine fabric needs fabric.hosts_per_leaf and fabric.spines"
        raise SimulationError(msg)
    graph = _graph(hosts)
    for host in range(hosts):
        graph.add_edge(f"host{host}", f"leaf{host // fabric.hosts_per_leaf}", rate=None, length=fabric.host_cable)
    for leaf in range(-(-hosts // fabric.hosts_per_leaf)):
        for spine in range(fabric.spines):
            graph.add_edge(f"leaf{leaf}", f"spine{spine}", rate=fabric.uplink_rate, length=fabric.switch_cable)
    return graph


def smallest_k(hosts: int) -> int:
    """Smallest even port count whose fat tree, of ``k**3 / 4`` hosts, holds them."""
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


def fat_tree(hosts: int, fabric: Fabric) -> nx.Graph:
    """Three-tier k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008); unused edge ports stay empty."""
    k = fabric.k if fabric.k is not None else smallest_k(hosts)
    half = k // 2
    graph = _graph(hosts)
    for host in range(hosts):
        graph.add_edge(f"host{host}", f"edge{host // half}", rate=None, length=fabric.host_cable)
    for pod in range(-(-hosts // half**2)):
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


def from_file(hosts: int, fabric: Fabric) -> nx.Graph:
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
    cables = files.read(fabric.links, hosts)
    graph = _graph(hosts)
    ends = {node for cable in cables for node in (cable.a, cable.b)}
    graph.add_nodes_from(sorted(ends.difference(graph), key=_natural))
    for cable in cables:
        graph.add_edge(cable.a, cable.b, rate=cable.rate, delay=cable.delay)
    return graph


TOPOLOGIES: dict[str, Callable[[int, Fabric], nx.Graph]] = {
    "single-switch": single_switch,
    "leaf-spine": leaf_spine,
    "fat-tree": fat_tree,
    "file": from_file,
}
"""Topologies by the name that a scenario uses."""
