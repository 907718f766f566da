"""Every topology: what it counts beforehand is what it builds, and every pair of hosts has a way without a loop."""

from __future__ import annotations

from math import prod
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.scenario.fabric import TOPOLOGIES, FabricSpec, fabric_of
from fabricsim.scenario.load import load
from fabricsim.scenario.network import Ends, FabricSize, Network
from fabricsim.topology.resources import ResourceList
from fabricsim.topology.routing import Router
from fabricsim.topology.wires import freeze
from tests.reference.platforms import build

few, ports = st.integers(1, 4), st.integers(1, 6)
dimensions = st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(lambda sides: 2 <= prod(sides) <= 60)
side = st.tuples(st.integers(2, 3), few)

SHAPES: dict[str, dict[str, Any]] = {
    "single-switch": {"rails": st.booleans()},
    "leaf-spine": {"hosts_per_leaf": ports, "spines": ports, "cables_per_spine": few, "rails": st.booleans()},
    "multi-plane": {"hosts_per_leaf": ports, "spines": ports, "planes": st.integers(2, 4), "rails": st.booleans()},
    "fat-tree": {
        "k": st.sampled_from([None, 4, 6, 8, 12]),
        "tiers": st.sampled_from([2, 3]),
        "oversubscription": st.integers(1, 3),
        "parallel": st.integers(1, 2),
    },
    "rail-optimised": {
        "radix": st.sampled_from([4, 8, 12, 64]),
        "hosts_per_unit": st.integers(1, 8),
        "tiers": st.sampled_from([None, 2, 3]),
    },
    "rail-only": {"radix": st.sampled_from([2, 4, 8, 12]), "tiers": st.sampled_from([None, 1, 2, 3])},
    "dragonfly": {
        "hosts_per_switch": few,
        "switches_per_group": few,
        "global_cables": ports,
        "local_cables": st.integers(1, 2),
    },
    "dragonfly-plus": {"hosts_per_leaf": few, "leaves_per_group": few, "spines_per_group": few, "global_cables": ports},
    "torus": {"dimensions": dimensions, "parallel": few},
    "mesh": {"dimensions": dimensions, "parallel": few},
    "hammingmesh": {"board": side, "boards": side, "parallel": st.integers(1, 2)},
    "full-mesh": {"hosts_per_switch": few, "parallel": few},
    "optical-circuits": {"hosts_per_pod": few},
}
DIRECT = {"torus", "mesh", "hammingmesh"}
DETOURS = {"valiant", "ugal"}


@st.composite
def fabrics(draw: st.DrawFn, topology: str) -> tuple[FabricSpec, Ends]:
    """Draw a fabric of a topology, and hosts that fit it."""
    keys = {name: draw(values) for name, values in SHAPES[topology].items()}
    fabric = fabric_of({"topology": topology, **{name: value for name, value in keys.items() if value is not None}})
    hosts, nics = draw(st.integers(2, 40)), draw(st.sampled_from([1, 2, 4]))
    if topology in {"torus", "mesh"}:
        hosts = prod(keys["dimensions"])
    elif topology == "hammingmesh":
        hosts = prod(keys["board"]) * prod(keys["boards"])
    ends = Ends(hosts, nics if topology != "single-switch" else 2)
    if any(fabric.problems(ends)):
        ends = Ends(hosts, 2)
    return fabric, ends


def counted(network: Network) -> FabricSize:
    degree = dict(network.graph().degree(weight="times"))
    switches = [node for node in degree if not node.startswith("host")]
    return FabricSize(sum(degree.values()) // 2, max(degree[node] for node in switches), len(switches))


def test_all_topologies_are_here() -> None:
    ours = {name for name in TOPOLOGIES.all() if not name.endswith(".py")}  # other tests of this process have files
    assert set(SHAPES) | {"file"} == ours


@pytest.mark.slow
@pytest.mark.parametrize("topology", SHAPES)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_what_is_counted_is_what_is_built(topology: str, data: st.DataObject) -> None:
    fabric, ends = data.draw(fabrics(topology))
    size = fabric.size(ends)
    if any(fabric.problems(ends)) or size is None:
        return
    built = counted(fabric.network(ends))
    assert (size.cables, size.switches) == (built.cables, built.switches)
    # the last pods of fat trees, and units of rails, leave ports of all their switches empty
    assert size.ports == built.ports or (topology in {"fat-tree", "rail-optimised"} and size.ports > built.ports)


@pytest.mark.slow
@pytest.mark.parametrize("topology", SHAPES)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_every_pair_has_a_shortest_way_without_a_loop(topology: str, data: st.DataObject) -> None:
    fabric, ends = data.draw(fabrics(topology))
    if any(fabric.problems(ends)):
        return
    network = fabric.network(ends)
    graph = nx.Graph()
    graph.add_nodes_from(network.nodes)
    graph.add_weighted_edges_from([(link.a, link.b, link.cable.cost) for link in network.links])
    if not nx.is_connected(graph):
        return  # rails of their own
    wires = freeze(network, 1.0, ResourceList())
    further = st.tuples(st.integers(0, ends.count - 1), st.integers(1, ends.count - 1))
    pairs = [(one, (one + more) % ends.count) for one, more in data.draw(st.lists(further, max_size=20))]
    far = {one: nx.single_source_dijkstra_path_length(graph, wires.nodes[one]) for one, _ in pairs}
    detours = DETOURS & {*fabric.routings}
    diameter = nx.diameter(graph, weight="weight") if detours else 0
    for routing in fabric.routings:
        router = Router(wires, ends.count, routing, {})
        for key, (source, target) in enumerate(pairs):
            way = router.route(source, target, key, 0)
            nodes = [source, *wires.target[way].tolist()]
            assert nodes[-1] == target
            assert wires.source[way].tolist() == nodes[:-1]
            assert len(set(nodes)) == len(nodes)
            shortest = far[source][wires.nodes[target]]
            if routing in detours:
                assert shortest <= sum(wires.cost[way]) <= 2 * diameter
            else:
                assert sum(wires.cost[way]) == shortest


@pytest.mark.parametrize(("hosts", "leaves", "spines"), [(31, 8, 4), (63, 16, 8), (95, 24, 16), (127, 32, 16)])
def test_superpod_h100_has_the_published_counts(hosts: int, leaves: int, spines: int) -> None:
    # docs.nvidia.com, DGX SuperPOD H100, network fabrics: 252, 508, 764 and 1,020 compute cables, 4 each for management
    fabric = load("megatron-a100", ["fabric=superpod-h100"], with_job=False).scenario.fabric
    size = fabric.size(Ends(hosts, 8))
    links = fabric.network(Ends(hosts, 8)).links
    published = {31: (252, 256), 63: (508, 512), 95: (764, 768), 127: (1020, 1024)}[hosts]
    compute = sum(link.times for link in links if link.a.startswith("host"))
    assert (compute + 4, sum(link.times for link in links) - compute) == published
    assert size is not None
    assert size.switches == leaves + spines


def test_a_switch_with_more_cables_than_ports_is_named() -> None:
    keys = ["fabric={topology='leaf-spine', hosts_per_leaf=6, spines=2, radix=7}", "cluster.hosts=12"]
    with pytest.raises(SimulationError, match=r"leaf0 has 8 cables, and a switch has 7 ports \(fabric.radix\)"):
        build(load("ideal-16", keys).scenario)
