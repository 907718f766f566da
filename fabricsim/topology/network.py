"""Networks: hosts and switches, and cables with a rate and a length.

A topology is a function ``(hosts, fabric, nics_per_host=1) -> Network`` in `TOPOLOGIES`. Nodes of hosts come first and
are ``"host0"``, ``"host1"``, ...; with several NICs per host, each is a node, ``"host0/nic0"``, ``"host0/nic1"``, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict

from fabricsim.errors import SimulationError
from fabricsim.topology import cable_file

if TYPE_CHECKING:
    from fabricsim.scenario.fabric import Fabric


class Cable(TypedDict, total=False):
    """What joins two nodes.

    Attributes
    ----------
    rate
        Bytes per second; None for the host link rate.
    length
        Metres.
    delay
        Picoseconds, in place of the length.
    """

    rate: float | None
    length: float
    delay: int


Network = dict[str, dict[str, Cable]]
"""Neighbours of each node and the cable to each: what `networkx.Graph` takes, without its import of 0.13 s."""


class Topology(Protocol):
    """Makes the network of a number of hosts."""

    def __call__(self, hosts: int, fabric: Fabric, nics_per_host: int = 1) -> Network:
        """Make it."""


def _unjoined(ends: cable_file.Ends) -> Network:
    return {ends.name(end): {} for end in range(ends.count)}


def _join(network: Network, a: str, b: str, cable: Cable) -> None:
    network.setdefault(a, {})[b] = cable
    network.setdefault(b, {})[a] = cable


def single_switch(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> Network:
    """All hosts on one non-blocking switch, or those NICs of theirs that are of one rail."""
    ends = cable_file.Ends(hosts, nics_per_host)
    network = _unjoined(ends)
    cable: Cable = {"rate": None, "length": fabric.host_cable}
    for end in range(ends.count):
        switch = end % nics_per_host if fabric.rails else 0
        _join(network, ends.name(end), f"switch{switch}", cable)
    return network


def leaf_spine(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> Network:
    """Two tiers: every leaf has one link to every spine, at ``uplink_rate`` where that is given.

    A leaf has all NICs of ``hosts_per_leaf`` hosts, or with rails those of one rail.
    """
    if fabric.hosts_per_leaf is None or fabric.spines is None:
        msg = "a leaf-spine fabric needs fabric.hosts_per_leaf and fabric.spines"
        raise SimulationError(msg)
    ends = cable_file.Ends(hosts, nics_per_host)
    network = _unjoined(ends)
    down: Cable = {"rate": None, "length": fabric.host_cable}
    up: Cable = {"rate": fabric.uplink_rate, "length": fabric.switch_cable}
    rails = nics_per_host if fabric.rails else 1
    for end in range(ends.count):
        leaf = end // nics_per_host // fabric.hosts_per_leaf * rails + end % rails
        _join(network, ends.name(end), f"leaf{leaf}", down)
    for leaf in range(-(-hosts // fabric.hosts_per_leaf) * rails):
        for spine in range(fabric.spines):
            _join(network, f"leaf{leaf}", f"spine{spine}", up)
    return network


def smallest_k(hosts: int) -> int:
    """Smallest even port count whose fat tree, of ``k**3 / 4`` hosts, holds them."""
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


def fat_tree(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> Network:
    """Three-tier k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008); unused edge ports stay empty."""
    ends = cable_file.Ends(hosts, nics_per_host)
    k = fabric.k if fabric.k is not None else smallest_k(ends.count)
    half = k // 2
    network = _unjoined(ends)
    down: Cable = {"rate": None, "length": fabric.host_cable}
    up: Cable = {"rate": fabric.uplink_rate, "length": fabric.switch_cable}
    for end in range(ends.count):
        _join(network, ends.name(end), f"edge{end // half}", down)
    cores = [f"core{number}" for number in range(half**2)]
    for pod in range(-(-ends.count // half**2)):
        switches = range(pod * half, (pod + 1) * half)
        edges, aggregations = [f"edge{number}" for number in switches], [f"aggregation{number}" for number in switches]
        for i in range(half):
            for j in range(half):
                _join(network, edges[i], aggregations[j], up)
                _join(network, aggregations[i], cores[i * half + j], up)
    return network


def _natural(node: str) -> tuple[str, int, str]:
    """Sort key that puts ``leaf2`` before ``leaf10``."""
    name = node.rstrip("0123456789")
    return name, int(node[len(name) :] or -1), node


def from_file(hosts: int, fabric: Fabric, nics_per_host: int = 1) -> Network:
    """Whatever a file of cables says; switches in the order of their names and numbers.

    Raises
    ------
    SimulationError
        If no file is named.
    TraceError
        If it cannot be read or does not describe a fabric of these hosts.
    """
    if fabric.links is None:
        msg = "a fabric from a file needs fabric.links"
        raise SimulationError(msg)
    cables = cable_file.read(fabric.links, hosts, nics_per_host)
    network = _unjoined(cable_file.Ends(hosts, nics_per_host))
    nodes = {node for cable in cables for node in (cable.a, cable.b)}
    network |= {node: {} for node in sorted(nodes.difference(network), key=_natural)}
    for cable in cables:
        _join(network, cable.a, cable.b, {"rate": cable.rate, "delay": cable.delay})
    return network


TOPOLOGIES: dict[str, Topology] = {
    "single-switch": single_switch,
    "leaf-spine": leaf_spine,
    "fat-tree": fat_tree,
    "file": from_file,
}
"""Topologies by the name that a scenario uses."""
