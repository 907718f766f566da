from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.errors import SimulationError
from fabricsim.scenario.library import names
from fabricsim.scenario.load import load
from fabricsim.topology.platform import Platform
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario


def _names(platform: Platform, source: int, target: int, port: int = 0) -> list[str]:
    return [platform.resources.names[resource] for resource, _ in platform.path(source, target, port).hops]


def test_a_star_is_crossed_in_two_cables() -> None:
    path = build(ideal_scenario(3)).path(0, 2)
    assert path.network
    assert path.latency == 2 * 500_000
    assert _names(build(ideal_scenario(3)), 0, 2) == ["host0->switch0", "switch0->host2"]


@pytest.mark.slow
@settings(max_examples=50)
@given(ends=st.tuples(st.integers(0, 15), st.integers(0, 15)).filter(lambda e: e[0] != e[1]), port=st.integers(0, 99))
def test_a_fat_tree_path_is_joined_and_as_long_as_its_tiers(ends: tuple[int, int], port: int) -> None:
    source, target = ends
    names = _names(build(ideal_scenario(16, "fat-tree", k=4)), source, target, port)
    hops = [tuple(name.split("->")) for name in names]
    assert hops[0][0] == f"host{source}"
    assert hops[-1][1] == f"host{target}"
    assert all(here[1] == there[0] for here, there in pairwise(hops))
    assert len(hops) == (2 if source // 2 == target // 2 else 4 if source // 4 == target // 4 else 6)


def test_ecmp_spreads_connections_and_keeps_each_on_its_path() -> None:
    platform = build(ideal_scenario(16, "fat-tree", k=4))
    cores = Counter(_names(platform, 0, 15, port)[2].split("->")[1] for port in range(400))
    assert len(cores) == 4
    assert all(abs(count - 100) < 5 * 8.7 for count in cores.values())  # binomial: sqrt(400 * 1/4 * 3/4)
    assert _names(platform, 0, 15, 7) == _names(build(ideal_scenario(16, "fat-tree", k=4)), 0, 15, 7)


@pytest.mark.parametrize("unit", [1, 2**31, 2**60])
def test_the_seed_moves_connections(unit: int) -> None:
    platforms = [build(ideal_scenario(16, "fat-tree", k=4, seed=seed * unit)) for seed in range(8)]
    assert len({tuple(_names(platform, 0, 15)) for platform in platforms}) > 1


def test_latency_adds_cables_and_switches() -> None:
    made = ideal_scenario(4, "leaf-spine", hosts_per_leaf=2, spines=1, switch_cable="30m", switch_latency="200ns")
    # two host cables of 100 m, two of 30 m between switches, three switches
    assert build(made).path(0, 3).latency == 2 * 500_000 + 2 * 150_000 + 3 * 200_000


def test_store_and_forward_adds_a_packet_per_switch() -> None:
    made = ideal_scenario(2, forwarding="store-and-forward", link_rate="8Gbps")
    assert build(made).path(0, 1).latency == 2 * 500_000 + (4096 + 26) * 1000


def test_links_have_the_rate_of_the_preset_unless_the_fabric_says_otherwise() -> None:
    made = ideal_scenario(4, "leaf-spine", hosts_per_leaf=2, spines=1, link_rate="100Gbps", uplink_rate="400Gbps")
    resources = build(made).resources
    rates = dict(zip(resources.names, resources.capacities, strict=True))
    assert rates["host0->leaf0"] == rates["leaf1->host3"] == 12.5e9
    assert rates["leaf0->spine0"] == rates["spine0->leaf1"] == 50e9


def test_both_directions_of_a_cable_are_resources_of_their_own() -> None:
    platform = build(ideal_scenario(2))
    assert not set(platform.path(0, 1).hops) & set(platform.path(1, 0).hops)
    assert len(set(platform.resources.names)) == len(platform.resources.names)


@pytest.mark.parametrize("rank", [-1, 5, 2**40])
def test_a_rank_outside_the_cluster_is_named(rank: int) -> None:
    # two GPUs, and two host memories numbered after them
    with pytest.raises(SimulationError, match=f"rank {rank} cannot be reached: the cluster has ranks 0 to 1"):
        build(ideal_scenario(2)).path(0, rank)


def test_a_rank_does_not_send_to_itself() -> None:
    with pytest.raises(SimulationError, match="rank 1 cannot send to itself"):
        build(ideal_scenario(2)).path(1, 1)


def test_the_memory_of_a_host_does_not_send_to_itself() -> None:
    platform = build(ideal_scenario(2))
    memory = platform.host_memory(1)
    with pytest.raises(SimulationError, match="the memory of host 1 cannot send to itself"):
        platform.path(memory, memory)


# The rate of a flow is that of its narrowest resource, so that a way without any has none.
@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ideal-100g", "tcp-10g", "rdma-100g"])
@pytest.mark.parametrize("cluster", names("clusters"))
def test_every_way_has_a_resource_that_limits_it(cluster: str, transport: str) -> None:
    platform = build(load("ideal-16", [f"cluster={cluster}", "cluster.hosts=2", f"transport={transport}"]).scenario)
    capacities = platform.resources.capacities
    for source, target in permutations(range(platform.endpoints), 2):
        limits = [capacities[resource] / cost for resource, cost in platform.path(source, target).hops]
        assert 0 < min(limits) < float("inf")


def test_host_memories_are_endpoints_after_the_ranks() -> None:
    platform = build(ideal_scenario(2, cluster={"gpus_per_host": 3}))
    assert [platform.host_memory(host) for host in range(2)] == [6, 7]
    assert platform.endpoints == 8
    assert [platform.host_of(endpoint) for endpoint in range(8)] == [0, 0, 0, 1, 1, 1, 0, 1]
    assert _names(platform, 6, 7) == ["host0->switch0", "switch0->host1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "transport", "fabric"),
    [
        ("dgx-a100", "tcp-10g", "{topology='rail-optimised', radix=8, hosts_per_unit=2, routing='d-mod-k'}"),
        ("dgx-h100", "rdma-100g", "{topology='rail-only', radix=8}"),
        ("jean-zay-v100", "ipoib-100g", "{topology='torus', dimensions=[3, 2], parallel=2}"),
        ("ideal", "ideal-100g", "{topology='leaf-spine', hosts_per_leaf=2, spines=3}"),
        ("ideal", "ideal-100g", "{topology='dragonfly', hosts_per_switch=1, switches_per_group=2, global_cables=1}"),
    ],
)
def test_many_ways_at_once_are_the_ways_one_by_one(cluster: str, transport: str, fabric: str) -> None:
    changes = [f"cluster={cluster}", "cluster.hosts=6", f"transport={transport}", f"fabric={fabric}"]
    changes += ["cluster.pxn=true"] if "rail-only" in fabric else []
    platform = build(load("ideal-16", changes, with_job=False).scenario)
    ranks = range(platform.hosts * platform.cluster.gpus_per_host)
    pairs = [pair for pair in permutations(ranks, 2) if len({*map(platform.host_of, pair)}) == 2]
    sources, targets, ports = np.array([(*pair, port) for pair in pairs for port in (0, 5)]).T.copy()
    paths = platform.paths(sources, targets, ports)
    assert paths is not None
    ends = np.cumsum(paths.length).tolist()
    hops = [*zip(paths.resource.tolist(), paths.cost.tolist(), strict=True)]
    for number, (source, target, port) in enumerate(zip(sources, targets, ports, strict=True)):
        one = platform.path(int(source), int(target), int(port))
        assert list(one.hops) == hops[ends[number] - len(one.hops) : ends[number]]
        assert one.latency == paths.latency[number]
    assert ends[-1] == len(hops)


def test_many_ways_of_which_one_is_missing_are_refused() -> None:
    changes = ["cluster=dgx-a100", "cluster.hosts=2", "fabric={topology='rail-only', radix=8}", "cluster.pxn=false"]
    platform = build(load("ideal-16", changes, with_job=False).scenario)
    with pytest.raises(SimulationError, match="no cable leads from host0/nic1 to host1/nic0"):
        platform.paths(np.array([0, 1]), np.array([8, 8]), np.array([0, 0]))
