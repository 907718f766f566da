from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.transports.laws import dctcp
from fabricsim.transports.laws.dctcp import AT_MARKS, EVERY_WINDOW, PROPORTIONAL
from tests.reference.laws import make_flow, make_law

G = 1 / 16  # RFC 8257, section 4.2
PARAMETERS = {
    "initial_window": 10.0,
    "initial_threshold": math.inf,
    "minimum_window": 1.0,
    "maximum_window": 1000.0,
    "gain": G,
    "initial_alpha": 1.0,  # RFC 8257, section 3.3: SHOULD
    "cut": AT_MARKS,
}


@pytest.fixture(scope="module")
def law() -> np.record:
    row: np.record = make_law(**PARAMETERS)[0]
    return row


@pytest.fixture(scope="module")
def by_window() -> np.record:
    """Cut as csg-htsim does (``sim/dctcp.cpp``)."""
    row: np.record = make_law(**PARAMETERS | {"initial_alpha": 0.0, "cut": EVERY_WINDOW})[0]
    return row


@pytest.fixture
def steady() -> Callable[..., np.record]:
    """Make a flow in congestion avoidance with 100 of its packets acknowledged and a window in flight."""

    def make(window: int, alpha: float) -> np.record:
        numbers = {"acknowledged": 100, "next_number": 100 + window, "in_flight": window}
        marks = {"epoch": 100 + window, "cut_until": 99, "alpha": alpha}
        flow: np.record = make_flow(window=window, threshold=1, **numbers, **marks)[0]
        return flow

    return make


def _ack(flow: np.record, law: np.record, marked: int, packets: int = 1) -> float:
    """Acknowledge packets as the engine does: what follows them is sent after the law has been asked."""
    acknowledged, following = int(flow.acknowledged) + packets, int(flow.next_number)
    flow.acknowledged, flow.next_number = acknowledged, max(following, acknowledged)
    dctcp.acknowledge(flow, law, 1_000_000, packets, marked, 1_000_000)
    flow.next_number = max(following, acknowledged + int(flow.window))
    return float(flow.window)


def _round(flow: np.record, law: np.record, share: float) -> None:
    """Acknowledge one observation window, of which the first packets are marked."""
    count = int(flow.epoch - flow.acknowledged) + 1
    for i in range(count):
        _ack(flow, law, int(i < round(share * count)))


def test_a_connection_starts_with_alpha_one(law: np.record) -> None:
    table = make_flow(epoch_packets=5, epoch_marked=5)
    dctcp.start(table[0], law)
    assert (table["window"][0], table["threshold"][0], table["rate"][0]) == (10.0, math.inf, math.inf)
    assert (table["alpha"][0], table["epoch"][0], table["epoch_packets"][0], table["epoch_marked"][0]) == (1, 0, 0, 0)


def test_alpha_averages_the_share_of_marks_of_each_window(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    # RFC 8257 section 3.3: alpha = alpha (1 - g) + g M. The window ends with the first ACK beyond its last packet,
    # the 21st of 20 in flight; 7 of 21 are marked, the others are of the next window.
    flow = steady(20, 0.5)
    for i in range(20):
        _ack(flow, law, int(i < 7))
        assert flow.alpha == 0.5
    _ack(flow, law, 0)
    assert flow.alpha == pytest.approx(0.5 * (1 - G) + G * 7 / 21)
    assert (flow.epoch_packets, flow.epoch_marked) == (0, 0)


def test_marks_weigh_as_many_packets_as_their_ack_covers(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    flow = steady(20, 0.5)
    _ack(flow, law, 1, packets=6)
    _ack(flow, law, 0, packets=15)
    assert flow.alpha == pytest.approx(0.5 * (1 - G) + G * 6 / 21)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_alpha_goes_to_a_steady_share_by_powers(
    steady: Callable[[int, float], np.record], law: np.record, share: float
) -> None:
    flow = steady(20, 0.5)
    for _ in range(30):
        _round(flow, law, share)
    assert flow.alpha == pytest.approx(share + (0.5 - share) * (1 - G) ** 30)


def test_the_first_mark_cuts_by_half_of_alpha(steady: Callable[[int, float], np.record], law: np.record) -> None:
    # SIGCOMM 2010 equation 2; RFC 8257 section 3.3 step 9.
    flow = steady(20, 0.3)
    assert _ack(flow, law, 1) == pytest.approx(20 * (1 - 0.3 / 2))
    assert flow.threshold == flow.window


def test_marks_cut_once_per_window(steady: Callable[[int, float], np.record], law: np.record) -> None:
    flow = steady(20, 0.3)
    after = _ack(flow, law, 1)
    for _ in range(19):  # the other packets that were in flight at the cut
        assert _ack(flow, law, 1) == after
    # The first packet that was sent after the cut also ends the observation window, which comes first: all were marked.
    alpha = 0.3 * (1 - G) + G
    assert _ack(flow, law, 1) == pytest.approx(after * (1 - alpha / 2))


def test_a_proportional_cut_takes_what_was_in_flight(steady: Callable[[int, float], np.record]) -> None:
    """RFC 6937: of `RecoverFS` packets that are acknowledged, `ssthresh` are sent, evenly."""
    law = make_law(**PARAMETERS | {"cut": PROPORTIONAL})[0]
    flow = steady(20, 0.5)
    target = 20 * (1 - 0.5 / 2)

    assert _ack(flow, law, 1) == 20
    windows = [_ack(flow, law, 1) for _ in range(19)]  # the others that were in flight, marked or not

    assert windows == pytest.approx([20 - (20 - target) / 20 * count for count in range(1, 20)])
    assert _ack(flow, law, 0) == pytest.approx(target, abs=1)  # sent after the cut: growth goes on
    assert flow.reduction == 0.0


def test_a_loss_ends_a_proportional_cut(steady: Callable[[int, float], np.record]) -> None:
    law = make_law(**PARAMETERS | {"cut": PROPORTIONAL})[0]
    for end in (dctcp.lose, dctcp.time_out):
        flow = steady(20, 0.5)
        _ack(flow, law, 1)

        end(flow, law, 0)

        assert flow.reduction == 0.0


@pytest.mark.parametrize(("alpha", "window"), [(0.0, 20.0), (1.0, 10.0)])
def test_no_congestion_no_cut_and_full_congestion_halves(
    steady: Callable[[int, float], np.record], law: np.record, alpha: float, window: float
) -> None:
    assert _ack(steady(20, alpha), law, 1) == window


def test_without_marks_the_window_grows_as_that_of_new_reno(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    assert _ack(steady(20, 0.5), law, 0) == pytest.approx(20 + 1 / 20)  # RFC 5681 equation 3
    flow = make_flow()[0]
    dctcp.start(flow, law)
    for _ in range(10):
        _ack(flow, law, 0)
    assert flow.window == 20.0  # slow start


def test_a_mark_ends_slow_start(law: np.record) -> None:
    flow = make_flow()[0]
    dctcp.start(flow, law)
    flow.next_number = 10
    assert _ack(flow, law, 1) == 5.0  # alpha is one at first and, after one marked packet, still
    for _ in range(10):
        _ack(flow, law, 0)
    # w += 1/w ten times from 5: w^2 = 25 + 20 and at most 10/25 more.
    assert math.sqrt(45) <= flow.window <= math.sqrt(45.4)


def test_during_recovery_marks_are_counted_and_nothing_moves(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    flow = steady(20, 0.5)
    dctcp.lose(flow, law, 1)
    assert flow.window == flow.threshold == 10.0
    flow.recovering = 1
    for i in range(20):
        assert _ack(flow, law, i % 2) == 10.0
    assert (flow.epoch_packets, flow.epoch_marked) == (20, 10)


def test_marks_of_the_window_of_a_loss_cut_no_further(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    # RFC 3168 section 6.1.2: one reaction to all drops and marks of one window.
    flow = steady(20, 0.5)
    dctcp.lose(flow, law, 1)
    for _ in range(20):
        assert _ack(flow, law, 1) == 10.0
    assert _ack(flow, law, 1) < 10.0


def test_a_timeout_leaves_one_packet_and_observes_anew(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    flow = steady(20, 0.5)
    _ack(flow, law, 1)
    flow.in_flight = 20
    dctcp.time_out(flow, law, 1)
    assert (flow.window, flow.threshold) == (1.0, 10.0)
    flow.next_number = flow.acknowledged + 1
    _ack(flow, law, 0)
    assert (flow.alpha, flow.window) == (pytest.approx(0.5 * (1 - G)), 2.0)


def test_marks_after_a_timeout_cut_though_a_loss_came_before(
    steady: Callable[[int, float], np.record], law: np.record
) -> None:
    flow = steady(20, 1.0)
    dctcp.lose(flow, law, 1)
    dctcp.time_out(flow, law, 1)
    flow.next_number = flow.acknowledged + 1
    for window in (2.0, 3.0, 4.0):
        assert _ack(flow, law, 0) == window
    # Windows of observation end with the first, the second and this fourth ACK; the last has two packets, one marked.
    alpha = (1 - G) ** 3 + G / 2
    assert _ack(flow, law, 1) == pytest.approx(4 * (1 - alpha / 2))


def test_the_threshold_stays_at_two_packets(steady: Callable[[int, float], np.record], law: np.record) -> None:
    flow = steady(3, 1.0)
    assert _ack(flow, law, 1) == 1.5
    assert flow.threshold == 2.0  # RFC 5681 equation 4


def test_the_window_is_never_cut_below_its_minimum(steady: Callable[[int, float], np.record]) -> None:
    law = make_law(**PARAMETERS | {"minimum_window": 2.0})[0]
    flow = steady(3, 1.0)
    for _ in range(50):
        _ack(flow, law, 1)
    assert (flow.window, flow.threshold) == (2.0, 2.0)


def test_a_mark_on_a_duplicate_ack_cuts(steady: Callable[[int, float], np.record], law: np.record) -> None:
    flow = steady(20, 0.5)
    assert _ack(flow, law, 1, packets=0) == 15.0
    assert (flow.alpha, flow.epoch_packets) == (0.5, 0)


# ---- a cut at the end of every window, as csg-htsim has it --------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_a_connection_starts_with_the_alpha_of_its_law(alpha: float) -> None:
    flow = make_flow(alpha=0.5)[0]
    dctcp.start(flow, make_law(**PARAMETERS | {"initial_alpha": alpha})[0])
    assert flow.alpha == alpha


def test_a_window_without_marks_is_cut_too(
    steady: Callable[[int, float], np.record], law: np.record, by_window: np.record
) -> None:
    flow, other = steady(20, 0.5), steady(20, 0.5)
    for _ in range(20):
        _ack(flow, by_window, 0)
        _ack(other, law, 0)
    before = float(flow.window)
    assert before == other.window  # congestion avoidance: nothing is cut within a window
    alpha = 0.5 * (1 - G)  # the 21st ACK ends the window; no packet was marked
    after = before * (1 - alpha / 2)
    assert _ack(flow, by_window, 0) == pytest.approx(after + 1 / after)
    assert flow.threshold == pytest.approx(after)
    assert _ack(other, law, 0) > before


def test_a_mark_within_a_window_cuts_nothing_and_its_ack_raises_the_window(
    steady: Callable[[int, float], np.record], by_window: np.record
) -> None:
    flow = steady(20, 0.5)
    assert _ack(flow, by_window, 1) == pytest.approx(20 + 1 / 20)  # RFC 5681 equation 3


def test_the_cut_of_a_window_counts_its_marks(steady: Callable[[int, float], np.record], by_window: np.record) -> None:
    flow = steady(20, 0.5)
    for i in range(20):
        _ack(flow, by_window, int(i < 7))
    before = float(flow.window)
    alpha = 0.5 * (1 - G) + G * 7 / 21
    after = before * (1 - alpha / 2)
    assert _ack(flow, by_window, 0) == pytest.approx(after + 1 / after)


def test_slow_start_goes_on_until_a_mark_and_starts_from_no_congestion(by_window: np.record) -> None:
    flow = make_flow()[0]
    dctcp.start(flow, by_window)
    flow.next_number = 10
    for _ in range(12):  # two windows end among these
        _ack(flow, by_window, 0)
    assert (flow.window, flow.alpha, flow.threshold) == (22.0, 0.0, math.inf)
    assert _ack(flow, by_window, 1) == pytest.approx(22 + 1 / 22)
    assert flow.threshold == 22.0


def test_the_window_after_a_loss_is_observed_anew(
    steady: Callable[[int, float], np.record], law: np.record, by_window: np.record
) -> None:
    flow = steady(20, 0.5)
    for _ in range(10):
        _ack(flow, by_window, 1)
    following = int(flow.next_number)
    dctcp.lose(flow, by_window, 1)
    assert (flow.epoch, flow.epoch_packets, flow.epoch_marked) == (following, 0, 0)
    other = steady(20, 0.5)
    _ack(other, law, 1)
    dctcp.lose(other, law, 1)
    assert (other.epoch, other.epoch_packets, other.epoch_marked) == (120, 1, 1)


def test_the_cut_of_a_window_stops_at_the_least_window(steady: Callable[[int, float], np.record]) -> None:
    law = make_law(**PARAMETERS | {"cut": EVERY_WINDOW, "minimum_window": 2.0})[0]
    flow = steady(3, 1.0)
    for _ in range(3):
        _ack(flow, law, 1)
    # These three raised it by less than 1, so half of it is below 2; the ACK that ends the window raises it again.
    assert _ack(flow, law, 1) == pytest.approx(2 + 1 / 2)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["ack", "ack", "ack", "lose", "time_out"]), st.integers(0, 50), st.integers(0, 1)),
        max_size=80,
    )
)
def test_alpha_and_window_stay_within_their_bounds(law: np.record, events: list[tuple[str, int, int]]) -> None:
    flow = make_flow()[0]
    dctcp.start(flow, law)
    for kind, packets, marked in events:
        before = float(flow.window)
        if kind == "ack":
            after = _ack(flow, law, marked, packets)
            assert after <= (before if marked else before + packets)
            assert after >= max(before / 2, 1.0)  # a mark cuts at most by half
        else:
            flow.in_flight = int(before)
            (dctcp.lose if kind == "lose" else dctcp.time_out)(flow, law, 1)
        assert 0.0 <= flow.alpha <= 1.0
        assert 1.0 <= flow.window <= 1000.0
