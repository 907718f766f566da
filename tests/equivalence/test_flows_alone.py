"""A flow alone on an idle fabric takes its time alone, whatever its transport, and so it does in the flow engine."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim.results.traffic import DEMAND, Matrix
from fabricsim.run import traffic
from fabricsim.scenario.load import load

SIZE = 10_240_000


def _alone(transport: str, engine: str, size: int = SIZE, *more: str) -> tuple[float, float]:
    """Completion time in ps and slowdown of one flow across a fat tree."""
    settings = ["fabric=fat-tree-k8", "fabric.k=4", f"transport={transport}", f"engine={engine}", *more]
    flows = np.zeros(1, DEMAND)
    flows[0] = (1, 0, 15, size, 0)
    result = traffic.simulate(load("ideal-16", settings).scenario, Matrix(flows, 16, "one"))
    return float(result.completion[0]), float(result.slowdown[0])


# Those whose window does not have to grow first, and that do not aim at less than the whole link.
@pytest.mark.parametrize(
    "transport",
    [
        "ideal-100g",
        "rdma-100g",
        "roce-100g",
        "roce-100g-pfc",
        "roce-100g-timely",
        "uec-100g",
        "ipoib-100g",
        "ipoib-100g-connected",
        "peers-roce",
        "peers-dcqcn",
        "peers-nscc",
    ],
)
def test_a_long_flow_takes_its_time_alone(transport: str) -> None:
    packets, slowdown = _alone(transport, "packet")
    flow, _ = _alone(transport, "flow")

    # slow start, which the flow engine waits for before the first byte, and the first packet's way
    assert slowdown == pytest.approx(1.0, abs=0.05 if transport.startswith("ipoib") else 1e-3)
    assert packets == pytest.approx(flow, rel=0.01 if transport.startswith("ipoib") else 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp-10g", "ipoib-100g"])
@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
def test_both_engines_have_the_same_round_trip_in_slow_start(transport: str, size: int) -> None:
    packets, _ = _alone(transport, "packet", size)
    flow, _ = _alone(transport, "flow", size)

    assert packets == pytest.approx(flow, rel=0.09)  # the first packet's way over six links, once for each window


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["dctcp-100g", "peers-dctcp-htsim", "peers-new-reno-ns3", "roce-100g-hpcc"])
@pytest.mark.parametrize("size", [4096, SIZE])
def test_no_flow_is_faster_than_alone(transport: str, size: int) -> None:
    _, slowdown = _alone(transport, "packet", size)

    assert slowdown >= 1 - 1e-6  # each packet's time on the wire is a whole number of ps


def test_a_window_of_one_packet_does_not_wait_for_delayed_acknowledgements() -> None:
    windows = ["transport.initial_window=1", "transport.packet.ack_delay=40ms"]
    quick, _ = _alone("tcp-10g", "packet", 64_000, *windows)
    late, _ = _alone("tcp-10g", "packet", 64_000, *windows, "transport.packet.quick_acks=0")

    assert quick < 1e9  # ps: six round trips of 45 us
    assert late == pytest.approx(quick + 40e9, rel=0.01)  # RFC 1122's delay before the first acknowledgement
