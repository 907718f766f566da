"""Algorithm, protocol, channels and threads by NCCL's cost model, against figures worked out by hand or printed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.collectives.nccl import cost, tuning
from fabricsim.collectives.nccl.choice import pick, shrink, threshold
from fabricsim.collectives.nccl.graph import Graph, GroupShape
from fabricsim.errors import InputError


def _group(ranks: int, hosts: int, capability: int, ring: Graph, nvls: Graph | None = None) -> GroupShape:
    nvlink = hosts == 1
    return GroupShape(
        ranks=ranks,
        hosts=hosts,
        capability=capability,
        amd=nvlink,
        within="nvlink" if nvlink else "pcie",
        near=nvlink,
        ring=ring,
        tree=ring,
        nvls=nvls,
        channels=2 * ring.channels,
        nvls_channels=16,
        tuning=tuning.tuning("2.18"),
    )


DGX_A100 = _group(8, 1, 80, Graph(12, 20, 20))
DGX_H100 = _group(8, 1, 90, Graph(12, 30, 30), Graph(8, 40, 40))
HKBU = _group(32, 8, 75, Graph(1, 6, 6))
VERSIONS = ["2.5", "2.8", "2.11", "2.18", "2.23"]


def _under(version: str, group: GroupShape) -> GroupShape:
    return replace(group, tuning=tuning.tuning(version))


@pytest.mark.parametrize(
    ("algorithm", "protocol", "latency", "rate"),
    [
        # base + 2 (7 * nvlink hop): 6.8 + 14 * 0.6, 14 + 14 * 1.25, 28 * 14
        ("tree", "ll", 15.2, 240 * 0.92 / 3.8 / 2),
        ("tree", "ll128", 31.5, 240 * 0.92 * 7 / 9 / 2),
        ("tree", "simple", 392.0, 240 * 0.92 / 2),
        ("ring", "ll", 15.0, 60.0 * 8 / 14),
        ("ring", "ll128", 40.6, 240 * 0.92 * 8 / 14),
        ("ring", "simple", 56.0, 240 * 8 / 14),
    ],
)
def test_table_of_eight_a100(
    algorithm: tuning.Algorithm, protocol: tuning.Protocol, latency: float, rate: float
) -> None:
    assert cost.latency("all_reduce", algorithm, protocol, DGX_A100) == pytest.approx(latency)
    assert cost.bandwidth("all_reduce", algorithm, protocol, DGX_A100) == pytest.approx(rate)


def test_nvls_carries_what_the_links_of_all_heads_do() -> None:
    rate = cost.bandwidth("all_reduce", "nvls", "simple", _under("2.27", DGX_H100))
    assert rate == pytest.approx(8 * 40 * 0.85 * 7 / 8 * 2 * 8 / 14)


def test_network_hops_of_a_ring() -> None:
    # 2.5: all 62 hops over the network; 2.8: 14 over the network and 48 within hosts, LL times 1.8
    assert cost.latency("all_reduce", "ring", "simple", _under("2.6", HKBU)) == pytest.approx(8.4 + 62 * 6.6)
    expected = 3.6 + 48 * 1.0 * 1.8 + 14 * 2.7
    assert cost.latency("all_reduce", "ring", "ll", _under("2.10", HKBU)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("size", "algorithm", "protocol", "printed"),
    [
        (128, "tree", "ll", 25.214764),
        (65536, "tree", "ll", 37.798233),
        (131072, "tree", "ll128", 51.603912),
        (524288, "nvls-tree", "simple", 59.553600),
    ],
)
def test_times_that_nccl_printed_on_three_h100_hosts(size: int, algorithm: str, protocol: str, printed: float) -> None:
    """github.com/NVIDIA/nccl/issues/1453: 24 H100, 16 channels, "65536 Bytes -> Algo 0 proto 0 time 37.798233"."""
    graph = Graph(8, 24, 24)
    group = replace(DGX_H100, ranks=24, hosts=3, amd=False, ring=graph, tree=graph, nvls=Graph(8, 40, 24), channels=16)
    found = pick("all_reduce", size, _under("2.22", group))
    assert (found.algorithm, found.protocol) == (algorithm, protocol)
    assert found.time == pytest.approx(printed, rel=1e-6)


def test_time_that_nccl_printed_on_eight_h100() -> None:
    """github.com/NVIDIA/nccl/issues/1595: "805306368 Bytes -> Algo 1 proto 2 time 3970.683594"."""
    found = pick("all_reduce", 805306368, DGX_H100, algorithms=("ring",), protocols=("simple",))
    assert found.time == pytest.approx(3970.683594, rel=1e-7)


@pytest.mark.parametrize(
    ("protocol", "latency", "rate"),
    [("ll", 33.3, 0.8), ("ll128", 52.0, 0.0), ("simple", 105.6, 3.2)],
)
def test_table_that_nccl_printed_on_four_pcie_hosts(protocol: tuning.Protocol, latency: float, rate: float) -> None:
    """github.com/NVIDIA/nccl/issues/754, AllGather: 16 ranks on 4 hosts whose ring carries 3 GB/s; LL128 is off."""
    group = _under("2.10", replace(HKBU, ranks=16, hosts=4, ring=Graph(1, 3, 3), tree=Graph(1, 3, 3)))
    assert round(cost.latency("all_gather", "ring", protocol, group), 1) == latency
    if cost.default_on(protocol, group):
        assert round(cost.bandwidth("all_gather", "ring", protocol, group), 1) == rate
    else:
        assert rate == 0.0


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast"])
def test_only_rings_where_nothing_else_is(collective: str) -> None:
    assert pick(collective, 2**20, DGX_A100).algorithm == "ring"


def test_small_calls_take_latency_and_large_ones_bandwidth() -> None:
    group = _under("2.6", HKBU)
    picks = [pick("all_reduce", 2**n, group) for n in range(2, 30)]
    pairs = [(found.algorithm, found.protocol) for found in picks]
    assert pairs[0] == ("tree", "ll")
    assert pairs[-1] == ("ring", "simple")
    changes = [here for here, there in pairwise(pairs) if here != there]
    assert len(changes) == len(set(changes))  # no way back


def test_thresholds_are_those_that_the_log_prints() -> None:
    found = [[threshold(a, p, 32) for p in tuning.PROTOCOLS] for a in ("tree", "ring")]
    assert found == [[8, 8, 64], [256, 8, 64]]  # threadThresholds 8/8/64 | 256/8/64


def test_channels_go_before_threads() -> None:
    assert shrink(8 * 512, "tree", "ll", HKBU) == (1, 512)
    assert shrink(8 * 512 - 1, "tree", "ll", HKBU) == (1, 256)
    assert shrink(2 * 8 * 512, "tree", "ll", HKBU) == (2, 512)
    assert shrink(2**30, "ring", "simple", HKBU) == (2, 256)  # a slow ring makes do with half the threads
    assert shrink(2**30, "ring", "simple", DGX_A100) == (24, 512)


def test_ll128_needs_stores_that_arrive_whole() -> None:
    assert not cost.default_on("ll128", HKBU)
    assert cost.default_on("ll128", DGX_A100)
    assert not cost.default_on("ll128", _under("2.6", DGX_A100))


def test_overrides_as_the_environment_has_them() -> None:
    assert pick("all_reduce", 4, HKBU, algorithms=("ring",)).algorithm == "ring"
    assert pick("all_reduce", 4, HKBU, protocols=("simple",)).protocol == "simple"
    assert pick("all_gather", 4, HKBU, algorithms=("tree",)).algorithm == "ring"
    with pytest.raises(InputError, match="protocol leaves NCCL nothing"):
        pick("all_reduce", 4, DGX_H100, algorithms=("ring",), protocols=("none",))


@pytest.mark.parametrize("version", ["2.4", "3.0", "new", ""])
def test_versions_without_the_model_are_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"2\.5 or newer"):
        tuning.tuning(version)


@given(
    st.sampled_from(VERSIONS),
    st.sampled_from([DGX_A100, DGX_H100, HKBU]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
    st.integers(1, 2**34),
)
def test_the_pick_is_the_fastest_and_within_its_limits(
    version: str, group: GroupShape, collective: str, size: int
) -> None:
    group = _under(version, group)
    found = pick(collective, size, group)
    assert 1 <= found.channels <= group.channels
    for algorithm in tuning.ALGORITHMS:
        for protocol in tuning.PROTOCOLS:
            if cost.default_on(protocol, group) and cost.exists(collective, algorithm, protocol, group):
                assert found.time <= cost.time(collective, algorithm, protocol, size, group)
