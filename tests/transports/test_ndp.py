"""NDP's window: what may still be sent, which pulls raise."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fabricsim.scenario.load import load
from fabricsim.transports.laws import ndp
from fabricsim.transports.parameters import law_row
from tests.reference.laws import make_flow, make_law

FIRST = 8.0


@pytest.fixture
def pair() -> tuple[Any, Any]:
    flow, law = make_flow()[0], make_law(initial_window=FIRST)[0]
    flow.window = FIRST  # as the engine has it
    ndp.start(flow, law)
    return flow, law


def test_a_packet_sent_is_one_less_to_send(pair: tuple[Any, Any]) -> None:
    flow, law = pair

    ndp.sent(flow, law, 4160)
    ndp.sent(flow, law, 4160)

    assert flow.window == FIRST - 2
    assert flow.rate == math.inf


def test_pulls_are_counted_so_that_a_lost_or_overtaken_one_costs_nothing(pair: tuple[Any, Any]) -> None:
    flow, law = pair
    for _ in range(int(FIRST)):
        ndp.sent(flow, law, 4160)

    ndp.pull(flow, law, 3)  # of which the first two were overtaken
    ndp.pull(flow, law, 1)
    ndp.pull(flow, law, 2)
    ndp.ride(flow, law)

    assert flow.window == 4.0


def test_no_more_than_a_first_window_is_ever_to_send(pair: tuple[Any, Any]) -> None:
    flow, law = pair

    ndp.pull(flow, law, 100)
    ndp.ride(flow, law)
    assert flow.window == FIRST
    for _ in range(int(FIRST)):
        ndp.sent(flow, law, 4160)
    ndp.time_out(flow, law, 0)

    assert flow.window == FIRST


def test_what_is_left_of_the_first_window_of_eqds_is_not_sent() -> None:
    flow, law = make_flow()[0], make_law(initial_window=FIRST, ahead=int(FIRST))[0]
    ndp.start(flow, law)
    for _ in range(5):
        ndp.sent(flow, law, 4160)
    ndp.pull(flow, law, 2)

    ndp.acknowledge(flow, law, 0, 1, 0, 1)
    assert flow.window == 2.0  # what was pulled

    ndp.sent(flow, law, 4160)
    ndp.lose(flow, law, 0)
    assert flow.window == 1.0


@pytest.mark.parametrize("rate", [0.5, 0.99])
def test_pulls_are_a_packet_apart_at_their_share_of_the_line(rate: float) -> None:
    changes = [f"transport.congestion_control.pull_rate={rate}", "transport=peers-ndp"]
    transport = load("ideal-16", ["engine=packet", "cluster.hosts=16", *reversed(changes)]).scenario.transport

    assert law_row(transport)["pull_interval"][0] == pytest.approx(4160 * 80 / rate, abs=1)  # ps
