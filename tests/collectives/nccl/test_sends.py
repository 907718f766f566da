"""Sends between hosts as NCCL makes them: a FIFO of 8 steps on each of two channels keeps the wire busy."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.scenario.load import machine
from fabricsim.transports import flow_model
from tests.reference.scenarios import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.scenario.scenario import Scenario

    Measure = Callable[..., float]

SIZE = 2**28
ONE_GPU = [
    *("cluster.gpus_per_host=1", "cluster.nics_per_host=1", "cluster.gpus_per_pcie_switch=1"),
    *("cluster.nic_below_gpu_switch=false", "cluster.nic.pcie.generation=6", "cluster.gpu_pcie.generation=6"),
]
MOC_SENDRECV = {2**30: 13.96, 3 * 2**30: 13.96, 5 * 2**30: 13.95, 7 * 2**30: 13.97, 9 * 2**30: 13.93}
"""GB/s by bytes on 2 hosts of one H100 with 400 Gb/s RoCE: CCI-MOC/roce-testing@24e67d1, the first rows."""
MOC_ALL_REDUCE = 15.12
"""GB/s of the first row of all-reduce there, of 1 GiB: their hosts carry no more, without GPUDirect as it seems."""


def _hosts(hosts: int, line_rate: str, engine: str = "flow") -> Scenario:
    overrides = [*ONE_GPU, f"transport.line_rate={line_rate}", f"engine={engine}"]
    return machine("dgx-h100", "rdma-400g", hosts, overrides).scenario


def _wire(made: Scenario) -> float:
    """Payload rate of a link, bytes/s."""
    return made.link_rate / flow_model(made.transport).costs.wire


def _rate(made: Scenario, collective: str, size: int = SIZE) -> float:
    """Bytes/s that each sender sends."""
    ranks = range(2 if collective == "send_recv" else made.cluster.ranks)
    sent = size * (len(ranks) - 1) / len(ranks) if collective == "all_to_all" else size
    return sent / measure(made, collective, ranks, size)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_to_all", "send_recv", "ring_exchange"])
@pytest.mark.parametrize("gbps", [100, 400, 800])
@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_sends_fill_the_wire_in_both_engines(hosts: int, gbps: int, collective: str) -> None:
    flows, packets = (_hosts(hosts, f"{gbps}Gbps", engine) for engine in ("flow", "packet"))
    by_flows, by_packets = _rate(flows, collective), _rate(packets, collective)
    assert 0.9 * _wire(flows) < by_flows < _wire(flows)
    assert by_packets == pytest.approx(by_flows, rel=0.05)


@pytest.mark.parametrize(("ranks", "steps"), [(2, 2), (4, 2), (64, 1)])
def test_a_crowded_communicator_has_one_channel_for_each_peer(ranks: int, steps: int) -> None:
    found = NcclPlan(_hosts(ranks, "400Gbps"))("all_to_all", tuple(range(ranks)), SIZE)
    assert (found.chunk, found.window) == (steps * 2**17, 8)


def test_over_nvlink_all_channels_of_the_pair_take_longer_steps() -> None:
    made = machine("dgx-h100", "rdma-400g", 1).scenario
    assert NcclPlan(made)("send_recv", (0, 1), SIZE).chunk == 16 * 2**19


@pytest.mark.slow
def test_measured_sends_run_at_the_rate_of_measured_rings() -> None:
    """Two tables of the same hosts: with the rate of one, the other comes out 8 % too fast."""
    made = _hosts(2, "400Gbps")
    made = _hosts(2, f"{MOC_ALL_REDUCE * 1e9 * made.link_rate / _wire(made):.0f}Bps")
    errors = [_rate(made, "ring_exchange", size) / rate / 1e9 - 1 for size, rate in MOC_SENDRECV.items()]
    assert abs(median(errors)) < 0.15
