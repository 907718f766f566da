from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.transports.laws import timely
from tests.reference.laws import make_flow, make_law

Begin = Callable[..., tuple[np.record, np.record]]

US = 10**6
LINE = 12.5e9
LEAST = 12.5e6
AI = 12.5e6  # 100 Mb/s
HAI = 62.5e6
WEIGHT = 0.875
BETA = 0.8
T_LOW = 50 * US
T_HIGH = 500 * US
MIN_RTT = 20 * US


@pytest.fixture(scope="session")
def begin() -> Begin:
    """Start a flow and set its rate."""

    def start(rate: float) -> tuple[np.record, np.record]:
        flow = make_flow(line_rate=LINE, base_rtt=8e6, wire=4178)
        law = make_law(
            gain=WEIGHT,
            decrease=BETA,
            low=T_LOW,
            high=T_HIGH,
            minimum_rtt=MIN_RTT,
            additive=AI,
            hyper=HAI,
            stages=5,
            minimum_rate=LEAST,
            maximum_window=1e6,
        )
        timely.start(flow[0], law[0])
        assert (flow[0].rate, flow[0].window) == (LINE, 1e6)
        flow[0].rate = rate
        return flow[0], law[0]

    return start


def complete(flow: np.record, law: np.record, *round_trips: int) -> None:
    for rtt in round_trips:
        timely.acknowledge(flow, law, 0, 1, 0, rtt)


def test_the_first_round_trip_changes_nothing(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, 900 * US)
    assert flow.rate == 1e9


def test_below_the_low_threshold_the_rate_rises_whatever_the_gradient(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, 10 * US, 49 * US)
    assert flow.gradient > 0.0
    assert flow.rate == 1e9 + AI


def test_above_the_high_threshold_the_rate_falls_by_the_excess(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, 2000 * US, 1000 * US)  # falling: the gradient is negative
    assert flow.gradient < 0.0
    assert flow.rate == pytest.approx(1e9 * (1 - BETA * (1 - 500 / 1000)), rel=1e-12)


def test_in_between_a_rising_round_trip_cuts_by_the_smoothed_gradient(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, 100 * US, 104 * US)
    first = WEIGHT * 4
    assert flow.gradient == pytest.approx(first * US, rel=1e-12)
    rate = 1e9 * (1 - BETA * first / 20)
    assert flow.rate == pytest.approx(rate, rel=1e-12)
    complete(flow, law, 106 * US)
    second = (1 - WEIGHT) * first + WEIGHT * 2
    assert flow.gradient == pytest.approx(second * US, rel=1e-12)
    assert flow.rate == pytest.approx(rate * (1 - BETA * second / 20), rel=1e-12)


def test_in_between_a_steady_round_trip_raises_the_rate_and_after_five_times_more_so(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, *[100 * US] * 6)
    assert flow.rate == pytest.approx(1e9 + 5 * AI, rel=1e-12)
    complete(flow, law, 100 * US, 100 * US)
    assert flow.rate == pytest.approx(1e9 + 5 * AI + 2 * HAI, rel=1e-12)
    complete(flow, law, 101 * US)  # a cut ends the hyper increase
    rate = flow.rate
    complete(flow, law, 90 * US)
    assert flow.rate == pytest.approx(rate + AI, rel=1e-12)


def test_the_rate_stays_between_its_least_and_the_line_rate(begin: Begin) -> None:
    flow, law = begin(LINE - AI / 2)
    complete(flow, law, 30 * US, 30 * US)
    assert flow.rate == LINE
    complete(flow, law, 450 * US)  # a gradient of 18: the factor would be negative
    assert flow.rate == LEAST


def test_an_ack_without_a_round_trip_and_losses_change_nothing(begin: Begin) -> None:
    flow, law = begin(1e9)
    complete(flow, law, 100 * US)
    before = flow.tobytes()
    complete(flow, law, 0)
    timely.lose(flow, law, US)
    timely.time_out(flow, law, US)
    assert flow.tobytes() == before


@given(round_trips=st.lists(st.integers(0, 5000 * US), max_size=60))
def test_whatever_the_round_trips_the_rate_keeps_its_bounds(begin: Begin, round_trips: list[int]) -> None:
    flow, law = begin(1e9)
    for rtt in round_trips:
        complete(flow, law, rtt)
        assert LEAST <= flow.rate <= LINE
