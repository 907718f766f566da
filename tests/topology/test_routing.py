"""Routes, and what a packet engine asks a platform for."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology.platform import Platform, ProtocolCosts
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def peers() -> Path:
    folder = Path(os.environ.get("FABRICSIM_PEERS") or ROOT.parent / "shared" / "peers")
    if not (folder / "paths").is_dir():
        pytest.skip("paths of other simulators are not here: set FABRICSIM_PEERS")
    return folder


def stops(platform: Platform, wires: list[int]) -> list[int]:
    return [int(node) for node in (platform.wires.source[wires[0]], *platform.wires.target[wires])]


def from_file(scenario: Scenario, **keys: str) -> Platform:
    fabric = fabric_of({"topology": "file", **keys})
    costs = ProtocolCosts(wire=1.0, send_copy=0.0, receive_copy=0.0, packet=4096, staged=False)
    return Platform(scenario.cluster, fabric, scenario.switch, 12.5e9, costs, seed=0)


# ---- D-mod-k ------------------------------------------------------------------------------------


def test_d_mod_k_of_a_small_fat_tree() -> None:
    # k = 4: going up, the edge switch takes aggregation d mod 2 of its pod, and that one core d // 2 mod 2 of its own
    platform = build(ideal_scenario(16, "fat-tree", k=4, routing="d-mod-k"))
    names = platform.nodes
    for source in range(16):
        for target in set(range(16)) - {source}:
            up, core = target % 2, target % 2 * 2 + target // 2 % 2
            way = [f"host{source}", f"edge{source // 2}"]
            if source // 4 != target // 4:
                way += [f"aggregation{source // 4 * 2 + up}", f"core{core}", f"aggregation{target // 4 * 2 + up}"]
            elif source // 2 != target // 2:
                way += [f"aggregation{source // 4 * 2 + up}"]
            way += [f"edge{target // 2}"] if source // 2 != target // 2 else []
            found = stops(platform, platform.route_links(source, target, key=source * 7))
            assert [names[node] for node in found] == [*way, f"host{target}"]


def test_d_mod_k_keeps_shifts_free_of_conflicts() -> None:
    # the property for which it was made: when host i sends to i + s, no wire carries two flows
    platform = build(ideal_scenario(16, "fat-tree", k=4, routing="d-mod-k"))
    for shift in range(1, 16):
        used = Counter(wire for host in range(16) for wire in platform.route_links(host, (host + shift) % 16, key=0))
        assert set(used.values()) == {1}


def test_d_mod_k_gives_the_paths_of_another_simulator(peers: Path) -> None:
    platform = from_file(ideal_scenario(128), links=str(peers / "inputs" / "fattree_k8.csv"), routing="d-mod-k")
    with (peers / "paths" / "perm128_dmodk_htsim_roce.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 128
    for row in rows:
        found = stops(platform, platform.route_links(int(row["src"]), int(row["dst"]), key=0))
        assert "-".join(str(node) for node in found) == row["node_path"]


@pytest.mark.parametrize("name", ["perm128_dmodk_htsim_roce.csv", "perm128_ecmp_htsim_roce.csv"])
def test_paths_of_another_simulator_can_be_given(peers: Path, name: str) -> None:
    file = peers / "paths" / name
    platform = from_file(ideal_scenario(128), links=str(peers / "inputs" / "fattree_k8.csv"), paths=str(file))
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            found = stops(platform, platform.route_links(int(row["src"]), int(row["dst"]), key=0))
            assert "-".join(str(node) for node in found) == row["node_path"]


# ---- what a packet engine asks for --------------------------------------------------------------


def test_wires_are_the_first_resources_and_know_their_reverse() -> None:
    made = ideal_scenario(4, "leaf-spine", hosts_per_leaf=2, spines=2, uplink_rate="400Gbps", switch_cable="30m")
    platform = build(made)
    wires = platform.wires
    count = 2 * (4 + 2 * 2)
    assert platform.hosts == 4
    assert platform.nodes == (*(f"host{host}" for host in range(4)), "leaf0", "leaf1", "spine0", "spine1")
    assert {len(column) for column in (wires.source, wires.target, wires.reverse, wires.rate, wires.names)} == {count}
    assert set(platform.resources.kinds[:count]) == {"wire"}
    assert "wire" not in platform.resources.kinds[count:]
    for wire in range(count):
        source, target = (platform.nodes[node] for node in (wires.source[wire], wires.target[wire]))
        assert platform.resources.names[wire] == wires.names[wire] == f"{source}->{target}"
        assert wires.names[wires.reverse[wire]] == f"{target}->{source}"
        assert wires.rate[wire] == platform.resources.capacities[wire]
        to_host = "host" in wires.names[wire]
        assert wires.propagation[wire] == (500_000 if to_host else 150_000)  # 100 m and 30 m at 5 ns/m
        assert (wires.rate[wire] == 50e9) == (not to_host)
        assert wire in range(wires.first[wires.source[wire]], wires.first[wires.source[wire] + 1])


def test_route_links_are_the_wires_of_a_path() -> None:
    platform = build(ideal_scenario(16, "fat-tree", k=4, cluster={"gpus_per_host": 2}))
    for port in range(20):
        links = platform.route_links(0, 15, platform.key(1, 31, port), port)
        assert [wire for wire, _ in platform.path(1, 31, port).hops] == links


def test_ways_of_a_host_take_the_copy_that_is_asked_for() -> None:
    copying = {"kind": "ipoib", "mtu": 2044, "send_copy": "0.2ns/B", "receive_copy": "0.3ns/B"}
    platform = build(ideal_scenario(2, transport=copying, cluster={"gpus_per_host": 2}))
    proxies = [platform.resources.names.index(f"host{host}/gpu0/proxy") for host in range(2)]
    assert platform.way_out(0) == [(proxies[0], pytest.approx(0.2e-9))]
    assert platform.way_in(2) == [(proxies[1], pytest.approx(0.3e-9))]
    assert platform.way_out(0, 0.0) == platform.way_in(2, 0.0) == []
    assert platform.way_out(0, 1e-9) == [(proxies[0], 1e-9)]
    assert [platform.resources.names[hop] for hop, _ in platform.within(0, 1)] == [
        "host0/gpu0/memory/up",
        "host0/gpu1/memory/down",
    ]


@pytest.mark.parametrize(
    ("hosts", "topology", "keys"),
    [
        (5, "single-switch", {}),
        (7, "leaf-spine", {"hosts_per_leaf": 3, "spines": 4}),
        (16, "fat-tree", {"k": 4}),
        (21, "fat-tree", {"k": 6}),
        (4, "leaf-spine", {"hosts_per_leaf": 2, "spines": 70}),  # more ports than there are bits in two words
    ],
)
def test_next_hops_are_the_neighbours_on_shortest_paths(hosts: int, topology: str, keys: dict[str, int]) -> None:
    made = ideal_scenario(hosts, topology, **keys)
    platform, graph = build(made), made.fabric.network(Ends(hosts)).graph()
    found = platform.next_hops()
    table = found.group_of.reshape(len(platform.nodes) - hosts, hosts)
    for host in range(hosts):
        far = nx.single_source_shortest_path_length(graph, f"host{host}")
        for switch, node in enumerate(platform.nodes[hosts:]):
            group = table[switch, host]
            links = found.group_links[found.groups[group] : found.groups[group + 1]]
            expected = [f"{node}->{other}" for other in graph[node] if far[other] == far[node] - 1]
            assert sorted(platform.wires.names[link] for link in links) == sorted(expected)
            assert np.all(np.diff(links) > 0)


def test_the_graph_of_the_wires_has_the_cables_of_the_topology() -> None:
    made = ideal_scenario(16, "fat-tree", k=4)
    network = made.fabric.network(Ends(16)).graph()
    platform = build(made)
    graph = platform.wires.graph()
    assert list(graph) == list(network)
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, network.edges))
    for wire, name in enumerate(platform.wires.names):
        cable = graph.edges[name.split("->")]
        assert cable == {"rate": platform.wires.rate[wire], "propagation": platform.wires.propagation[wire]}


def test_what_cannot_change_a_run_cannot_be_edited() -> None:
    platform = build(ideal_scenario(16, "fat-tree", k=4))
    graph = platform.wires.graph()

    with pytest.raises(nx.NetworkXError, match="Frozen"):
        graph.remove_edge("edge0", "aggregation0")
    with pytest.raises(TypeError):
        graph.edges["edge0", "aggregation0"]["rate"] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        platform.wires.rate[0] = 1.0
    with pytest.raises(TypeError):
        platform.resources.capacities[0] = 1.0  # type: ignore[index]
    own = nx.Graph(graph)
    own.remove_edge("edge0", "aggregation0")
    assert len(own.edges) == len(graph.edges) - 1


def test_next_hops_share_groups() -> None:
    # k = 4. Edge: 2 hosts, and up; aggregation: 2 edges, and up; core: 4 pods.
    found = build(ideal_scenario(16, "fat-tree", k=4)).next_hops()
    assert len(found.groups) - 1 == 8 * 3 + 8 * 3 + 4 * 4
    assert len(found.group_links) == 8 * 4 + 8 * 4 + 4 * 4
    assert sorted(set(found.group_of.tolist())) == list(range(64))


def test_routes_follow_next_hops() -> None:
    platform = build(ideal_scenario(16, "fat-tree", k=4))
    found = platform.next_hops()
    for key in range(50):
        source, target = key % 16, (key * 7 + 3) % 16
        if source == target:
            continue
        for wire in platform.route_links(source, target, key)[1:]:
            group = found.group_of[(platform.wires.source[wire] - 16) * 16 + target]
            assert wire in found.group_links[found.groups[group] : found.groups[group + 1]]
