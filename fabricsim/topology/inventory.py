"""What a network consists of: switches, ports, cables and transceivers by kind; its bisection and diameter."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.scenario.network import Network
from fabricsim.topology.shortest_paths import distances_to
from fabricsim.topology.tiers import tiers
from fabricsim.topology.wires import NS_PER_METRE, Wires

MOST_LINKS = 20_000
"""Cables between switches up to which the least cut is searched for; that takes some seconds."""
MOST_SEARCHES = 2_048
"""Edge switches from which the farthest NIC is searched for."""

_REACHES = ((3.0, "copper"), (100.0, "SR"), (500.0, "DR"), (2_000.0, "FR"), (10_000.0, "LR"))
"""Metres that media of IEEE 802.3 reach: copper of 802.3cd; multimode; parallel single mode; single mode."""
_GBPS = 8 / 1e9


@dataclass(frozen=True)
class Stock:
    """What a network consists of.

    Rates are those of the faster direction of a cable.

    `switches`: of each kind its name, how many, ports that cables take, of all and of the fullest, and Gb/s of the
    fastest. `inside`: switches inside of hosts and adapters.
    `cables`: of each kind what it joins, how many, Gb/s, metres and medium; `transceivers`: of each kind.
    `adapters`: how many of which Gb/s.
    """

    nics: int
    switches: list[dict[str, Any]]
    inside: int
    cables: list[dict[str, Any]]
    transceivers: dict[str, int]
    adapters: list[dict[str, Any]]


@dataclass(frozen=True)
class Inventory(Stock):
    """What a network consists of and achieves, as `fabricsim topology` tells it.

    `tiers`: switches by distance from the NICs, with Gb/s down and up and their ratio.
    `bisection`: Gb/s of the least cut between the first and the second half of the NICs, in the direction that carries
    less; None if the network is too large. `injection`: Gb/s of the NICs of one half.
    `diameter`: switches on the longest of all shortest ways; None if NICs are not joined, or there are too many.
    """

    tiers: list[dict[str, Any]]
    bisection: float | None
    injection: float
    diameter: int | None
    joined: bool


def take_stock(network: Network, wires: Wires, nics: int) -> Stock:
    """Count what a network consists of.

    `network`, `wires`: as a topology makes it, and frozen; `nics`: how many of its first nodes are NICs.
    """
    inside = np.array([node in network.embedded for node in wires.nodes])
    cable = (wires.source < wires.target) & ~(inside[wires.target] & (wires.source < nics))
    # what one direction is slowed down to is no property of the cable that is bought
    wires = replace(wires, rate=np.maximum(wires.rate, wires.rate[wires.reverse]))
    cables, transceivers = _cables(wires, np.flatnonzero(cable), nics)
    sent = np.bincount(wires.source, wires.rate * _GBPS, len(wires.nodes))[:nics]
    rates = Counter(sent.round(6).tolist())
    adapters = [{"gbps": rate, "count": count} for rate, count in rates.items()]
    return Stock(nics, _switches(wires, cable, inside, nics), int(inside.sum()), cables, transceivers, adapters)


def take_inventory(network: Network, wires: Wires, nics: int, down: Collection[int] = ()) -> Inventory:
    """Count a network, and find what it achieves; arguments as of `take_stock`.

    `down`: wires that are counted, and achieve nothing.
    """
    standing = wires.lacking(down) if down else wires
    diameter, joined = _diameter(standing, nics)
    found = take_stock(network, wires, nics)
    faster = np.maximum(wires.rate, wires.rate[wires.reverse])
    injection = float(faster[wires.source < nics // 2].sum() * _GBPS)
    return Inventory(
        **vars(found),
        tiers=_tiers(standing, nics),
        bisection=_bisection(standing, nics),
        injection=injection,
        diameter=diameter,
        joined=joined,
    )


def kind_of(name: str) -> str:
    """Return what a node is called but for its numbers: ``leaf`` of ``leaf3``."""
    return name.split("/", 1)[0].rstrip("0123456789") or name


def _switches(wires: Wires, cable: np.ndarray, inside: np.ndarray, nics: int) -> list[dict[str, Any]]:
    ends = np.concatenate([wires.source[cable], wires.target[cable]])
    ports, fastest = np.bincount(ends, minlength=len(wires.nodes)), np.zeros(len(wires.nodes))
    np.maximum.at(fastest, ends, np.tile(wires.rate[cable] * _GBPS, 2))
    by_kind: dict[str, list[int]] = {}
    for node in range(nics, len(wires.nodes)):
        if not inside[node]:
            by_kind.setdefault(kind_of(wires.nodes[node]), []).append(node)
    return [
        {
            "name": name,
            "count": len(nodes),
            "ports": int(ports[nodes].sum()),
            "most_ports": int(ports[nodes].max()),
            "gbps": float(fastest[nodes].max()),
        }
        for name, nodes in by_kind.items()
    ]


def _cables(wires: Wires, numbers: np.ndarray, nics: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    kinds: Counter[tuple[str, float, float]] = Counter()
    between: dict[frozenset[str], str] = {}  # whichever end of a cable comes first
    for wire in numbers.tolist():
        ends = int(wires.source[wire]), int(wires.target[wire])
        names = ["NIC" if node < nics else kind_of(wires.nodes[node]) for node in ends]
        name = between.setdefault(frozenset(names), " - ".join(names))
        kinds[name, wires.rate[wire] * _GBPS, wires.propagation[wire] / 1000 / NS_PER_METRE] += 1
    found, transceivers = [], Counter[str]()
    for (name, rate, metres), count in kinds.items():
        medium = next((medium for reach, medium in _REACHES if metres <= reach), "coherent")
        found.append({"between": name, "count": count, "gbps": rate, "metres": metres, "medium": medium})
        if medium != "copper":
            transceivers[f"{rate:.4g}G {medium}"] += 2 * count
    return found, dict(transceivers)


def _tiers(wires: Wires, nics: int) -> list[dict[str, Any]]:
    found = []
    slower = np.minimum(wires.rate, wires.rate[wires.reverse])
    for tier in tiers(wires, nics):
        down, up = (float(slower[some].sum() * _GBPS) for some in (tier.down, tier.up))
        ratio = down / up if up else None
        found.append({"name": tier.name, "switches": len(tier.switches), "down_gbps": down, "up_gbps": up})
        found[-1]["oversubscription"] = ratio
    return found


def _bisection(wires: Wires, nics: int) -> float | None:
    """Find the least cut that parts the first half of the NICs from the second, Gb/s."""
    import networkx as nx  # noqa: PLC0415  0.13 s that no run needs

    between = np.flatnonzero((wires.source >= nics) & (wires.target >= nics))
    if len(between) > 2 * MOST_LINKS or nics < 2:  # noqa: PLR2004  two halves
        return None
    halves: list[Any] = ["first"] * (nics // 2) + ["second"] * (nics - nics // 2) + [*range(nics, len(wires.nodes))]
    values = []
    for rate in (wires.rate, wires.rate[wires.reverse]):
        capacity: Counter[tuple[Any, Any]] = Counter()
        for source, target, each in zip(wires.source.tolist(), wires.target.tolist(), rate.tolist(), strict=True):
            if halves[target] != "first" and halves[source] != "second":
                capacity[halves[source], halves[target]] += each * _GBPS
        graph = nx.DiGraph()
        graph.add_nodes_from(("first", "second"))
        graph.add_edges_from((*edge, {"capacity": each}) for edge, each in capacity.items())
        values.append(float(nx.maximum_flow_value(graph, "first", "second")))
        if np.array_equal(wires.rate, wires.rate[wires.reverse]):
            break
    return min(values)


def first_apart(wires: Wires, hosts: int, per_host: int) -> int:
    """Find the first host to which no way leads from host 0, not even over other NICs of hosts; NONE if there is none.

    `per_host`: NICs of each host, which come first among the nodes.
    """
    own = np.flatnonzero(wires.source < hosts * per_host)
    host, gate = wires.source[own] // per_host, wires.target[own]
    nodes, reached, count = len(wires.nodes), np.zeros(hosts, bool), 0
    distances, scratch = np.empty(nodes, np.int32), (np.empty(nodes, np.int64), np.zeros(nodes, np.uint8))
    one = np.ones(len(wires.target), np.int32)
    reached[0] = True
    while count < int(reached.sum()):
        count = int(reached.sum())
        distances_to(wires.first, wires.target, one, np.unique(gate[reached[host]]), distances, *scratch)
        reached[host[distances[gate] >= 0]] = True
    return NONE if reached.all() else int(np.argmin(reached))


def _diameter(wires: Wires, nics: int) -> tuple[int | None, bool]:
    """Count switches on the longest of all shortest ways between two NICs; and tell whether all are joined."""
    if (wires.first[:nics] == wires.first[1 : nics + 1]).any():
        return None, False
    gates = np.unique(wires.target[wires.source < nics])
    nodes, farthest = len(wires.nodes), 0
    distances, scratch = np.empty(nodes, np.int32), (np.empty(nodes, np.int64), np.zeros(nodes, np.uint8))
    for gate in gates[:MOST_SEARCHES].tolist():
        one = np.ones(len(wires.target), np.int32)
        distances_to(wires.first, wires.target, one, np.array([gate]), distances, *scratch)
        if (distances[gates] < 0).any():
            return None, False
        farthest = max(farthest, int(distances[gates].max()))
    return (farthest + 1 if len(gates) <= MOST_SEARCHES else None), True
