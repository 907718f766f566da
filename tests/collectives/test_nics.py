"""Rings and trees between hosts with several NICs leave by all of them, in both engines."""

from __future__ import annotations

import pytest

from fabricsim.results.summary import bus_factor
from fabricsim.run.bench import collective_times
from fabricsim.scenario.load import load

SIZE = 256 * 2**20
GB = 1e9


def bus_bandwidth(collective: str, cluster: str, transport: str, *settings: str) -> float:
    """Simulate a call of 256 MiB, GB/s."""
    scenario = load("hkbu", [f"cluster={cluster}", f"transport={transport}", *settings]).scenario
    (row,) = collective_times(scenario, collective, [SIZE])
    return bus_factor(collective, scenario.cluster.ranks) * SIZE / row.seconds / GB


@pytest.mark.slow
@pytest.mark.parametrize("collectives", ["rccl", "nccl", "ideal"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_both_engines_fill_eight_adapters(collective: str, collectives: str) -> None:
    found = [
        bus_bandwidth(
            collective,
            "dgx-h100",
            "rdma-400g",
            "cluster.hosts=2",
            f"collectives={collectives}",
            f"engine={engine}",
        )
        for engine in ("flow", "packet")
    ]

    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert min(found) > 300  # eight adapters carry 392, NVLink 371


@pytest.mark.slow
def test_frontier_fills_its_four_adapters() -> None:
    reached = bus_bandwidth("all_reduce", "frontier", "slingshot-200g", "cluster.hosts=4", "collectives=rccl")

    assert 90 < reached < 100


def test_channels_that_are_fewer_than_adapters_have_several() -> None:
    four = ("cluster.hosts=2", "collectives=ideal", "cluster.nics_per_host=4")

    assert bus_bandwidth("all_reduce", "dgx-h100", "rdma-400g", *four) == pytest.approx(4 * 48.9, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("collective", ["all_reduce", "ring_exchange"])
def test_without_gpudirect_kernels_hold_a_fast_port_back(collective: str, engine: str) -> None:
    alone = ("cluster.hosts=2", "cluster.gpus_per_host=1", "cluster.nics_per_host=1", "cluster.gpus_per_pcie_switch=1")
    staged = (*alone, "cluster.nic_below_gpu_switch=false", "cluster.gpudirect=false", "collectives=nccl")

    reached = bus_bandwidth(collective, "dgx-h100", "rdma-400g", *staged, f"engine={engine}")

    assert reached == pytest.approx(15.1, rel=0.01)
