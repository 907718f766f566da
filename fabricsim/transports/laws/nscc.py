"""NSCC, network-signalled congestion control of Ultra Ethernet Transport.

Hoefler et al., "Ultra Ethernet's Design Principles and Architectural Innovations", arXiv 2508.08906;
Ultra Ethernet Specification 1.0, section 3.6; constants and order of steps as in the consortium's
uet-htsim. The window penalty that a receiver may ask for is not modelled. Windows in packets, times ps.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Duration, Factor, Gain, Interval, Law, Packets

PS_PER_S = 1e12
CLEAN_DELAY = 0.25  # a long delay without a mark counts as this share of a base round trip
FAST = 1  # of flow.stage: the fast increase is in force


class Nscc(Law):
    """NSCC of Ultra Ethernet (specification 1.0, section 3.6).

    ``rtt`` is the unloaded round trip of the network that the parameters are scaled to, ``low`` the
    target queueing delay. ``proportional`` is alpha times the target, ``fair`` the fair increase,
    ``eta`` what each round trip adds, in packets; ``quick`` the fast increase per acknowledged packet.
    A quick adaptation starts at ``adapt_delay`` targets if less than ``adapt_gate`` of the largest
    window arrived. The largest window is ``bdp_limit`` bandwidth-delay products of the flow. Delays
    below ``no_delay`` are none; increases are added after ``gather`` packets.
    """

    parameters: ClassVar = {
        "low": np.float64,  # target queueing delay, ps
        "gain": np.float64,  # weight of the new delay
        "decrease": np.float64,  # gamma
        "largest_cut": np.float64,
        "proportional": np.float64,  # alpha: packets per ps below the target and acknowledged packet over window
        "fair": np.float64,  # packets per round trip
        "eta": np.float64,  # increase per round trip, packets
        "quick": np.float64,  # fast increase, packets per acknowledged packet
        "adapt_delay": np.float64,  # queueing delay that starts a quick adaptation, targets
        "adapt_gate": np.float64,  # share of the maximum window that must not have been achieved
        "bdp_limit": np.float64,  # maximum window, bandwidth-delay products of the flow
        "no_delay": np.float64,  # a queueing delay below this is none, ps
        "gather": np.float64,  # increases are added once more packets than this are acknowledged
    }
    state: ClassVar = {
        "stage": np.int32,  # 1: fast
        "notified": np.int32,  # 1: a NACK came
        "cut_at": np.int64,  # time of the last cut, ps
        "delay": np.float64,  # smoothed queueing delay, ps
        "achieved": np.float64,  # packets acknowledged in the present period of quick adaptation
        "adapted_at": np.int64,  # when quick adaptation may act again, ps
        "increase": np.float64,  # not yet added to the window, packets
        "fast": np.float64,  # packets acknowledged without delay in a row
        "gathered": np.float64,  # packets acknowledged since `increase` was last added
        "adjusted_at": np.int64,  # time of the last increase by eta, ps
        "ignored": np.float64,  # packets still to be answered for before marks count again
    }
    ecn = True
    window_only = True
    each_loss = True

    rtt: Interval = 12_000_000
    low: Interval | None = None
    gain: Gain = 0.0125
    decrease: Factor = 0.8
    largest_cut: Factor = 0.5
    proportional: Packets | None = None
    fair: Packets | None = None
    eta: Packets | None = None
    quick: Packets | None = None
    adapt_delay: Annotated[float, Field(gt=0, le=1000)] = 4.0
    adapt_gate: Factor = 1 / 8
    bdp_limit: Annotated[float, Field(gt=0, le=1000)] = 1.5
    no_delay: Duration = 1_000_000
    gather: Annotated[float, Field(ge=0, le=1e6)] = 8.0
    minimum_window: Packets = 1.0

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Scale from the reference network of 100 Gb/s and 12 us (uet-htsim)."""
        low = 0.75 * self.rtt if self.low is None else self.low
        size = line_rate * self.rtt / PS_PER_S / 150_000
        proportional = 4 * size * low / 12_000_000 if self.proportional is None else self.proportional
        scaled = {"fair": 5 * size, "eta": 0.15 * size, "quick": 0.25 * size}
        left_out = {key: value for key, value in scaled.items() if getattr(self, key) is None}
        return {"low": low, "proportional": proportional / low, **left_out}


LAW = Nscc


@kernel
def _largest(flow, law):
    """Return the largest window: a multiple of the flow's bandwidth-delay product, packets."""
    return min(law.bdp_limit * flow.line_rate * flow.base_rtt / PS_PER_S / flow.wire, law.maximum_window)


@kernel
def _bound(flow, law):
    flow.window = max(min(flow.window, _largest(flow, law)), law.minimum_window)


@kernel
def start(flow, law):
    """Give the first message of a connection the largest window."""
    flow.window = _largest(flow, law)
    _bound(flow, law)
    flow.rate = math.inf
    flow.stage = 0
    flow.notified = 0
    flow.cut_at = 0
    flow.adapted_at = 0
    flow.adjusted_at = 0
    flow.delay = 0.0
    flow.achieved = 0.0
    flow.increase = 0.0
    flow.gathered = 0.0
    flow.fast = 0.0
    flow.ignored = 0.0


@kernel
def _smooth(flow, law, delay, marked):
    """Update the smoothed queueing delay, ps; a long delay without a mark is that of one bad path."""
    if marked == 0 and delay > law.low:
        delay = CLEAN_DELAY * flow.base_rtt
    flow.delay += law.gain * (delay - flow.delay)


@kernel
def _adapt(flow, law, now, marked, delay):
    """Quick adaptation: fall to what arrived within a period, if that was little and congestion heavy.

    Returns whether the window is to be left alone: it has just been adapted, or this is news of
    packets sent before that.
    """
    if flow.ignored > 0.0 and marked == 1:
        return True
    if now <= flow.adapted_at:
        return False
    heavy = flow.notified == 1 or delay > law.adapt_delay * law.low
    adapted = flow.adapted_at != 0 and heavy and flow.achieved < law.adapt_gate * _largest(flow, law)
    if adapted:
        flow.window = max(min(flow.achieved, flow.window), law.minimum_window)  # never an increase
        flow.ignored = float(flow.in_flight)
        flow.notified = 0
    flow.achieved = 0.0
    flow.adapted_at = now + round(flow.base_rtt + law.low)
    return adapted


@kernel
def _discard_increase(flow):
    flow.increase = 0.0
    flow.gathered = 0.0


@kernel
def _grow_fast(flow, law, packets, delay):
    """Fast increase once a window has seen no delay; whether it is in force."""
    if delay >= law.no_delay:
        flow.fast = 0.0
        flow.stage = 0
        return False
    flow.fast += packets
    if flow.stage != FAST and flow.fast <= flow.window:
        return False
    flow.window += law.quick * packets
    flow.stage = FAST
    return True


@kernel
def _decrease(flow, law, now):
    """Multiplicative decrease by the smoothed delay, at most once per base round trip."""
    flow.fast = 0.0
    flow.stage = 0
    if flow.delay > law.low and now - flow.cut_at > flow.base_rtt:
        excess = (flow.delay - law.low) / flow.delay
        flow.window *= 1.0 - min(law.decrease * excess, law.largest_cut)
        flow.cut_at = now


@kernel
def _fulfil(flow, law, now):
    """Add what has gathered, and eta once per base round trip."""
    passed = now - flow.adjusted_at
    if flow.gathered <= law.gather and passed <= flow.base_rtt:
        return
    flow.window += flow.increase / flow.window
    if passed >= flow.base_rtt:
        flow.window += law.eta
        flow.adjusted_at = now
    _discard_increase(flow)


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Take an ACK; mark and delay together decide among four cases (arXiv 2508.08906, congestion management)."""
    flow.achieved += packets
    flow.gathered += packets
    flow.ignored -= packets
    delay = flow.delay
    if rtt > 0:
        delay = max(rtt - flow.base_rtt, 0.0)
        _smooth(flow, law, delay, marked)
    if _adapt(flow, law, now, marked, delay):
        _discard_increase(flow)
        return
    if marked == 0:
        if delay >= law.low:
            flow.increase += law.fair * packets
        elif not _grow_fast(flow, law, packets, delay):
            flow.increase += law.proportional * packets * (law.low - delay)
    elif delay >= law.low:
        _decrease(flow, law, now)
    # else marked without delay: a queue that has just begun to grow; another path will do
    _bound(flow, law)
    _fulfil(flow, law, now)
    _bound(flow, law)


@kernel
def lose(flow, law, now):
    """Take the NACK of one trimmed or lost packet: adapt if it is time, else take the packet off the window."""
    flow.ignored -= 1.0
    flow.notified = 1
    _smooth(flow, law, flow.base_rtt, 1)  # a packet is trimmed where the queue is about a round trip long
    if _adapt(flow, law, now, 1, 0.0):
        _discard_increase(flow)
    else:
        flow.window -= 1.0
    _bound(flow, law)


@kernel
def time_out(flow, law, now):
    """Take the lost packet off the window."""
    flow.window -= 1.0
    _bound(flow, law)
