from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.transports.laws import nscc
from tests.reference.laws import make_flow, make_law

Begin = Callable[..., tuple[np.record, np.record]]

# The consortium's reference network: 100 Gb/s and a round trip of 12 us, so that a = 1; trimming, so
# that the target is 0.75 of the round trip, b = 0.75.
US = 10**6
RTT = 12 * US
LINE = 12.5e9
WIRE = 4160
BDP = LINE * RTT * 1e-12 / WIRE  # 36.06 packets
LARGEST = 1.5 * BDP
TARGET = 9 * US
ALPHA = 4 * 0.75 / TARGET
FAIR = 5.0
ETA = 0.15
QUICK = 0.25
GAMMA = 0.8
GAIN = 0.0125
GATHER = 8
LATER = 1000 * US


@pytest.fixture(scope="session")
def begin() -> Begin:
    """Start a flow in mid-life: no adaptation is due, the last eta was just added."""

    def start(window: float, **changes: float) -> tuple[np.record, np.record]:
        flow = make_flow(line_rate=LINE, base_rtt=RTT, wire=WIRE, in_flight=20)
        law = make_law(
            minimum_window=1.0,
            maximum_window=1e6,
            bdp_limit=1.5,
            low=TARGET,
            proportional=ALPHA,
            fair=FAIR,
            eta=ETA,
            quick=QUICK,
            decrease=GAMMA,
            largest_cut=0.5,
            gain=GAIN,
            adapt_delay=4.0,
            adapt_gate=1 / 8,
            no_delay=US,
            gather=GATHER,
        )
        nscc.start(flow[0], law[0])
        fields = {"window": window, "adapted_at": 2 * LATER, "adjusted_at": LATER} | changes
        for name, value in fields.items():
            flow[name] = value
        return flow[0], law[0]

    return start


def acknowledge(flow: np.record, law: np.record, packets: int, delay: int, **more: int) -> None:
    """Give an ACK with a queueing delay, unmarked and at LATER but for ``marked`` and ``now``."""
    nscc.acknowledge(flow, law, more.get("now", LATER), packets, more.get("marked", 0), RTT + delay)


def test_the_first_window_is_one_and_a_half_bandwidth_delay_products() -> None:
    flow = make_flow(line_rate=LINE, base_rtt=RTT, wire=WIRE)[0]
    law = make_law(minimum_window=1.0, maximum_window=1e6, bdp_limit=1.5)[0]
    nscc.start(flow, law)
    assert flow.window == pytest.approx(1.5 * 150_000 / WIRE, rel=1e-12)
    assert flow.rate == math.inf
    law.maximum_window = 20.0
    nscc.start(flow, law)
    assert flow.window == 20.0


@pytest.mark.slow
def test_without_mark_below_the_target_the_increase_is_in_proportion_to_the_room(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 9, 3 * US)  # more than GATHER packets: added at once
    assert flow.window == pytest.approx(20 + ALPHA * 9 * (TARGET - 3 * US) / 20, rel=1e-12)


def test_a_window_of_acks_without_delay_adds_four_a_b_packets(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 20, 0)
    assert flow.window == pytest.approx(20 + 4 * 0.75, rel=1e-12)


def test_without_mark_from_the_target_on_the_increase_is_fair(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 10, TARGET)
    assert flow.window == pytest.approx(20 + FAIR * 10 / 20, rel=1e-12)


def test_with_mark_below_the_target_the_window_stands(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 10, TARGET - 1, marked=1)
    assert flow.window == 20.0


@pytest.mark.parametrize("smoothed", [10 * US, 12 * US, 400 * US])
def test_with_mark_from_the_target_on_the_cut_follows_the_smoothed_delay(begin: Begin, smoothed: int) -> None:
    flow, law = begin(20.0, delay=smoothed)
    acknowledge(flow, law, 1, 30 * US, marked=1)
    delay = (1 - GAIN) * smoothed + GAIN * 30 * US
    assert flow.delay == pytest.approx(delay, rel=1e-12)
    assert flow.window == pytest.approx(20 * max(1 - GAMMA * (delay - TARGET) / delay, 0.5), rel=1e-12)


def test_with_mark_the_window_stands_while_the_smoothed_delay_is_below_the_target(begin: Begin) -> None:
    flow, law = begin(20.0, delay=2 * US)
    acknowledge(flow, law, 1, 30 * US, marked=1)
    assert flow.window == 20.0


def test_there_is_one_cut_per_base_round_trip(begin: Begin) -> None:
    flow, law = begin(32.0, delay=400 * US)
    for gap, window in [(0, 16.0), (RTT, 16.0), (RTT + 1, 8.0)]:
        acknowledge(flow, law, 1, 30 * US, marked=1, now=LATER + gap)
        assert flow.window == pytest.approx(window, abs=ETA + 1e-12)  # eta comes in between


def test_a_long_delay_without_mark_counts_as_a_quarter_of_the_round_trip(begin: Begin) -> None:
    flow, law = begin(20.0, delay=5 * US)
    acknowledge(flow, law, 1, 30 * US)
    assert flow.delay == pytest.approx((1 - GAIN) * 5 * US + GAIN * RTT / 4, rel=1e-12)
    acknowledge(flow, law, 1, TARGET)
    second = (1 - GAIN) * ((1 - GAIN) * 5 * US + GAIN * RTT / 4) + GAIN * TARGET
    assert flow.delay == pytest.approx(second, rel=1e-12)


def test_a_round_trip_below_the_unloaded_one_is_no_delay(begin: Begin) -> None:
    flow, law = begin(20.0, delay=5 * US)
    acknowledge(flow, law, 1, -US)
    assert flow.delay == pytest.approx((1 - GAIN) * 5 * US, rel=1e-12)


def test_an_ack_without_a_round_trip_uses_the_smoothed_delay(begin: Begin) -> None:
    flow, law = begin(20.0, delay=6 * US)
    nscc.acknowledge(flow, law, LATER, 10, 0, 0)
    assert flow.delay == 6 * US
    assert flow.window == pytest.approx(20 + ALPHA * 10 * 3 * US / 20, rel=1e-12)


def test_increases_gather_until_enough_packets_or_a_round_trip_and_then_eta_is_added(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, GATHER, TARGET)
    assert flow.window == 20.0
    acknowledge(flow, law, 1, TARGET)
    window = 20 + FAIR * 9 / 20
    assert flow.window == pytest.approx(window, rel=1e-12)
    acknowledge(flow, law, 1, TARGET, now=LATER + RTT + 1)
    assert flow.window == pytest.approx(window + FAIR / window + ETA, rel=1e-12)
    assert flow.adjusted_at == LATER + RTT + 1


def test_after_a_window_without_delay_the_increase_is_fast(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 20, 0)
    window = 23.0  # proportional, as above; then more than a window has seen no delay
    acknowledge(flow, law, 4, 0)
    assert flow.window == pytest.approx(window + QUICK * 4, rel=1e-12)
    acknowledge(flow, law, 2, US - 1)
    assert flow.window == pytest.approx(window + QUICK * 6, rel=1e-12)
    acknowledge(flow, law, 1, US)  # a delay ends it
    assert flow.window == pytest.approx(window + QUICK * 6, rel=1e-12)
    assert flow.increase == pytest.approx(ALPHA * (TARGET - US), rel=1e-12)


def test_a_mark_with_delay_ends_the_fast_increase(begin: Begin) -> None:
    flow, law = begin(20.0)
    acknowledge(flow, law, 21, 0)  # more than a window: fast
    assert flow.window == pytest.approx(20 + QUICK * 21, rel=1e-12)
    window = flow.window
    acknowledge(flow, law, 1, TARGET, marked=1)
    acknowledge(flow, law, 1, 0)
    assert flow.window == window
    assert flow.increase == pytest.approx(ALPHA * TARGET, rel=1e-12)


def test_quick_adaptation_falls_to_what_arrived_within_a_period(begin: Begin) -> None:
    flow, law = begin(40.0, adapted_at=LATER - 1, achieved=2.0, in_flight=30)
    acknowledge(flow, law, 1, 4 * TARGET + 1)
    assert flow.window == 3.0
    assert flow.ignored == 30.0
    assert flow.achieved == 0.0
    assert flow.adapted_at == LATER + RTT + TARGET


@pytest.mark.parametrize(
    "reason",
    [
        {"adapted_at": LATER},  # the period is not over
        {"adapted_at": 0},  # the first period has not begun
        {"achieved": LARGEST / 8},  # enough arrived
        {"delay": 4 * TARGET},  # the delay is not long enough
    ],
)
def test_quick_adaptation_waits_for_its_period_little_success_and_a_long_delay(
    begin: Begin, reason: dict[str, float]
) -> None:
    fields = {"adapted_at": LATER - 1, "achieved": 2.0} | reason
    delay = fields.pop("delay", 4 * TARGET + 1)
    flow, law = begin(40.0, **fields)
    acknowledge(flow, law, 1, int(delay))
    assert flow.window == 40.0
    assert flow.ignored <= 0.0


def test_quick_adaptation_never_raises_the_window(begin: Begin) -> None:
    flow, law = begin(2.0, adapted_at=LATER - 1, achieved=5.0)
    acknowledge(flow, law, 1, 4 * TARGET + 1)
    assert flow.window == 2.0


def test_marks_of_packets_sent_before_an_adaptation_are_ignored(begin: Begin) -> None:
    flow, law = begin(20.0, ignored=3.0, delay=400 * US, increase=7.0)
    acknowledge(flow, law, 1, 30 * US, marked=1)
    acknowledge(flow, law, 1, 30 * US, marked=1)
    assert flow.window == 20.0
    assert flow.increase == 0.0
    acknowledge(flow, law, 1, 30 * US, marked=1)
    assert flow.window == 10.0


def test_acks_without_marks_count_even_while_marks_are_ignored(begin: Begin) -> None:
    flow, law = begin(20.0, ignored=30.0)
    acknowledge(flow, law, 10, TARGET)
    assert flow.window == pytest.approx(20 + FAIR * 10 / 20, rel=1e-12)


def test_a_lost_packet_is_taken_off_the_window(begin: Begin) -> None:
    flow, law = begin(20.0, delay=5 * US)
    nscc.lose(flow, law, LATER)
    assert flow.window == 19.0
    assert flow.delay == pytest.approx((1 - GAIN) * 5 * US + GAIN * RTT, rel=1e-12)
    nscc.time_out(flow, law, LATER)
    assert flow.window == 18.0


def test_a_lost_packet_starts_a_quick_adaptation_at_the_end_of_the_period(begin: Begin) -> None:
    flow, law = begin(40.0, adapted_at=LATER - 1, achieved=4.0, in_flight=12)
    nscc.lose(flow, law, LATER)
    assert flow.window == 4.0
    assert flow.ignored == 12.0
    nscc.lose(flow, law, LATER)  # of the packets that were in flight: nothing more
    assert flow.window == 4.0
    assert flow.ignored == 11.0


def test_a_loss_starts_one_quick_adaptation_only(begin: Begin) -> None:
    flow, law = begin(40.0, adapted_at=LATER - 1, achieved=4.0, in_flight=0)
    nscc.lose(flow, law, LATER)
    assert flow.window == 4.0
    acknowledge(flow, law, 1, 0, marked=1, now=LATER + RTT + TARGET + 1)  # the next period ends, all is well
    assert flow.window == pytest.approx(4.0 + ETA, rel=1e-12)


def test_a_loss_within_the_period_is_remembered_until_its_end(begin: Begin) -> None:
    flow, law = begin(40.0, adapted_at=LATER + US, achieved=3.0)
    nscc.lose(flow, law, LATER)
    assert flow.window == 39.0
    acknowledge(flow, law, 1, 0, now=LATER + US + 1)
    assert flow.window == 4.0


def test_the_smallest_window_is_kept(begin: Begin) -> None:
    flow, law = begin(1.5)
    nscc.lose(flow, law, LATER)
    assert flow.window == 1.0
    nscc.time_out(flow, law, LATER)
    assert flow.window == 1.0


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["ack", "ack", "ack", "loss", "timeout"]),
            st.integers(0, 30 * US),
            st.integers(0, 16),
            st.booleans(),
            st.integers(0, 60 * US),
        ),
        max_size=60,
    )
)
def test_whatever_happens_the_window_keeps_its_bounds(
    begin: Begin, steps: list[tuple[str, int, int, bool, int]]
) -> None:
    flow, law = begin(20.0, adapted_at=0, adjusted_at=0)
    now = RTT
    for kind, gap, packets, marked, delay in steps:
        before = float(flow.window)
        now += gap
        if kind == "ack":
            acknowledge(flow, law, packets, delay, marked=int(marked), now=now)
        elif kind == "loss":
            nscc.lose(flow, law, now)
        else:
            nscc.time_out(flow, law, now)
        assert 1.0 <= flow.window <= LARGEST * (1 + 1e-12)
        assert kind == "ack" or flow.window <= before
        assert flow.increase >= 0.0
        assert flow.delay >= 0.0
