from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.records.program import NEVER
from fabricsim.transports.laws import dcqcn
from tests.reference.laws import make_flow, make_law

Begin = Callable[..., tuple[np.record, np.record]]

US = 10**6
MS = 10**9
LINE = 12.5e9
G = 1 / 256
AI = 2.5e6
HAI = 25e6
LEAST = 125e6
SHARED = {
    "gain": G,
    "additive": AI,
    "hyper": HAI,
    "minimum_rate": LEAST,
    "maximum_window": 1e6,
    "cnp_interval": 50 * US,
}
# The timers of the ns-3 model that was published with HPCC (its tuned set, 100 Gb/s).
GATED = {
    "alpha_interval": 1 * US,
    "cut_interval": 4 * US,
    "raise_interval": 300 * US,
    "stages": 1,
}
# SIGCOMM 2015: K = 55 us, T = 55 us, B = 10 MB, F = 5.
PAPER = {
    "alpha_interval": 55 * US,
    "raise_interval": 55 * US,
    "raise_bytes": 10e6,
    "stages": 5,
    "clamp": 1,
}


@pytest.fixture(scope="session")
def begin() -> Begin:
    """Start a flow: ``begin(GATED, stages=5)`` returns its record and that of its law."""

    def start(variant: dict[str, float], **changes: float) -> tuple[np.record, np.record]:
        flow = make_flow(line_rate=LINE, base_rtt=8e6, wire=4178)
        law = make_law(**(SHARED | variant | changes))
        dcqcn.start(flow[0], law[0])
        return flow[0], law[0]

    return start


class EveryTick:
    """The gated variant with timers that really tick, 1 us at a time: the ns-3 model's events one by one."""

    def __init__(self, law: np.record) -> None:
        self.law = law
        self.rate = self.target = LINE
        self.alpha = 1.0
        self.stage = 0
        self.first = True
        self.alpha_notified = self.cut_notified = False
        self.alpha_at = self.cut_at = self.raise_at = NEVER

    def tick(self, now: int) -> None:
        if now == self.alpha_at:
            self.alpha = (1 - G) * self.alpha + (G if self.alpha_notified else 0.0)
            self.alpha_notified = False
            self.alpha_at += int(self.law.alpha_interval)
        if now == self.raise_at:
            if self.stage >= self.law.stages:
                self.target = min(self.target + (AI if self.stage == self.law.stages else HAI), LINE)
            self.rate = (self.rate + self.target) / 2
            self.stage += 1
            self.raise_at += int(self.law.raise_interval)
        if now == self.cut_at:
            if self.cut_notified:
                if self.law.clamp or self.stage:
                    self.target = self.rate
                self.rate = max(LEAST, self.rate * (1 - self.alpha / 2))
                self.stage = 0
                self.cut_notified = False
                self.raise_at = now + int(self.law.raise_interval)
            self.cut_at += int(self.law.cut_interval)

    def notify(self, now: int) -> None:
        self.cut_notified = True
        if self.first:
            self.first = False
            self.alpha_at = now + int(self.law.alpha_interval)
            self.cut_at = now + int(self.law.cut_interval)
        else:
            self.alpha_notified = True


@pytest.mark.slow
@settings(max_examples=40)
@given(
    gaps=st.lists(st.tuples(st.integers(1, 400), st.booleans()), min_size=1, max_size=12),
    raise_interval=st.sampled_from([12, 55, 300]),
    stages=st.sampled_from([1, 5]),
    clamp=st.sampled_from([0, 1]),
)
def test_catching_up_does_what_ticking_timers_would_have_done(
    begin: Begin,
    gaps: list[tuple[int, bool]],
    raise_interval: int,
    stages: int,
    clamp: int,
) -> None:
    flow, law = begin(GATED, raise_interval=raise_interval * US, stages=stages, clamp=clamp)
    model = EveryTick(law)
    now = 0
    for gap, notified in gaps:
        for _ in range(gap):
            now += US
            model.tick(now)
        if notified:
            model.notify(now)
            dcqcn.notify(flow, law, now)
        else:
            dcqcn.advance(flow, law, now)
        # Two gaps of at most CLOSE each may have been closed since the last cut.
        assert flow.rate == pytest.approx(model.rate, rel=4 * dcqcn.CLOSE)
        assert flow.target_rate == pytest.approx(model.target, rel=4 * dcqcn.CLOSE)
        assert flow.alpha == pytest.approx(model.alpha, rel=1e-11)


@pytest.mark.slow
def test_a_flow_starts_at_line_rate_and_no_timer_runs_before_the_first_cnp(begin: Begin) -> None:
    flow, law = begin(GATED)
    dcqcn.advance(flow, law, 10**18)
    assert (flow.rate, flow.target_rate, flow.alpha, flow.window) == (LINE, LINE, 1.0, 1e6)


def test_the_first_cnp_cuts_at_the_end_of_the_decrease_interval(begin: Begin) -> None:
    flow, law = begin(GATED)
    dcqcn.notify(flow, law, 10 * US)
    dcqcn.advance(flow, law, 14 * US - 1)
    assert flow.rate == LINE
    dcqcn.advance(flow, law, 14 * US)
    # Alpha is set to one by the first CNP and decays at each of the four microseconds before the cut.
    assert flow.rate == pytest.approx(LINE * (1 - (1 - G) ** 4 / 2), rel=1e-12)
    assert flow.target_rate == LINE


def test_many_cnps_within_a_decrease_interval_cut_once(begin: Begin) -> None:
    one, law = begin(GATED)
    many, _ = begin(GATED)
    dcqcn.notify(one, law, 0)
    for now in range(0, 4 * US, US // 2):
        dcqcn.notify(many, law, now)
    dcqcn.advance(one, law, 4 * US)
    dcqcn.advance(many, law, 4 * US)
    # Alpha: notified in the second, third and fourth microsecond, and (after the first CNP) in the first.
    assert many.alpha == pytest.approx(1.0, rel=1e-12)
    assert many.rate == pytest.approx(LINE / 2, rel=1e-12)
    assert one.rate > many.rate


@pytest.mark.parametrize("clamp", [0, 1])
def test_without_clamp_a_second_cut_keeps_the_target_unless_there_was_an_increase(begin: Begin, clamp: int) -> None:
    flow, law = begin(GATED, clamp=clamp)
    dcqcn.notify(flow, law, 0)
    dcqcn.advance(flow, law, 4 * US)
    after_one = float(flow.rate)
    dcqcn.notify(flow, law, 5 * US)
    dcqcn.advance(flow, law, 8 * US)
    assert flow.rate < after_one
    assert flow.target_rate == (after_one if clamp else LINE)
    # An increase 300 us after the second cut halves the gap; a cut after it takes that rate as its target.
    low = float(flow.rate)
    target = float(flow.target_rate)
    dcqcn.notify(flow, law, 309 * US)
    assert flow.rate == pytest.approx((low + target) / 2, rel=1e-12)
    dcqcn.advance(flow, law, 312 * US)
    assert flow.target_rate == pytest.approx((low + target) / 2, rel=1e-12)


def test_the_timer_passes_through_fast_recovery_one_additive_step_and_hyper_increase(begin: Begin) -> None:
    flow, law = begin(GATED, stages=2, clamp=1)
    for now in (0, 5 * US):  # two cuts, so that the target is below line rate
        dcqcn.notify(flow, law, now)
        dcqcn.advance(flow, law, now + 4 * US)
    rate, target = float(flow.rate), float(flow.target_rate)
    for event, step in enumerate([0.0, 0.0, AI, HAI, HAI], start=1):
        dcqcn.advance(flow, law, 8 * US + event * 300 * US)
        target += step
        rate = (rate + target) / 2
        assert flow.target_rate == pytest.approx(target, rel=1e-12)
        assert flow.rate == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("variant", [GATED, PAPER])
def test_a_very_long_idle_time_ends_at_line_rate_with_no_alpha_left(begin: Begin, variant: dict[str, float]) -> None:
    flow, law = begin(variant)
    for now in range(0, 100 * US, 5 * US):
        dcqcn.notify(flow, law, now)
    assert flow.rate < LINE / 4
    dcqcn.advance(flow, law, 8 * 10**18)  # 92 days, 3e10 intervals of the timer
    assert flow.rate == flow.target_rate == LINE
    assert flow.alpha == 0.0
    assert min(flow.alpha_at, flow.raise_at) > 8 * 10**18
    assert flow.raise_at <= 8 * 10**18 + law.raise_interval
    dcqcn.notify(flow, law, 8 * 10**18 + 1)
    dcqcn.advance(flow, law, 8 * 10**18 + 5 * US)
    # The cut finds an alpha of zero, or of g where an update of alpha came between CNP and cut.
    assert flow.rate >= LINE * (1 - G / 2)


def test_the_paper_cuts_at_each_cnp_and_then_raises_alpha(begin: Begin) -> None:
    # SIGCOMM 2015, equation 1: RT = RC, RC = RC (1 - alpha/2), alpha = (1-g) alpha + g; alpha begins at one.
    flow, law = begin(PAPER, gain=1 / 16)
    dcqcn.notify(flow, law, 0)
    assert (flow.rate, flow.target_rate, flow.alpha) == (LINE / 2, LINE, 1.0)
    dcqcn.advance(flow, law, 2 * 55 * US)  # equation 2, twice; and two fast recoveries of the timer
    alpha = (15 / 16) ** 2
    rate = LINE * 7 / 8
    assert flow.alpha == pytest.approx(alpha, rel=1e-12)
    assert flow.rate == pytest.approx(rate, rel=1e-12)
    dcqcn.notify(flow, law, 2 * 55 * US)
    assert flow.target_rate == pytest.approx(rate, rel=1e-12)
    assert flow.rate == pytest.approx(rate * (1 - alpha / 2), rel=1e-12)
    assert flow.alpha == pytest.approx(15 / 16 * alpha + 1 / 16, rel=1e-12)
    dcqcn.advance(flow, law, 3 * 55 * US - 1)  # the CNP began the interval of alpha anew
    assert flow.alpha == pytest.approx(15 / 16 * alpha + 1 / 16, rel=1e-12)


def test_the_paper_stays_in_fast_recovery_while_both_counters_are_below_f(begin: Begin) -> None:
    flow, law = begin(PAPER)
    for _ in range(2):
        dcqcn.notify(flow, law, 0)
    rate, target = LINE / 4, LINE / 2  # halved twice, alpha being one
    for event in range(1, 8):
        # The timer alone: T = 1 .. 4 is fast recovery, T >= F additive since the byte counter stands still.
        target += AI if event >= 5 else 0.0
        rate = (rate + target) / 2
        dcqcn.advance(flow, law, event * 55 * US)
        assert flow.target_rate == pytest.approx(target, rel=1e-12)
        assert flow.rate == pytest.approx(rate, rel=1e-12)


def test_the_paper_increases_faster_and_faster_when_both_counters_are_beyond_f(begin: Begin) -> None:
    flow, law = begin(PAPER, stages=2)
    for _ in range(2):
        dcqcn.notify(flow, law, 0)
    dcqcn.advance(flow, law, 10 * 55 * US)  # T = 10: one fast recovery, nine additive increases
    target = LINE / 2 + 9 * AI
    assert flow.target_rate == pytest.approx(target, rel=1e-12)
    # Bytes: BC = 1, 2 additive; BC = 3, 4, 5: min(T, BC) - F = 1, 2, 3 times the hyper increase.
    for step in (AI, AI, HAI, 2 * HAI, 3 * HAI):
        target += step
        for _ in range(10):
            dcqcn.sent(flow, law, 1_000_000)
        assert flow.target_rate == pytest.approx(target, rel=1e-12)


def test_the_byte_counter_begins_anew_with_a_cut_and_stands_still_before_the_first(begin: Begin) -> None:
    flow, law = begin(PAPER)
    dcqcn.sent(flow, law, 9_000_000)
    dcqcn.notify(flow, law, 0)
    dcqcn.sent(flow, law, 9_000_000)
    assert flow.byte_stage == 0
    dcqcn.notify(flow, law, 1)
    dcqcn.sent(flow, law, 9_000_000)
    assert flow.byte_stage == 0
    dcqcn.sent(flow, law, 1_000_000)
    assert flow.byte_stage == 1


def test_a_marked_ack_is_a_notification_only_where_there_are_no_cnps(begin: Begin) -> None:
    flow, law = begin(PAPER, cnp_interval=50 * US)
    dcqcn.acknowledge(flow, law, 0, 1, 1, 10 * US)
    assert flow.rate == LINE
    flow, law = begin(PAPER, cnp_interval=0)
    dcqcn.acknowledge(flow, law, 0, 1, 0, 10 * US)
    assert flow.rate == LINE
    dcqcn.acknowledge(flow, law, 0, 1, 1, 10 * US)
    assert flow.rate == LINE / 2


def test_losses_change_nothing(begin: Begin) -> None:
    flow, law = begin(GATED)
    dcqcn.notify(flow, law, 0)
    before = flow.tobytes()
    dcqcn.lose(flow, law, US)
    dcqcn.time_out(flow, law, US)
    assert flow.tobytes() == before


@settings(max_examples=30)
@given(
    variant=st.sampled_from([GATED, PAPER]),
    steps=st.lists(st.tuples(st.integers(0, 2 * MS), st.sampled_from(["cnp", "packet", "look"])), max_size=40),
)
def test_rate_and_alpha_keep_their_bounds(
    begin: Begin,
    variant: dict[str, float],
    steps: list[tuple[int, str]],
) -> None:
    flow, law = begin(variant)
    now = 0
    for gap, kind in steps:
        now += gap
        dcqcn.advance(flow, law, now)
        if kind == "cnp":
            dcqcn.notify(flow, law, now)
        elif kind == "packet":
            dcqcn.sent(flow, law, 4_000_000)
        assert LEAST <= flow.rate <= flow.target_rate <= LINE
        assert 0.0 <= flow.alpha <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("variant", [GATED, PAPER])
def test_two_flows_on_a_bottleneck_converge_to_equal_rates(begin: Begin, variant: dict[str, float]) -> None:
    # A fluid bottleneck of the line rate, without a queue, marks that share of the packets which exceeds it.
    # A receiver sends a CNP after each 50 us in which at least one of its packets was marked.
    rng = np.random.default_rng(1)
    flows = [begin(variant) for _ in range(2)]
    slow, law = flows[1]
    slow.rate = slow.target_rate = LINE / 20
    step = 50 * US
    means = np.zeros((6, 2))  # rates of six periods of 50 ms
    for period in range(6):
        for now in range(period * 50 * MS + step, (period + 1) * 50 * MS + step, step):
            for flow, law in flows:
                dcqcn.advance(flow, law, now)
                dcqcn.sent(flow, law, flow.rate * step * 1e-12)
            rates = np.array([flow.rate for flow, _ in flows])
            share = max(1.0 - LINE / rates.sum(), 0.0)
            marked = rng.random(2) < 1.0 - (1.0 - share) ** (rates * step * 1e-12 / 4178)
            for i in np.flatnonzero(marked):
                dcqcn.notify(*flows[i], now)
            means[period] += rates / 1000
    fairness = means.sum(axis=1) ** 2 / (2 * (means**2).sum(axis=1))  # Jain's index: 0.55 at the start
    assert np.all(np.diff(fairness[:4]) > 0.0)
    assert fairness[-1] > 0.98
    assert np.all(means.sum(axis=1) > 0.95 * LINE)
    assert np.all(means.sum(axis=1) < 1.01 * LINE)
