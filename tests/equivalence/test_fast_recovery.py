"""What later packets have overtaken is found lost without the timer, and by the timer where nothing tells of it."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim.results.traffic import DEMAND, Matrix
from fabricsim.run import traffic
from fabricsim.scenario.load import load
from fabricsim.transports.parameters import law_row

RATE = 12.5e9


@pytest.mark.parametrize(("senders", "size", "buffer"), [(2, 200_000, "80kB"), (3, 200_000, "200kB")])
def test_the_last_packets_of_a_message_are_sent_again_without_a_timeout(senders: int, size: int, buffer: str) -> None:
    """New Reno's least timeout is 250 ms here, and above the last packets there are too few to find them lost."""
    settings = [
        "engine=packet",
        "fabric=single-switch",
        "fabric.host_cable=200m",
        "transport=peers-new-reno-htsim",
        f"transport.switch.buffer.per_port={buffer}",
    ]
    flows = np.zeros(senders, DEMAND)
    flows["id"], flows["source"], flows["bytes"] = range(1, senders + 1), range(1, senders + 1), size

    result = traffic.simulate(load("ideal-16", settings).scenario, Matrix(flows, senders + 1, "incast"))

    assert result.counters["drops"] > 0
    assert result.counters["retransmissions"] == result.counters["drops"]
    assert result.counters["timeouts"] == 0
    assert result.makespan / 1e12 < 2 * senders * size / RATE


def test_arrivals_beyond_a_gap_do_not_put_off_the_timer() -> None:
    """A failure tells nobody of what it lost, and sprayed packets beyond it arrive all the time (RFC 6298, 5.3)."""
    settings = ["engine=packet", "fabric=two-tier", "transport=uec-100g"]
    scenario = load("ideal-16", settings).scenario
    matrix = traffic.request("permutation", scenario, size="1MB")
    failure = 'fabric.failures=[{link="leaf0->spine0",from="20us",until="50us"}]'

    alone = traffic.simulate(scenario, matrix)
    result = traffic.simulate(load("ideal-16", [*settings, failure]).scenario, matrix)

    timeout = int(law_row(scenario.transport)["minimum_timeout"][0])
    assert result.counters["errors"] > 0
    assert result.makespan < alone.makespan + timeout


def test_long_queues_of_an_ideal_fabric_make_nobody_send_again() -> None:
    """Its queues have no bound, so that nothing is lost; the last packets wait for 12 ms."""
    flows = np.zeros(15, DEMAND)
    flows["id"], flows["source"], flows["bytes"] = range(1, 16), range(1, 16), 10_000_000

    result = traffic.simulate(load("ideal-16", ["engine=packet"]).scenario, Matrix(flows, 16, "incast"))

    assert result.counters["retransmissions"] == result.counters["timeouts"] == 0
    assert result.makespan == pytest.approx(12e9, rel=0.02)
