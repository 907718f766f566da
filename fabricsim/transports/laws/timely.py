"""TIMELY: Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm 1.

Rate based; each ACK with a measured round trip is a completion event. The paper's senders get one
per segment of 16 to 64 KB, so a transport sets how many packets its receivers acknowledge at once.
Rates bytes/s, times ps.
"""

from __future__ import annotations

from fabricsim.jit.compile import kernel


@kernel
def start(flow, law):
    """Send at line rate; nothing is known of delays."""
    flow.window = law.maximum_window
    flow.rate = flow.line_rate
    flow.stage = 0
    flow.previous_rtt = 0.0
    flow.gradient = 0.0


@kernel
def _raise(flow, step):
    flow.rate = min(flow.rate + step, flow.line_rate)
    flow.stage += 1


@kernel
def _cut(flow, law, factor):
    flow.rate = max(flow.rate * factor, law.minimum_rate)
    flow.stage = 0


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):  # noqa: ARG001  one signature for all laws
    """Take a measured round trip, ps; the first one only gives the next one something to differ from."""
    if rtt <= 0:
        return
    previous = flow.previous_rtt
    flow.previous_rtt = float(rtt)
    if previous == 0.0:
        return
    flow.gradient += law.gain * (rtt - previous - flow.gradient)
    gradient = flow.gradient / law.minimum_rtt
    if rtt < law.low:
        _raise(flow, law.additive)
    elif rtt > law.high:
        _cut(flow, law, 1.0 - law.decrease * (1.0 - law.high / rtt))
    elif gradient <= 0.0:
        _raise(flow, law.additive if flow.stage < law.stages else law.hyper)
    else:
        _cut(flow, law, max(1.0 - law.decrease * gradient, 0.0))


@kernel
def lose(flow, law, now):
    """Keep the rate: TIMELY answers to delay, and leaves losses to retransmission."""


@kernel
def time_out(flow, law, now):
    """Keep the rate, as after any loss."""
