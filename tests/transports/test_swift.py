from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.transports.laws import swift
from tests.reference.laws import make_flow, make_law

Begin = Callable[..., tuple[np.record, np.record]]

US = 10**6
BASE = 20 * US
PER_HOP = 3 * US
RANGE = 100 * US
LOW = 0.1
HIGH = 100.0
AI = 1.0
BETA = 0.8
MOST = 0.5
HOPS = 4
PLAIN = BASE + HOPS * PER_HOP  # target delay of a large window
SMOOTHED = 30 * US


@pytest.fixture(scope="session")
def begin() -> Begin:
    """Start a flow with a window: ``begin(10.0)`` returns its record and that of its law."""

    def start(window: float, **changes: float) -> tuple[np.record, np.record]:
        flow = make_flow(line_rate=12.5e9, base_rtt=8e6, wire=4178, hops=HOPS, smoothed=SMOOTHED)
        parameters = {
            "initial_window": window,
            "minimum_window": 0.01,
            "maximum_window": 1000.0,
            "additive": AI,
            "decrease": BETA,
            "largest_cut": MOST,
            "low": BASE,
            "per_hop": PER_HOP,
            "flow_range": RANGE,
            "flow_low": LOW,
            "flow_high": HIGH,
            "stages": 3,
        }
        law = make_law(**(parameters | changes))
        swift.start(flow[0], law[0])
        return flow[0], law[0]

    return start


def test_the_first_window_is_the_laws_and_is_not_paced(begin: Begin) -> None:
    flow, _ = begin(10.0)
    assert (flow.window, flow.rate) == (10.0, math.inf)


@pytest.mark.parametrize(
    ("window", "scaling"),
    [
        (HIGH, 0.0),  # section 3.5: no scaling from fs_max_cwnd on
        (400.0, 0.0),
        (LOW, RANGE),  # all of it at fs_min_cwnd and below
        (0.05, RANGE),
        # alpha / sqrt(w) + beta with alpha = range / (1/sqrt(low) - 1/sqrt(high)), beta = -alpha / sqrt(high)
        (4.0, RANGE * (1 / 2 - 1 / 10) / (math.sqrt(10.0) - 1 / 10)),
    ],
)
def test_the_target_delay_grows_with_the_path_and_for_small_windows(
    begin: Begin, window: float, scaling: float
) -> None:
    flow, law = begin(window)
    assert swift.target_delay(flow, law) == pytest.approx(PLAIN + scaling, rel=1e-12)


def test_the_target_delay_without_flow_scaling_is_that_of_the_path(begin: Begin) -> None:
    flow, law = begin(1.0, flow_range=0.0, flow_low=0.0, flow_high=0.0)
    assert swift.target_delay(flow, law) == PLAIN


def test_below_the_target_a_window_of_acks_adds_the_increase_once(begin: Begin) -> None:
    flow, law = begin(200.0)
    swift.acknowledge(flow, law, US, 1, 0, PLAIN - 1)
    assert flow.window == pytest.approx(200 + AI / 200, rel=1e-15)
    flow, law = begin(200.0)
    swift.acknowledge(flow, law, US, 200, 0, PLAIN - 1)
    assert flow.window == pytest.approx(201.0, rel=1e-12)


def test_below_one_packet_each_packet_adds_the_whole_increase(begin: Begin) -> None:
    flow, law = begin(0.25)
    swift.acknowledge(flow, law, US, 1, 0, BASE)
    assert flow.window == 1.25
    assert flow.rate == math.inf


@pytest.mark.parametrize(("delay", "factor"), [(PLAIN, 1.0), (40 * US, 1 - BETA * (40 - 32) / 40), (400 * US, MOST)])
def test_from_the_target_on_the_cut_is_in_proportion_to_the_excess_up_to_the_largest(
    begin: Begin, delay: int, factor: float
) -> None:
    flow, law = begin(200.0)
    assert PLAIN == 32 * US
    swift.acknowledge(flow, law, 1000 * US, 1, 0, delay)
    assert flow.window == pytest.approx(200 * factor, rel=1e-12)


def test_there_is_one_cut_per_round_trip(begin: Begin) -> None:
    flow, law = begin(400.0)
    swift.acknowledge(flow, law, 1000 * US, 1, 0, 400 * US)
    swift.acknowledge(flow, law, 1000 * US + SMOOTHED - 1, 1, 0, 400 * US)
    swift.lose(flow, law, 1000 * US + SMOOTHED - 1)
    assert flow.window == 200.0
    swift.lose(flow, law, 1000 * US + SMOOTHED)
    assert flow.window == 100.0


def test_a_window_below_one_packet_is_paced_at_a_window_per_round_trip(begin: Begin) -> None:
    flow, law = begin(1.0)
    swift.acknowledge(flow, law, 1000 * US, 1, 0, 10_000 * US)
    assert flow.window == 0.5
    assert flow.rate == pytest.approx(0.5 * 4178 / (SMOOTHED * 1e-12), rel=1e-12)


def test_the_smallest_window_is_kept(begin: Begin) -> None:
    flow, law = begin(1.0)
    for i in range(1, 20):
        swift.acknowledge(flow, law, i * 1000 * US, 1, 0, 10_000 * US)
    assert flow.window == 0.01


def test_timeouts_in_a_row_take_the_largest_cut_and_then_all(begin: Begin) -> None:
    flow, law = begin(400.0)
    for i, window in enumerate([200.0, 100.0, 0.01], start=1):  # stages is 3
        swift.time_out(flow, law, i * 1000 * US)
        assert flow.window == window


def test_an_ack_ends_the_row_of_timeouts(begin: Begin) -> None:
    flow, law = begin(400.0)
    swift.time_out(flow, law, 1000 * US)
    swift.time_out(flow, law, 2000 * US)
    swift.acknowledge(flow, law, 2500 * US, 0, 0, 0)
    swift.time_out(flow, law, 3000 * US)
    assert flow.window == 50.0


@given(steps=st.lists(st.tuples(st.sampled_from("alt"), st.integers(0, 64), st.integers(0, 10**10)), max_size=60))
def test_whatever_happens_the_window_keeps_its_bounds(begin: Begin, steps: list[tuple[str, int, int]]) -> None:
    flow, law = begin(10.0)
    for i, (kind, packets, delay) in enumerate(steps, start=1):
        before = flow.window
        now = i * 20 * US
        if kind == "a":
            swift.acknowledge(flow, law, now, packets, 0, delay)
        elif kind == "l":
            swift.lose(flow, law, now)
        else:
            swift.time_out(flow, law, now)
        assert 0.01 <= flow.window <= 1000.0
        assert (flow.rate == math.inf) == (flow.window >= 1.0)
        assert kind == "a" or flow.window <= before
