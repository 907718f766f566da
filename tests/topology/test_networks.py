from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Cable, Ends


def _tiers(graph: nx.Graph) -> Counter[str]:
    return Counter(node.rstrip("0123456789") for node in graph)


def test_a_single_switch_has_one_cable_to_every_host() -> None:
    graph = fabric_of({"topology": "single-switch"}).network(Ends(5)).graph()
    assert graph.degree["switch0"] == 5
    assert graph.number_of_edges() == 5


def test_a_leaf_spine_joins_every_leaf_to_every_spine() -> None:
    keys = {"hosts_per_leaf": 4, "spines": 3, "uplink_rate": "400Gbps", "switch_cable": "50m"}
    fabric = fabric_of({"topology": "leaf-spine", **keys})
    graph = fabric.network(Ends(10)).graph()
    assert _tiers(graph) == {"host": 10, "leaf": 3, "spine": 3}
    assert [graph.degree[f"leaf{leaf}"] for leaf in range(3)] == [4 + 3, 4 + 3, 2 + 3]
    assert graph.edges["leaf0", "spine2"] == {"cable": Cable(50e9, 50.0), "times": 1}
    assert graph.edges["host9", "leaf2"] == {"cable": Cable(None, 5.0), "times": 1}


@pytest.mark.parametrize("missing", ["hosts_per_leaf", "spines"])
def test_a_leaf_spine_needs_its_counts(missing: str) -> None:
    keys = {"hosts_per_leaf": 2, "spines": 2}
    del keys[missing]
    with pytest.raises(ValidationError, match=missing):
        fabric_of({"topology": "leaf-spine", **keys})


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_full_fat_tree_has_the_counts_of_its_paper(k: int) -> None:
    hosts = k**3 // 4
    graph = fabric_of({"topology": "fat-tree", "k": k}).network(Ends(hosts)).graph()
    assert _tiers(graph) == {"host": hosts, "edge": k * k // 2, "aggregation": k * k // 2, "core": k * k // 4}
    assert {graph.degree[node] for node in graph if not node.startswith("host")} == {k}
    assert graph.number_of_edges() == 3 * hosts  # as many cables in each of the three tiers


@pytest.mark.parametrize("k", [4, 8])
def test_every_core_reaches_every_pod_once(k: int) -> None:
    graph = fabric_of({"topology": "fat-tree", "k": k}).network(Ends(k**3 // 4)).graph()
    for core in range(k * k // 4):
        pods = [int(node.removeprefix("aggregation")) // (k // 2) for node in graph[f"core{core}"]]
        assert sorted(pods) == list(range(k))


def test_a_fat_tree_has_full_bisection() -> None:
    graph = fabric_of({"topology": "fat-tree", "k": 4}).network(Ends(16)).graph()
    nx.set_edge_attributes(graph, 1, "capacity")
    for half, name in ((range(8), "left"), (range(8, 16), "right")):
        graph.add_edges_from((name, f"host{host}") for host in half)  # no capacity: infinite
    assert nx.maximum_flow_value(graph, "left", "right") == 8


@pytest.mark.slow
@given(hosts=st.integers(2, 60))
def test_a_fat_tree_that_is_not_full_still_joins_all_hosts(hosts: int) -> None:
    graph = fabric_of({"topology": "fat-tree"}).network(Ends(hosts)).graph()
    assert _tiers(graph)["host"] == hosts
    assert nx.is_connected(graph)
    assert list(graph)[:hosts] == [f"host{host}" for host in range(hosts)]
    assert all(graph.degree[f"host{host}"] == 1 for host in range(hosts))


@given(hosts=st.integers(1, 100_000))
def test_the_smallest_fat_tree_that_holds_the_hosts_is_taken(hosts: int) -> None:
    size = fabric_of({"topology": "fat-tree"}).size(Ends(hosts))
    assert size is not None
    k = size.ports
    assert k % 2 == 0
    assert k**3 // 4 >= hosts
    assert k == 2 or (k - 2) ** 3 // 4 < hosts


@pytest.mark.parametrize("topology", ["torus", "mesh"])
@pytest.mark.parametrize(("hosts", "says"), [(8, None), (9, "too few for 9 hosts"), (7, "too many for 7 hosts")])
def test_a_direct_grid_has_a_router_in_each_host(topology: str, hosts: int, says: str | None) -> None:
    fabric = fabric_of({"topology": topology, "dimensions": [2, 4]})

    found = [f"{mistake.key} {mistake.problem}" for mistake in fabric.problems(Ends(hosts))]

    assert len(found) == (says is not None)
    assert all("dimensions 2 x 4 routers are" in one and str(says) in one for one in found)


@pytest.mark.parametrize("cost", [0, -1, 0.5])
def test_a_cable_has_a_cost_of_at_least_one(cost: float) -> None:
    network = fabric_of({"topology": "single-switch"}).network(Ends(2))
    with pytest.raises(TypeError, match="give a cable"):
        network.join("switch0", "switch1", Cable(12.5e9, 3.0, cost=cost))  # type: ignore[arg-type]
