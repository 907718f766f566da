from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.transports.laws import new_reno
from tests.reference.laws import make_flow, make_law

PARAMETERS = {
    "initial_window": 10.0,
    "initial_threshold": math.inf,
    "minimum_window": 1.0,
    "maximum_window": 1000.0,
}
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.integers(0, 2000)),
        st.tuples(st.just("lose"), st.integers(0, 2000)),
        st.tuples(st.just("time_out"), st.integers(0, 2000)),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def law() -> np.record:
    row: np.record = make_law(**PARAMETERS)[0]
    return row


def _ack(flow: np.record, law: np.record, packets: int = 1) -> float:
    new_reno.acknowledge(flow, law, 1_000_000, packets, 0, 1_000_000)
    return float(flow.window)


def test_a_connection_starts_with_the_initial_window_and_unpaced(law: np.record) -> None:
    table = make_flow()
    new_reno.start(table[0], law)
    assert (table["window"][0], table["threshold"][0], table["rate"][0]) == (10.0, math.inf, math.inf)


def test_slow_start_adds_what_is_acknowledged(law: np.record) -> None:
    # RFC 5681 equation 2 with RFC 3465's byte counting: a window of ACKs doubles the window, however they are batched.
    single, batched = make_flow(window=10, threshold=math.inf), make_flow(window=10, threshold=math.inf)
    for _ in range(10):
        _ack(single[0], law)
    assert single["window"][0] == _ack(batched[0], law, 10) == 20.0


def test_the_packets_beyond_the_threshold_count_for_congestion_avoidance(law: np.record) -> None:
    flow = make_flow(window=10, threshold=12)[0]
    assert _ack(flow, law, 5) == pytest.approx(12 + 3 / 12)  # two packets to the threshold, three beyond


def test_congestion_avoidance_adds_a_packet_per_window(law: np.record) -> None:
    # RFC 5681 equation 3: w += 1/w per packet, so w^2 grows by 2 + 1/w^2, of which the last term is at most 1/400 here.
    flow = make_flow(window=20, threshold=20)[0]
    assert _ack(flow, law) == pytest.approx(20 + 1 / 20)
    for _ in range(999):
        _ack(flow, law)
    assert math.sqrt(400 + 2 * 1000) <= flow.window <= math.sqrt(400 + (2 + 1 / 400) * 1000)


def test_one_ack_adds_at_most_one_packet_in_congestion_avoidance(law: np.record) -> None:
    assert _ack(make_flow(window=20, threshold=20)[0], law, 500) == 21.0


def test_a_duplicate_ack_changes_nothing(law: np.record) -> None:
    assert _ack(make_flow(window=20, threshold=30)[0], law, 0) == 20.0
    assert _ack(make_flow(window=20, threshold=20)[0], law, 0) == 20.0


def test_the_window_stands_still_during_recovery(law: np.record) -> None:
    flow = make_flow(window=20, threshold=40, recovering=1)[0]
    assert _ack(flow, law, 5) == 20.0


@pytest.mark.parametrize(
    ("in_flight", "threshold"),
    [(100, 50.0), (7, 3.5), (4, 2.0), (3, 2.0), (0, 2.0)],  # RFC 5681 equation 4: max(flight / 2, 2)
)
def test_a_loss_halves_the_flight_and_a_timeout_leaves_one_packet(
    law: np.record, in_flight: int, threshold: float
) -> None:
    # The window is wider than the flight: it is the flight that counts.
    lost, late = make_flow(window=120, in_flight=in_flight), make_flow(window=120, in_flight=in_flight)
    new_reno.lose(lost[0], law, 1)
    new_reno.time_out(late[0], law, 1)
    assert (lost["threshold"][0], lost["window"][0]) == (threshold, threshold)
    assert (late["threshold"][0], late["window"][0]) == (threshold, 1.0)


def test_the_minimum_window_bounds_cuts() -> None:
    law = make_law(**PARAMETERS | {"minimum_window": 4.0})[0]
    flow = make_flow(window=6, in_flight=6)[0]
    new_reno.lose(flow, law, 1)
    assert (flow.threshold, flow.window) == (3.0, 4.0)
    new_reno.time_out(flow, law, 1)
    assert flow.window == 4.0


def test_after_a_timeout_slow_start_leads_to_half_of_what_was_in_flight(law: np.record) -> None:
    flow = make_flow(window=16, in_flight=16)[0]
    new_reno.time_out(flow, law, 1)
    # 1, 2, 4, 8: three round trips to the threshold of 8; in the fourth 1/8 + 1/8.125 + ..., less than one packet.
    windows = []
    for _ in range(4):
        for _ in range(int(flow.window)):
            _ack(flow, law)
        windows.append(float(flow.window))
    assert windows[:3] == [2.0, 4.0, 8.0]
    assert 8 + 8 / 9 < windows[3] < 9.0


@pytest.mark.parametrize(
    ("window", "threshold", "restarted"),
    [(80, math.inf, (10.0, math.inf)), (80, 20, (10.0, 60.0)), (80, 70, (10.0, 70.0)), (8, 4, (8.0, 6.0))],
)
def test_after_an_idle_time_slow_start_begins_anew(
    law: np.record, window: float, threshold: float, restarted: tuple[float, float]
) -> None:
    # RFC 5681, section 4.1: RW = min(IW, cwnd); RFC 2861, section 3: ssthresh = max(ssthresh, 3/4 cwnd).
    flow = make_flow(window=window, threshold=threshold)[0]
    new_reno.restart(flow, law)
    assert (flow.window, flow.threshold) == restarted


@pytest.mark.slow
@settings(max_examples=100)
@given(events=EVENTS)
def test_the_window_stays_within_its_bounds(law: np.record, events: list[tuple[str, int]]) -> None:
    flow = make_flow()[0]
    new_reno.start(flow, law)
    for kind, amount in events:
        before = float(flow.window)
        if kind == "ack":
            assert before <= _ack(flow, law, amount) <= before + amount
        else:
            flow.in_flight = min(amount, int(before))
            (new_reno.lose if kind == "lose" else new_reno.time_out)(flow, law, 1)
            assert flow.threshold >= 2.0
        assert 1.0 <= flow.window <= 1000.0
