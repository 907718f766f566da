"""TCP New Reno: RFC 5681 (growth, cuts) and RFC 6582 (recovery), windows in packets.

The window grows by the packets that an ACK acknowledges (appropriate byte counting, RFC 3465, without
a limit per ACK), not by the number of ACKs. A mark of congestion has no effect: this sender does not
negotiate ECN.
"""

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Law, Packets

LOWEST_THRESHOLD = 2.0
"""Least slow start threshold, packets (RFC 5681, equation 4)."""
LOSS_WINDOW = 1.0
"""Window after a timeout, packets (RFC 5681, section 3.1)."""
REMEMBERED = 0.75
"""Share of the window that the slow start after an idle time may reach again (RFC 2861, section 3)."""


class NewReno(Law):
    """TCP New Reno (RFC 5681, RFC 6582)."""

    slow_start = True
    window_only = True

    minimum_window: Packets = 1.0
    initial_threshold: Packets | None = None
    """Window at which the first slow start ends; none: at the first loss."""


LAW = NewReno


@kernel
def start(flow, law):
    """Give the first message of a connection its window: packets leave as fast as the NIC takes them."""
    flow.window = law.initial_window
    flow.threshold = law.initial_threshold
    flow.rate = np.inf


@kernel
def slow_start(flow, packets):
    """Grow the window by `packets`, at most to the threshold; returns the packets left over."""
    if flow.window >= flow.threshold:
        return float(packets)
    wanted = flow.window + packets
    flow.window = min(wanted, flow.threshold)
    return wanted - flow.window


@kernel
def grow(flow, law, packets):
    """Grow the window for `packets` newly acknowledged: slow start, then congestion avoidance."""
    rest = slow_start(flow, packets)
    # RFC 5681, section 3.1: one packet per round trip and no more, even if one ACK covers several windows.
    flow.window = min(flow.window + min(rest / flow.window, 1.0), law.maximum_window)


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Take an ACK of `packets` packets; during recovery the window stands still."""
    if flow.recovering == 0:
        grow(flow, law, packets)


@kernel
def lose(flow, law, now):
    """Halve the flight (RFC 5681, equation 4; RFC 6582, section 3.2)."""
    flow.threshold = max(flow.in_flight / 2.0, LOWEST_THRESHOLD)
    flow.window = max(flow.threshold, law.minimum_window)


@kernel
def restart(flow, law):
    """Begin slow start anew after an idle time (RFC 5681, section 4.1)."""
    flow.threshold = max(flow.threshold, REMEMBERED * flow.window)
    flow.window = min(flow.window, law.initial_window)


@kernel
def time_out(flow, law, now):
    """Start again from one packet (RFC 5681, section 3.1)."""
    flow.threshold = max(flow.in_flight / 2.0, LOWEST_THRESHOLD)
    flow.window = max(LOSS_WINDOW, law.minimum_window)
