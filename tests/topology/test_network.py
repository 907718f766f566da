from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.scenario.fabric import Fabric
from fabricsim.topology.network import TOPOLOGIES, smallest_k


def _tiers(graph: nx.Graph) -> Counter[str]:
    return Counter(node.rstrip("0123456789") for node in graph)


def test_a_single_switch_has_one_cable_to_every_host() -> None:
    graph = nx.Graph(TOPOLOGIES["single-switch"](5, Fabric(topology="single-switch")))
    assert graph.degree["switch0"] == 5
    assert graph.number_of_edges() == 5


def test_a_leaf_spine_joins_every_leaf_to_every_spine() -> None:
    keys = {"hosts_per_leaf": 4, "spines": 3, "uplink_rate": "400Gbps", "switch_cable": "50m"}
    fabric = Fabric.model_validate({"topology": "leaf-spine", **keys})
    graph = nx.Graph(TOPOLOGIES["leaf-spine"](10, fabric))
    assert _tiers(graph) == {"host": 10, "leaf": 3, "spine": 3}
    assert [graph.degree[f"leaf{leaf}"] for leaf in range(3)] == [4 + 3, 4 + 3, 2 + 3]
    assert graph.edges["leaf0", "spine2"] == {"rate": 50e9, "length": 50.0}
    assert graph.edges["host9", "leaf2"] == {"rate": None, "length": 5.0}


@pytest.mark.parametrize("missing", ["hosts_per_leaf", "spines"])
def test_a_leaf_spine_needs_its_counts(missing: str) -> None:
    keys = {"hosts_per_leaf": 2, "spines": 2}
    del keys[missing]
    with pytest.raises(SimulationError, match=r"fabric\.hosts_per_leaf and fabric\.spines"):
        TOPOLOGIES["leaf-spine"](4, Fabric.model_validate({"topology": "leaf-spine", **keys}))


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_full_fat_tree_has_the_counts_of_its_paper(k: int) -> None:
    hosts = k**3 // 4
    graph = nx.Graph(TOPOLOGIES["fat-tree"](hosts, Fabric(topology="fat-tree", k=k)))
    assert _tiers(graph) == {"host": hosts, "edge": k * k // 2, "aggregation": k * k // 2, "core": k * k // 4}
    assert {graph.degree[node] for node in graph if not node.startswith("host")} == {k}
    assert graph.number_of_edges() == 3 * hosts  # as many cables in each of the three tiers


@pytest.mark.parametrize("k", [4, 8])
def test_every_core_reaches_every_pod_once(k: int) -> None:
    graph = nx.Graph(TOPOLOGIES["fat-tree"](k**3 // 4, Fabric(topology="fat-tree", k=k)))
    for core in range(k * k // 4):
        pods = [int(node.removeprefix("aggregation")) // (k // 2) for node in graph[f"core{core}"]]
        assert sorted(pods) == list(range(k))


def test_a_fat_tree_has_full_bisection() -> None:
    graph = nx.Graph(TOPOLOGIES["fat-tree"](16, Fabric(topology="fat-tree", k=4)))
    nx.set_edge_attributes(graph, 1, "capacity")
    for half, name in ((range(8), "left"), (range(8, 16), "right")):
        graph.add_edges_from((name, f"host{host}") for host in half)  # no capacity: infinite
    assert nx.maximum_flow_value(graph, "left", "right") == 8


@given(hosts=st.integers(2, 60))
def test_a_fat_tree_that_is_not_full_still_joins_all_hosts(hosts: int) -> None:
    graph = nx.Graph(TOPOLOGIES["fat-tree"](hosts, Fabric(topology="fat-tree")))
    assert _tiers(graph)["host"] == hosts
    assert nx.is_connected(graph)
    assert list(graph)[:hosts] == [f"host{host}" for host in range(hosts)]
    assert all(graph.degree[f"host{host}"] == 1 for host in range(hosts))


@given(hosts=st.integers(1, 100_000))
def test_the_smallest_fat_tree_that_holds_the_hosts_is_taken(hosts: int) -> None:
    k = smallest_k(hosts)
    assert k % 2 == 0
    assert k**3 // 4 >= hosts
    assert k == 2 or (k - 2) ** 3 // 4 < hosts
