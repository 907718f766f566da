from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.transports.laws import cubic
from tests.reference.laws import make_flow, make_law

C, BETA = 0.4, 0.7  # RFC 9438, sections 5 and 4.6
ALPHA = 3 * (1 - BETA) / (1 + BETA)  # section 4.3
SECOND, MS = 10**12, 10**9  # ps
PARAMETERS = {
    "initial_window": 10.0,
    "initial_threshold": math.inf,
    "minimum_window": 1.0,
    "maximum_window": 1e6,
    "scale": C,
    "decrease": BETA,
}
EVENTS = st.lists(
    st.tuples(st.sampled_from(["ack", "ack", "ack", "lose", "time_out"]), st.integers(0, 2000), st.integers(1, SECOND)),
    max_size=60,
)


@pytest.fixture(scope="module")
def law() -> np.record:
    row: np.record = make_law(**PARAMETERS)[0]
    return row


@pytest.fixture
def cut(law: np.record) -> Callable[[float, float], np.record]:
    """Make a flow that lost a packet at a window (packets), with a round trip (s)."""

    def make(window: float, rtt: float) -> np.record:
        flow: np.record = make_flow(window=window, in_flight=window, smoothed=rtt * SECOND)[0]
        cubic.lose(flow, law, 1)
        return flow

    return make


def _ack(flow: np.record, law: np.record, now: int, packets: int = 1) -> float:
    cubic.acknowledge(flow, law, now, packets, 0, 0)
    return float(flow.window)


def test_a_connection_starts_with_the_initial_window_and_no_past(law: np.record) -> None:
    table = make_flow(peak=3, prior=3, friendly=3, origin=3, epoch_at=3)
    cubic.start(table[0], law)
    assert (table["window"][0], table["threshold"][0], table["rate"][0]) == (10.0, math.inf, math.inf)
    assert [table[name][0] for name in ("peak", "prior", "friendly", "origin", "epoch_at")] == [0] * 5


def test_slow_start_doubles_the_window(law: np.record) -> None:
    flow = make_flow(window=10, threshold=math.inf, smoothed=MS)[0]
    for _ in range(10):
        _ack(flow, law, SECOND)
    assert flow.window == 20.0


@pytest.mark.parametrize(("in_flight", "threshold"), [(100, 70.0), (50, 35.0), (2, 2.0), (0, 2.0)])
def test_a_cut_leaves_beta_of_the_flight(law: np.record, in_flight: int, threshold: float) -> None:
    # Section 4.6: ssthresh = max(flight_size beta, 2); cwnd = ssthresh after a loss, 1 after a timeout (4.8).
    lost, late = make_flow(window=100, in_flight=in_flight), make_flow(window=100, in_flight=in_flight)
    cubic.lose(lost[0], law, 1)
    cubic.time_out(late[0], law, 1)
    assert (lost["threshold"][0], lost["window"][0]) == pytest.approx((threshold, threshold))
    assert (late["threshold"][0], late["window"][0]) == pytest.approx((threshold, 1.0))


def test_the_minimum_window_bounds_cuts() -> None:
    law = make_law(**PARAMETERS | {"minimum_window": 4.0})[0]
    flow = make_flow(window=5, in_flight=5)[0]
    cubic.lose(flow, law, 1)
    assert (flow.threshold, flow.window) == (3.5, 4.0)
    cubic.time_out(flow, law, 1)
    assert flow.window == 4.0


def test_fast_convergence_lowers_the_peak_of_a_flow_that_lost_below_it(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    flow = cut(100, 0.1)
    assert flow.peak == 100.0
    flow.window = flow.in_flight = 80
    cubic.lose(flow, law, 1)
    assert flow.peak == pytest.approx(80 * (1 + BETA) / 2)  # section 4.7: below the former peak
    flow.window = flow.in_flight = 90
    cubic.lose(flow, law, 1)
    assert flow.peak == 90.0  # above it


def test_the_first_step_is_that_of_reno_and_the_next_aims_a_round_trip_ahead(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    # Section 4.3: at t = 0 the cubic is if the window is, behind W_est = 70 + alpha / 70, so that W_est rules.
    flow = cut(100, 0.1)
    k = math.cbrt(30 / C)
    first = 70 + ALPHA / 70
    assert _ack(flow, law, 5 * SECOND) == pytest.approx(first)
    assert (flow.epoch_at, flow.origin) == (5 * SECOND, pytest.approx(k))
    # Section 4.4 by hand, 10 ms later: W(10 ms) = 70.21 is ahead of W_est; cwnd += (W(10 ms + 100 ms) - cwnd) / cwnd.
    target = C * (0.11 - k) ** 3 + 100
    assert _ack(flow, law, 5 * SECOND + 10 * MS) == pytest.approx(first + (target - first) / first)


@pytest.mark.slow
def test_the_window_follows_its_cubic(cut: Callable[[float, float], np.record], law: np.record) -> None:
    # One ACK per packet makes steps of h = R / w, each w += (W(t + R) - w) / w = (h / R) (W(t + R) - w). With Taylor's
    # remainders the error e = w - W(t) goes, per step, to (1 - h/R) e + h (R/2 W''(a) - h/2 W''(b)): a contraction by
    # h/R towards at most R (R + h)/2 max|W''|, with W'' = 6 C (t - K) and h <= R / w0. An error within it stays so.
    window, rtt = 150.0, 0.1
    flow = cut(window, rtt)
    k = math.cbrt(window * (1 - BETA) / C)
    cut_to = BETA * window
    # The first step is Reno's, alpha / w0, where the cubic rises by at most h W'(0): this error is within the bound.
    assert max(ALPHA, 3 * C * k**2 * rtt) / cut_to < rtt**2 / 2 * 6 * C * k
    begin = now = 3 * SECOND
    while (now - begin) / SECOND < 2 * k:
        t = (now - begin) / SECOND
        bound = rtt**2 / 2 * (1 + 1 / cut_to) * 6 * C * max(k, t + rtt - k)
        assert bound < 0.08  # of windows from 105 to 195 packets
        assert flow.window == pytest.approx(C * (t - k) ** 3 + window, abs=bound)
        step = round(rtt * SECOND / flow.window)
        _ack(flow, law, now)
        now += step
    assert flow.window == pytest.approx(195, abs=0.08)  # symmetric about the peak: beyond it by what was cut


def test_an_ack_of_many_packets_counts_as_many_but_never_passes_the_target(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    target = C * (1.1 - math.cbrt(30 / C)) ** 3 + 100
    for packets, share in [(1, 1 / 70), (35, 35 / 70), (70, 1), (500, 1)]:
        flow = cut(100, 0.1)
        flow.epoch_at, flow.origin, flow.friendly = SECOND, math.cbrt(30 / C), 50.0  # a second into its epoch
        assert _ack(flow, law, 2 * SECOND, packets) == pytest.approx(70 + (target - 70) * share)


def test_a_long_idle_time_raises_the_window_by_half_at_most(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    flow = cut(100, 0.1)
    before = _ack(flow, law, SECOND)
    # An hour later W is in the billions; section 4.2 bounds the target by 1.5 cwnd, of which one ACK gives 1 / cwnd.
    assert _ack(flow, law, 3601 * SECOND) == pytest.approx(before + 0.5)


def test_short_round_trips_grow_like_reno(cut: Callable[[float, float], np.record], law: np.record) -> None:
    # Section 4.3: w += alpha / w per packet, so w^2 grows by 2 alpha + alpha^2 / w^2. In 1000 packets of 1 us round
    # trips the cubic has not moved: the window is Reno's, until it reaches the window before the cut.
    flow = cut(100, 1e-6)
    for i in range(1000):
        _ack(flow, law, SECOND + i * 20_000)
    least = math.sqrt(70**2 + 2 * ALPHA * 1000)
    assert least <= flow.window <= math.sqrt(70**2 + (2 * ALPHA + (ALPHA / 70) ** 2) * 1000)


def test_reno_increase_is_a_whole_packet_above_the_window_before_the_cut(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    flow = cut(100, 1e-6)
    _ack(flow, law, SECOND)
    for friendly, step in [(99.9, ALPHA), (100.0, 1.0)]:  # section 4.3: alpha = 1 once W_est >= cwnd_prior
        flow.friendly = flow.window = friendly
        assert _ack(flow, law, SECOND + MS) == pytest.approx(friendly + step / friendly)


def test_after_an_idle_time_growth_begins_anew() -> None:
    # What an hour of idleness would add to the cubic counts for nothing.
    law = make_law(**PARAMETERS | {"initial_window": 10.0})[0]
    flow = make_flow(window=40, threshold=2, peak=60, prior=60, origin=3.0, epoch_at=SECOND, smoothed=1_000)[0]
    cubic.restart(flow, law)
    assert (flow.window, flow.threshold, flow.epoch_at) == (10.0, 30.0, 0)
    for _ in range(20):
        _ack(flow, law, 3_600 * SECOND)
    assert flow.window == 30.0
    _ack(flow, law, 3_600 * SECOND)
    assert flow.epoch_at == 3_600 * SECOND
    assert 30.0 < flow.window < 30.1


def test_after_a_timeout_growth_begins_at_a_plateau(law: np.record) -> None:
    # Section 4.8: K = 0 and W_max = cwnd when congestion avoidance begins, at the threshold of 0.7 * 40.
    flow = make_flow(window=40, in_flight=40, peak=60, smoothed=0.5 * SECOND)[0]
    cubic.time_out(flow, law, 1)
    for _ in range(27):
        _ack(flow, law, SECOND)
    assert (flow.window, flow.epoch_at) == (28.0, 0)
    _ack(flow, law, SECOND)
    assert (flow.peak, flow.origin, flow.epoch_at) == (28.0, 0.0, SECOND)
    # W(0) = W_est = 28 before the ACK, and W_est is ahead after it.
    assert flow.window == pytest.approx(28 + ALPHA / 28)


def test_the_end_of_slow_start_without_a_loss_is_a_plateau_too(law: np.record) -> None:
    flow = make_flow(window=10, threshold=12, smoothed=SECOND)[0]
    # Two packets to the threshold; the third grows like Reno, with a whole packet per window: there was no cut.
    assert _ack(flow, law, SECOND, 3) == pytest.approx(12 + 1 / 12)
    assert (flow.peak, flow.origin) == (12.0, 0.0)


def test_duplicate_acks_and_recovery_leave_the_window_alone(
    cut: Callable[[float, float], np.record], law: np.record
) -> None:
    flow = cut(100, 0.1)
    before = float(flow.window)
    assert _ack(flow, law, SECOND, 0) == before
    flow.recovering = 1
    assert _ack(flow, law, SECOND, 5) == before
    assert flow.epoch_at == 0  # the clock starts with growth, not with the cut


@pytest.mark.slow
@settings(max_examples=100)
@given(events=EVENTS, rtt=st.integers(1, SECOND))
def test_the_window_stays_within_its_bounds(events: list[tuple[str, int, int]], rtt: int) -> None:
    law = make_law(**PARAMETERS | {"maximum_window": 1000.0})[0]
    flow = make_flow(smoothed=rtt)[0]
    cubic.start(flow, law)
    now = 1
    for kind, amount, pause in events:
        before = float(flow.window)
        now += pause
        if kind == "ack":
            assert before <= _ack(flow, law, now, amount) <= before + amount + 1e-9
        else:
            flow.in_flight = min(amount, int(before))
            (cubic.lose if kind == "lose" else cubic.time_out)(flow, law, now)
            assert flow.threshold >= 2.0
        assert 1.0 <= flow.window <= 1000.0
