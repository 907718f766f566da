"""Channels, rates, rings and trees of described clusters, against those of captured logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.collectives.nccl import trees
from fabricsim.collectives.nccl.choice import pick
from fabricsim.collectives.nccl.graph import Graph, describe
from fabricsim.collectives.nccl.tuning import tuning
from fabricsim.files.sources import sources
from fabricsim.scenario.load import load
from fabricsim.traces.nccl_log.reader import read_log

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.scenario.cluster import Cluster
    from fabricsim.traces.nccl_log.records import Communicator


def _hkbu(*settings: str) -> Cluster:
    return load("hkbu", list(settings)).scenario.cluster


def _dgx(gpu: str, gpus: int = 8) -> Cluster:
    settings = [f"cluster.gpu={gpu}", "cluster.intra_host=nvlink", f"cluster.gpus_per_host={gpus}"]
    return _hkbu(*settings, "cluster.gpus_per_pcie_switch=1", "cluster.hosts=1")


@pytest.mark.parametrize(
    ("gpu", "gpus", "ring", "channels"),
    [
        ("a100-sxm-80gb", 8, Graph(12, 20, 20), 24),
        ("h100-sxm", 8, Graph(12, 30, 30), 24),  # github.com/NVIDIA/nccl/issues/1197: nChannels 12, bw 30
        ("v100-sxm2-32gb", 4, Graph(6, 20, 20), 12),
    ],
)
def test_nvlink_hosts(gpu: str, gpus: int, ring: Graph, channels: int) -> None:
    group = describe(_dgx(gpu, gpus), gpus, 1, network=12.5, tuning=tuning("2.18"))
    assert (group.ring, group.channels) == (ring, channels)


def test_one_gpu_alone_has_no_link_to_limit_it() -> None:
    group = describe(_dgx("v100-sxm2-32gb", 1), 1, 1, network=12.5, tuning=tuning("2.18"))
    assert (group.ring.channels, group.hosts) == (16, 1)  # as many as the search tries


def test_nvls_of_eight_h100() -> None:
    group = describe(_dgx("h100-sxm"), 8, 1, network=50.0, tuning=tuning("2.19"))
    assert group.nvls is not None
    assert (group.nvls.channels, group.nvls.within) == (8, 40)  # as in issue 1197


@pytest.mark.parametrize(("network", "rate"), [(12.5, 6.0), (1.25, 1.2)])
def test_pcie_switches_are_crossed_twice(network: float, rate: float) -> None:
    """A ring through host memory climbs from each of two GPUs through their switch: half of 12 GB/s."""
    group = describe(_hkbu(), 32, 8, network=network, tuning=tuning("2.8"))
    assert group.ring == Graph(1, rate, rate)
    assert group.channels == 2


@pytest.mark.parametrize(("network", "rates"), [(12.5, (9.0, 6.0)), (1.25, (1.2, 1.2))])
def test_old_searches_take_gpus_to_reach_each_other(network: float, rates: tuple[float, float]) -> None:
    """Then only the middle of a host's ring climbs, and the sockets' 9 GB/s are what is narrowest."""
    group = describe(_hkbu(), 32, 8, network=network, tuning=tuning("2.6"))
    assert (group.ring.within, group.tree.within, group.channels) == (*rates, 2)


def test_calls_over_infiniband_change_where_the_times_of_2_6_bend() -> None:
    """The captured table has rings by LL from 32 to 512 KiB: its times bend below and above."""
    group = describe(_hkbu(), 32, 8, network=12.5, tuning=tuning("2.6"))
    picks = [pick("all_reduce", 2**power, group) for power in range(13, 22)]
    assert [(found.algorithm, found.protocol) for found in picks] == [
        *[("tree", "ll")] * 2,
        *[("ring", "ll")] * 5,
        *[("ring", "simple")] * 2,
    ]


def _communicators(path: Path) -> tuple[Communicator, ...]:
    (log,) = (read_log(source) for source in sources([path]))
    return log.communicators


def _trees(communicators: tuple[Communicator, ...]) -> dict[int, dict[int, trees.TreePlace]]:
    """Places by channel and rank."""
    found: dict[int, dict[int, trees.TreePlace]] = {}
    for each in communicators:
        for channel, place in each.trees.items():
            found.setdefault(channel, {})[each.rank] = trees.TreePlace(place.parent, tuple(sorted(place.children)))
    return found


@pytest.mark.parametrize(("name", "network"), [("100g", 12.5), ("10g", 1.25)])
def test_rings_and_trees_of_the_hkbu_logs(traces: Path, name: str, network: float) -> None:
    cluster, constants = _hkbu(), tuning("2.6.4")
    logged = _communicators(traces / "nccl_logs" / f"hkbu_{name}" / f"{name}-stepexp2.txt")
    found, first = _trees(logged), next(each for each in logged if each.rank == 0)
    group = describe(cluster, 32, 8, network=network, tuning=constants)
    assert first.channels == group.channels == len(first.rings)
    for members in first.rings.values():
        assert trees.ring(cluster)[: len(members)] == members
        assert len(members) == 20  # NCCL cuts the line
    doubled = trees.double_tree(8, mirrored_when_even=constants.mirrored_when_even)
    assert sorted(found) == [0, 1]
    for channel, tree in enumerate(doubled):
        places = trees.rank_tree(tree, trees.chain(cluster, group.tree.within), split=trees.splits(cluster))
        assert found[channel]
        for rank, place in found[channel].items():
            assert trees.TreePlace(places[rank].parent, tuple(sorted(places[rank].children))) == place


def test_host_trees_of_sixteen_v100_hosts(traces: Path) -> None:
    """Channels 0 and 2 of the log: GPU 0 of each host talks to parent and children."""
    found = _trees(_communicators(traces / "megatron_logs" / "n16_32gb_all_reduce_bench.txt.xz"))
    constants = tuning("2.7.8")
    for channel, tree in zip(
        (0, 2), trees.double_tree(16, mirrored_when_even=constants.mirrored_when_even), strict=True
    ):
        for host, place in enumerate(tree):
            logged = found[channel][4 * host]
            beyond = tuple(child for child in logged.children if child // 4 != host)
            assert beyond == tuple(sorted(4 * child for child in place.children))
            assert logged.parent == (None if place.parent is None else 4 * place.parent)


@given(hosts=st.integers(1, 300), mirrored=st.booleans())
def test_both_trees_reach_every_host_once(hosts: int, *, mirrored: bool) -> None:
    for tree in trees.double_tree(hosts, mirrored_when_even=mirrored):
        children = [child for place in tree for child in place.children]
        roots = [host for host, place in enumerate(tree) if place.parent is None]
        assert sorted(children + roots) == list(range(hosts))
        assert len(roots) == 1
        for host, place in enumerate(tree):
            assert all(tree[child].parent == host for child in place.children)
            assert len(place.children) <= 2


@given(st.integers(4, 300).filter(lambda hosts: hosts % 2 == 0))
def test_no_host_is_busy_in_both_trees(hosts: int) -> None:
    first, second = trees.double_tree(hosts, mirrored_when_even=True)
    busy = [bool(one.children) and bool(other.children) for one, other in zip(first, second, strict=True)]
    assert sum(busy) <= 2  # the two roots
