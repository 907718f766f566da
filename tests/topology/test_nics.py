"""Hosts with several NICs: which one a message takes, and where it hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import SimulationError, TraceError
from fabricsim.scenario.cluster import Cpu
from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.topology.platform import Platform
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario

Make = Callable[..., Platform]

EIGHT = {"gpus_per_host": 8, "nics_per_host": 8}
LEAVES = {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 2}
TREE = {"gpus_per_host": 8, "nics_per_host": 8, "gpus_per_pcie_switch": 2, "nic_below_gpu_switch": True}
DIRECT = {"join": "pcie", "gpudirect": True, **TREE}
NVLINK = {"intra_host": "nvlink"}


@pytest.fixture
def make() -> Make:
    def _(hosts: int = 2, *, fabric: dict[str, Any] | None = None, **cluster: Any) -> Platform:  # noqa: ANN401
        return build(ideal_scenario(hosts, cluster=cluster, **(fabric or {})))

    return _


def names(platform: Platform, source: int, target: int) -> list[str]:
    return [platform.resources.names[resource] for resource, _ in platform.path(source, target).hops]


# ---- which NIC ------------------------------------------------------------------------------------


def test_each_gpu_sends_by_its_own_nic_and_receives_by_its_own(make: Make) -> None:
    platform = make(**EIGHT)
    assert platform.nics == 16
    assert platform.nodes == (*(f"host{host}/nic{nic}" for host in range(2) for nic in range(8)), "switch0")
    for source in range(8):
        for target in range(8):
            way = [f"host0/nic{source}->switch0", f"switch0->host1/nic{target}"]
            assert names(platform, source, 8 + target) == way


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_consecutive_gpus_share_a_nic(make: Make, nics: int) -> None:
    platform = make(gpus_per_host=8, nics_per_host=nics)
    for gpu in range(8):
        own = gpu // (8 // nics)
        assert platform.nics_of(gpu, 15 - gpu) == (own, nics + (7 - gpu) // (8 // nics))


def test_host_memory_uses_nic_0(make: Make) -> None:
    platform = make(**EIGHT)
    here, there = platform.host_memory(0), platform.host_memory(1)
    assert names(platform, here, there) == ["host0/nic0->switch0", "switch0->host1/nic0"]
    assert platform.nics_of(here, 13) == (0, 13)
    assert platform.nics_of(3, there) == (3, 8)


def test_one_nic_has_the_name_and_number_of_its_host(make: Make) -> None:
    platform = make(gpus_per_host=2)
    assert platform.nodes == ("host0", "host1", "switch0")
    assert platform.nics_of(1, 2) == (0, 1)


# ---- the PCIe tree --------------------------------------------------------------------------------


def test_a_gpu_and_its_nic_meet_below_their_switch(make: Make) -> None:
    platform = make(**DIRECT)
    for gpu in range(8):
        here = [f"host0/gpu{gpu}/pcie/up", f"host0/gpu{gpu}/pcie/down", f"host0/nic{gpu}/pcie/up"]
        assert set(names(platform, gpu, 8 + gpu)[:4]) == {*here, f"host0/nic{gpu}/pcie/down"}


def test_staged_data_crosses_the_uplink_of_its_own_switch(make: Make) -> None:
    platform = make(join="pcie", **TREE)
    for gpu in range(8):
        uplinks = {name for name in names(platform, gpu, 8 + gpu) if "/pcie-switch" in name}
        ways = [("host0", "up"), ("host0", "down"), ("host1", "up"), ("host1", "down")]
        assert uplinks == {f"{host}/pcie-switch{gpu // 2}/{way}" for host, way in ways}


def test_nics_are_on_the_sockets_of_their_gpus(make: Make) -> None:
    cpu = Cpu.model_validate({"name": "round", "sockets": 2, "inter_socket_rate": "20GBps", "copy_rate": "10GBps"})
    platform = make(join="pcie", cpu=cpu, **EIGHT)
    assert not [name for gpu in range(8) for name in names(platform, gpu, 15 - gpu) if "socket" in name]
    alone = make(join="pcie", cpu=cpu, gpus_per_host=8)
    assert "host0/socket1->socket0" in names(alone, 7, 8)


# ---- rails and PXN --------------------------------------------------------------------------------


def test_rails_of_a_single_switch_are_switches_that_nothing_joins() -> None:
    graph = fabric_of({"topology": "single-switch", "rails": True}).network(Ends(4, 8)).graph()
    parts = list(nx.connected_components(graph))
    assert sorted(map(len, parts)) == [5] * 8
    for part in parts:
        assert len({node.partition("/")[2] for node in part if "/" in node}) == 1


@given(hosts=st.integers(1, 9), nics=st.integers(2, 4), per_leaf=st.integers(1, 4), rails=st.booleans())
def test_leaves_have_the_nics_of_their_hosts(*, hosts: int, nics: int, per_leaf: int, rails: bool) -> None:
    fabric = fabric_of({"topology": "leaf-spine", "hosts_per_leaf": per_leaf, "spines": 3, "rails": rails})
    graph = fabric.network(Ends(hosts, nics)).graph()
    ports = [f"host{host}/nic{nic}" for host in range(hosts) for nic in range(nics)]
    leaf = {port: next(iter(graph[port])) for port in ports}
    for one in ports:
        for other in ports:
            (a, i), (b, j) = (port.removeprefix("host").split("/nic") for port in (one, other))
            together = int(a) // per_leaf == int(b) // per_leaf and (i == j or not rails)
            assert (leaf[one] == leaf[other]) == together
    assert set(leaf.values()) == {f"leaf{number}" for number in range(len(set(leaf.values())))}
    assert all(graph.degree[node] >= 4 for node in leaf.values())  # three spines and a NIC or more


@pytest.mark.parametrize(("source", "target", "wires"), [(0, 8, 2), (0, 9, 4), (3, 11, 2), (0, 16, 4), (5, 20, 4)])
def test_only_one_rail_of_neighbours_keeps_off_the_spines(make: Make, source: int, target: int, wires: int) -> None:
    platform = make(4, fabric={"rails": True, **LEAVES}, **EIGHT)
    assert len(names(platform, source, target)) == wires


def test_between_rails_without_a_spine_the_way_out_is_named(make: Make) -> None:
    platform = make(fabric={"rails": True}, **EIGHT)
    assert names(platform, 3, 11) == ["host0/nic3->switch3", "switch3->host1/nic3"]
    with pytest.raises(SimulationError, match=r"from host0/nic0 to host1/nic3: join .* or set cluster\.pxn if"):
        platform.path(0, 11)


@pytest.mark.parametrize("rails", [False, True])
def test_pxn_takes_the_rail_of_the_receiver(make: Make, *, rails: bool) -> None:
    platform = make(fabric={"rails": rails}, pxn=True, **EIGHT, **NVLINK)
    switch = "switch3" if rails else "switch0"
    way = [f"host0/nic3->{switch}", f"{switch}->host1/nic3"]
    assert names(platform, 0, 11) == ["host0/gpu0/nvlink/up", "host0/gpu3/nvlink/down", *way]
    assert names(platform, 3, 11) == way
    assert names(platform, platform.host_memory(0), 11) == way


def test_pxn_forwards_through_the_first_gpu_of_a_nic(make: Make) -> None:
    platform = make(pxn=True, join="pcie", gpudirect=True, gpus_per_host=8, nics_per_host=4, **NVLINK)
    found = names(platform, 0, 8 + 7)
    assert found[:2] == ["host0/gpu0/nvlink/up", "host0/gpu6/nvlink/down"]
    assert set(found[2:6]) == {f"host0/{part}/pcie/{way}" for part in ("gpu6", "nic3") for way in ("up", "down")}
    assert "host0/nic3->switch0" in found
    assert names(platform, 7, 8 + 6)[0].startswith("host0/gpu7/pcie")  # its own NIC: nothing to forward


# ---- fat trees, files -----------------------------------------------------------------------------


def test_a_fat_tree_holds_nics(make: Make) -> None:
    platform = make(4, fabric={"topology": "fat-tree", "k": 4}, gpus_per_host=4, nics_per_host=4)
    assert sum(name.startswith("host") for name in platform.nodes) == 16
    assert len(names(platform, 0, 15)) == 6


def test_the_smallest_fat_tree_counts_nics() -> None:
    graph = fabric_of({"topology": "fat-tree"}).network(Ends(2, 8)).graph()
    assert sum(node.startswith("core") for node in graph) == 4  # k = 4


@pytest.mark.parametrize(
    "cables", [["0,4", "1,5", "2,4", "3,5"], ["host0/nic0,a", "host0/nic1,b", "host1/nic0,a", "host1/nic1,b"]]
)
def test_a_file_joins_nics(tmp_path: Path, cables: list[str]) -> None:
    file = tmp_path / "cables.csv"
    file.write_text("a,b,gbps,delay_ns\n" + "".join(f"{cable},100,5\n" for cable in cables), encoding="utf-8")
    graph = fabric_of({"topology": "file", "links": str(file)}).network(Ends(2, 2)).graph()
    assert sorted(map(len, nx.connected_components(graph))) == [3, 3]
    assert set(graph["host0/nic0"]) == {"a" if "a" in graph else "switch4"}


def test_a_file_must_join_all_nics(tmp_path: Path) -> None:
    file = tmp_path / "cables.csv"
    file.write_text("a,b,gbps,delay_ns\n0,4,100,5\n1,4,100,5\n2,4,100,5\n", encoding="utf-8")
    fabric = fabric_of({"topology": "file", "links": str(file)})
    with pytest.raises(TraceError, match="NIC 3 has no cable, and the cluster has NICs 0 to 3"):
        fabric.network(Ends(2, 2))
    file.write_text("a,b,gbps,delay_ns\nhost0/nic2,a,1,1\n", encoding="utf-8")
    with pytest.raises(TraceError, match="'host0/nic2' is not there: the cluster has host0/nic0 to host1/nic1"):
        fabric.network(Ends(2, 2))


def test_given_paths_lead_from_nic_to_nic(tmp_path: Path) -> None:
    file = tmp_path / "paths.csv"
    file.write_text("src,dst,node_path\nhost0/nic1,7,1-leaf1-spine1-leaf3-host3/nic1\n", encoding="utf-8")
    cluster = {"gpus_per_host": 2, "nics_per_host": 2}
    made = ideal_scenario(4, cluster=cluster, rails=True, paths=str(file), **LEAVES)
    platform = build(made)
    wires = platform.route_links(1, 7, key=0)
    assert [platform.nodes[node] for node in platform.wires.target[wires]] == ["leaf1", "spine1", "leaf3", "host3/nic1"]


def test_next_hops_lead_to_every_nic(make: Make) -> None:
    platform = make(4, fabric={"rails": True, **LEAVES}, gpus_per_host=2, nics_per_host=2)
    hops = platform.next_hops()
    table = hops.group_of.reshape(len(platform.nodes) - platform.nics, platform.nics)
    assert np.all(table >= 0)
    for leaf in range(4):
        for nic in range(8):
            group = table[leaf, nic]
            count = hops.groups[group + 1] - hops.groups[group]
            assert count == (1 if (nic // 4, nic % 2) == divmod(leaf, 2) else 2)  # own leaf, or either spine
