from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.transports.laws import round_trip
from tests.reference.laws import make_flow, make_law

MS = 10**9  # ps
INITIAL, LEAST, MOST = 1000 * MS, 200 * MS, 120_000 * MS


@pytest.fixture(scope="module")
def law() -> np.record:
    row: np.record = make_law(initial_timeout=INITIAL, minimum_timeout=LEAST, maximum_timeout=MOST)[0]
    return row


@pytest.fixture
def flow(law: np.record) -> np.record:
    table = make_flow(smoothed=5, variation=6, timeout=7)
    round_trip.start(table[0], law)
    assert (table["smoothed"][0], table["variation"][0], table["timeout"][0]) == (0.0, 0.0, INITIAL)
    row: np.record = table[0]
    return row


def test_the_first_measurement(flow: np.record, law: np.record) -> None:
    # RFC 6298 section 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR = 3 R.
    round_trip.measure(flow, law, 100 * MS)
    assert (flow.smoothed, flow.variation, flow.timeout) == (100.0 * MS, 50.0 * MS, 300.0 * MS)


def test_later_measurements(flow: np.record, law: np.record) -> None:
    # RFC 6298 section 2.3, by hand: RTTVAR = 3/4 50 + 1/4 |100 - 180| = 57.5; SRTT = 7/8 100 + 1/8 180 = 110.
    round_trip.measure(flow, law, 100 * MS)
    round_trip.measure(flow, law, 180 * MS)
    assert (flow.smoothed, flow.variation) == (110.0 * MS, 57.5 * MS)
    assert flow.timeout == (110 + 4 * 57.5) * MS
    # Downwards: RTTVAR = 3/4 57.5 + 1/4 (110 - 70) = 53.125; SRTT = 7/8 110 + 1/8 70 = 105.
    round_trip.measure(flow, law, 70 * MS)
    assert (flow.smoothed, flow.variation) == (105.0 * MS, 53.125 * MS)
    assert flow.timeout == (105 + 4 * 53.125) * MS


def test_no_measurement_changes_nothing(flow: np.record, law: np.record) -> None:
    round_trip.measure(flow, law, 0)
    assert (flow.smoothed, flow.timeout) == (0.0, INITIAL)
    round_trip.measure(flow, law, 100 * MS)
    round_trip.measure(flow, law, 0)
    assert (flow.smoothed, flow.variation, flow.timeout) == (100.0 * MS, 50.0 * MS, 300.0 * MS)


@pytest.mark.parametrize(("rtt", "timeout"), [(MS, LEAST), (66 * MS, LEAST), (50_000 * MS, MOST)])
def test_the_timeout_is_bounded(flow: np.record, law: np.record, rtt: int, timeout: int) -> None:
    round_trip.measure(flow, law, rtt)
    assert flow.timeout == timeout


def test_timeouts_double_up_to_the_maximum_and_a_measurement_ends_it(flow: np.record, law: np.record) -> None:
    seconds = []
    for _ in range(8):
        round_trip.back_off(flow, law)
        seconds.append(flow.timeout / 1000 / MS)
    assert seconds == [2, 4, 8, 16, 32, 64, 120, 120]  # RFC 6298 section 5.5, from the initial 1 s
    round_trip.measure(flow, law, 100 * MS)
    assert flow.timeout == 300.0 * MS


def test_a_steady_round_trip_wears_the_variation_off(flow: np.record, law: np.record) -> None:
    # RTTVAR falls by 3/4 per measurement: R/2 (3/4)^n.
    for _ in range(11):
        round_trip.measure(flow, law, 400 * MS)
    assert flow.variation == pytest.approx(200 * MS * 0.75**10)
    assert flow.timeout == pytest.approx((400 + 4 * 200 * 0.75**10) * MS)


@pytest.mark.parametrize(
    ("handshake", "connect", "rtt"), [(1, 300 * MS, 300 * MS), (2, 300 * MS, 150 * MS), (0, 0, 80 * MS)]
)
def test_a_handshake_is_the_first_measurement(handshake: int, connect: int, rtt: int) -> None:
    # RFC 6298 section 2.2, of a SYN and its answer: RTO = 3 R, at least the minimum
    times = {"initial_timeout": INITIAL, "minimum_timeout": LEAST, "maximum_timeout": MOST}
    law = make_law(**times, sampled=1, handshake=handshake)[0]
    flow = make_flow(connect=connect, base_rtt=80.0 * MS)[0]

    round_trip.start(flow, law)

    assert (flow.smoothed, flow.variation, flow.timeout) == (rtt, rtt / 2, max(3 * rtt, LEAST))


@pytest.mark.slow
@settings(max_examples=100)
@given(rtts=st.lists(st.integers(1, 10**14), min_size=1, max_size=50))
def test_the_smoothed_round_trip_lies_among_the_measured(law: np.record, rtts: list[int]) -> None:
    flow = make_flow()[0]
    round_trip.start(flow, law)
    for rtt in rtts:
        round_trip.measure(flow, law, rtt)
        assert LEAST <= flow.timeout <= MOST
    rounding = 1e-12 * max(rtts)
    assert min(rtts) - rounding <= flow.smoothed <= max(rtts) + rounding
    assert 0.0 <= flow.variation <= max(rtts)
