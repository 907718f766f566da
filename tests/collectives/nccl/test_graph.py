"""Channels, rates, rings and trees of described clusters, against those of captured logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.collectives.nccl import trees
from fabricsim.collectives.nccl.choice import pick
from fabricsim.collectives.nccl.graph import Graph, describe
from fabricsim.collectives.nccl.load import slot_rate
from fabricsim.collectives.nccl.tuning import tuning
from fabricsim.collectives.tree import double_parents, over_hosts
from fabricsim.files.sources import sources
from fabricsim.scenario.load import load
from fabricsim.traces.nccl_log.reader import read_log

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.collectives.tree import Parents
    from fabricsim.scenario.cluster import Cluster
    from fabricsim.traces.nccl_log.records import Communicator


def _hkbu(*settings: str) -> Cluster:
    return load("hkbu", list(settings)).scenario.cluster


def _dgx(gpu: str, gpus: int = 8, *more: str) -> Cluster:
    settings = [*more, f"cluster.gpu={gpu}", "cluster.intra_host=nvlink", f"cluster.gpus_per_host={gpus}"]
    return _hkbu(*settings, "cluster.gpus_per_pcie_switch=1", "cluster.hosts=1")


@pytest.mark.parametrize(
    ("gpu", "gpus", "between", "ring", "channels"),
    [
        ("a100-sxm-80gb", 8, (), Graph(12, 20, 20), 24),
        ("h100-sxm", 8, (), Graph(12, 30, 30), 24),  # github.com/NVIDIA/nccl/issues/1197: nChannels 12, bw 30
        ("v100-sxm2-32gb", 4, (2,), Graph(6, 20, 20), 12),
        ("gh200-96gb", 4, (6,), Graph(12, 30, 30), 24),
        ("v100-sxm2-32gb", 2, (1,), Graph(1, 20, 20), 2),
    ],
)
def test_nvlink_hosts(gpu: str, gpus: int, between: tuple[int, ...], ring: Graph, channels: int) -> None:
    described = _dgx(gpu, gpus, *(f"cluster.nvlinks_between={links}" for links in between))
    group = describe(described, gpus, 1, network=12.5, tuning=tuning("2.18"))
    assert (group.ring, group.channels) == (ring, channels)


def test_an_adapter_is_no_faster_than_its_slot() -> None:
    """NCCL's search takes the narrowest link of the way, and counts 48 GB/s for 16 lanes of the fifth generation."""
    shape = {"include": "dgx-h100", "hosts": 2, "gpus_per_host": 2, "nics_per_host": 2, "gpus_per_pcie_switch": 1}
    table = {"name": "two", "cluster": {**shape, "nic_below_gpu_switch": False}, "fabric": "single-switch"}
    host = load({**table, "transport": "rdma-400g"}).scenario.cluster
    fast, as_its_slot = (describe(host, 4, 2, network=rate, tuning=tuning("2.10")) for rate in (100.0, 48.0))

    assert slot_rate(host.nic.pcie) == 48
    assert (fast.ring, fast.tree) == (as_its_slot.ring, as_its_slot.tree)


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


def _trees(communicators: tuple[Communicator, ...]) -> dict[int, dict[int, tuple[int | None, list[int]]]]:
    """Parent and children by channel and rank."""
    found: dict[int, dict[int, tuple[int | None, list[int]]]] = {}
    for each in communicators:
        for channel, place in each.facts.trees.items():
            found.setdefault(channel, {})[each.rank] = place.parent, sorted(place.children)
    return found


def _children(parents: Parents, node: int) -> list[int]:
    return [child for child, parent in enumerate(parents) if parent == node]


@pytest.mark.parametrize(("name", "network"), [("100g", 12.5), ("10g", 1.25)])
def test_rings_and_trees_of_the_hkbu_logs(traces: Path, name: str, network: float) -> None:
    cluster, constants = _hkbu(), tuning("2.6.4")
    logged = _communicators(traces / "nccl_logs" / f"hkbu_{name}" / f"{name}-stepexp2.txt")
    found, first = _trees(logged), next(each for each in logged if each.rank == 0)
    group = describe(cluster, 32, 8, network=network, tuning=constants)
    assert first.facts.channels == group.channels == len(first.facts.rings)
    for members in first.facts.rings.values():
        assert members == tuple(range(20))  # NCCL cuts the line
    doubled = double_parents(8, mirrored_when_even=constants.mirrored_when_even)
    assert sorted(found) == [0, 1]
    order = trees.chain(cluster, group.tree.within)
    chains = [[4 * host + gpu for gpu in order] for host in range(8)]
    for channel, tree in enumerate(doubled):
        parents = over_hosts(chains, tree, split=trees.splits(cluster))
        assert found[channel]
        for rank, place in found[channel].items():
            assert (parents[rank], _children(parents, rank)) == place


def test_host_trees_of_sixteen_v100_hosts(traces: Path) -> None:
    """Channels 0 and 2 of the log: GPU 0 of each host talks to parent and children."""
    found = _trees(_communicators(traces / "megatron_logs" / "n16_32gb_all_reduce_bench.txt.xz"))
    constants = tuning("2.7.8")
    doubled = double_parents(16, mirrored_when_even=constants.mirrored_when_even)
    for channel, tree in zip((0, 2), doubled, strict=True):
        for host, above in enumerate(tree):
            parent, children = found[channel][4 * host]
            assert [child for child in children if child // 4 != host] == [4 * x for x in _children(tree, host)]
            assert parent == (None if above is None else 4 * above)


@pytest.mark.slow
@given(hosts=st.integers(1, 300), mirrored=st.booleans())
def test_both_trees_reach_every_host_once(hosts: int, *, mirrored: bool) -> None:
    for tree in double_parents(hosts, mirrored_when_even=mirrored):
        reached = [host for host, parent in enumerate(tree) if parent is None]
        assert len(reached) == 1
        for host in reached:  # which grows
            children = _children(tree, host)
            assert len(children) <= 2
            reached += children
        assert sorted(reached) == list(range(hosts))


@given(st.integers(4, 300).filter(lambda hosts: hosts % 2 == 0))
def test_no_host_is_busy_in_both_trees(hosts: int) -> None:
    first, second = (set(tree) - {None} for tree in double_parents(hosts))
    assert len(first & second) <= 2  # the two roots
