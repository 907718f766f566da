"""TCP CUBIC: RFC 9438, windows in packets.

After a cut the window follows ``W(t) = C (t - K)^3 + W_max``: fast towards the window of the last
loss, slowly around it, fast beyond. It never grows slower than that of a Reno flow with the same cut.
Slow start is that of New Reno. Not modelled: HyStart, the pause of the clock while the sender has
nothing to send (section 5.8) for less than the idle time of a restart, the undoing of spurious cuts (section 4.9), ECN.
"""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Factor, Law, Packets
from fabricsim.transports.laws import new_reno
from fabricsim.transports.laws.new_reno import LOSS_WINDOW, LOWEST_THRESHOLD, slow_start

SECONDS_PER_PS = 1e-12
LARGEST_STEP = 1.5
"""Most that the window may aim at within a round trip, windows (RFC 9438, section 4.2)."""


class Cubic(Law):
    """CUBIC (RFC 9438). ``scale`` is its C in packets/s^3, ``decrease`` its beta."""

    parameters: ClassVar = {
        "scale": np.float64,  # packets/s^3
        "decrease": np.float64,
    }
    state: ClassVar = {
        "peak": np.float64,  # W_max, plateau of the growth, packets; 0: none known
        "prior": np.float64,  # window before the last cut, packets
        "friendly": np.float64,  # window of a Reno flow, packets
        "epoch_at": np.int64,  # when growth began, ps; 0: not yet
        "origin": np.float64,  # time to grow back to the peak, s
    }
    slow_start = True
    window_only = True

    scale: Annotated[float, Field(gt=0, le=1000)] = 0.4
    decrease: Factor = 0.7
    minimum_window: Packets = 1.0
    initial_threshold: Packets | None = None


LAW = Cubic


@kernel
def start(flow, law):
    """Give the first message of a connection its window: packets leave as fast as the NIC takes them."""
    flow.window = law.initial_window
    flow.threshold = law.initial_threshold
    flow.rate = np.inf
    flow.peak = 0.0
    flow.prior = 0.0
    flow.friendly = 0.0
    flow.origin = 0.0
    flow.epoch_at = 0


@kernel
def _begin_epoch(flow, law, now):
    """Fix the cubic at the first growth after a cut: `peak` is W_max, `origin` is K (section 4.2)."""
    flow.epoch_at = now
    flow.friendly = flow.window
    # No peak is known after a timeout (section 4.8), or where slow start has ended without a loss.
    flow.peak = max(flow.peak, flow.window)
    flow.origin = ((flow.peak - flow.window) / law.scale) ** (1.0 / 3.0)


@kernel
def _cubic(flow, law, elapsed):
    """W(t), packets, `elapsed` seconds after the epoch began (figure 1)."""
    return law.scale * (elapsed - flow.origin) ** 3 + flow.peak


@kernel
def _grow_friendly(flow, law, packets):
    """Grow the window of the Reno flow that cuts by the same factor (figure 4)."""
    step = 1.0  # above the window of the last cut Reno's own increase is fair
    if flow.friendly < flow.prior:
        step = 3.0 * (1.0 - law.decrease) / (1.0 + law.decrease)
    flow.friendly += step * packets / flow.window


@kernel
def _avoid_congestion(flow, law, now, packets):
    if flow.epoch_at == 0:
        _begin_epoch(flow, law, now)
    elapsed = (now - flow.epoch_at) * SECONDS_PER_PS
    target = _cubic(flow, law, elapsed + flow.smoothed * SECONDS_PER_PS)
    target = min(max(target, flow.window), LARGEST_STEP * flow.window)
    _grow_friendly(flow, law, packets)
    if _cubic(flow, law, elapsed) < flow.friendly:
        flow.window = max(flow.window, flow.friendly)
    else:
        # One ACK may cover more than a window; the target is for one round trip.
        flow.window += (target - flow.window) * min(packets / flow.window, 1.0)


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Take an ACK of `packets` packets; during recovery the window stands still."""
    if flow.recovering == 1:
        return
    rest = slow_start(flow, packets)
    if rest > 0.0:
        _avoid_congestion(flow, law, now, rest)
    flow.window = min(flow.window, law.maximum_window)


@kernel
def lose(flow, law, now):
    """Cut the flight by the factor beta (section 4.6), with fast convergence (section 4.7)."""
    flow.prior = flow.window
    if flow.window < flow.peak:
        flow.peak = flow.window * (1.0 + law.decrease) / 2.0  # leave room to newer flows
    else:
        flow.peak = flow.window
    flow.threshold = max(flow.in_flight * law.decrease, LOWEST_THRESHOLD)
    flow.window = max(flow.threshold, law.minimum_window)
    flow.epoch_at = 0


@kernel
def restart(flow, law):
    """Begin slow start anew after an idle time; the window then grows from where it is."""
    new_reno.restart(flow, law)
    flow.epoch_at = 0


@kernel
def time_out(flow, law, now):
    """Start again from one packet and forget the peak (section 4.8)."""
    flow.prior = flow.window
    flow.peak = 0.0
    flow.threshold = max(flow.in_flight * law.decrease, LOWEST_THRESHOLD)
    flow.window = max(LOSS_WINDOW, law.minimum_window)
    flow.epoch_at = 0
