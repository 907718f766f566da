"""TIMELY: Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm 1.

Rate based; each ACK with a measured round trip is a completion event. The paper's senders get one
per segment of 16 to 64 KB, so a transport sets how many packets its receivers acknowledge at once.
Rates bytes/s, times ps.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from fabricsim.errors import Mistake
from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Factor, Gain, Interval, Law, Rate, Stages, shares_of


@kernel
def start(flow, law):
    """Send at line rate; nothing is known of delays."""
    flow.window = law.maximum_window
    flow.rate = flow.line_rate
    flow.stage = 0
    flow.previous_rtt = 0.0
    flow.gradient = 0.0


class Timely(Law):
    """TIMELY (Mittal et al., SIGCOMM 2015).

    ``gain`` is the weight of a new gradient, ``decrease`` its beta, ``low`` and ``high`` its
    thresholds, ``stages`` the increases before the hyper ones.
    """

    parameters: ClassVar = {
        "gain": np.float64,
        "decrease": np.float64,
        "low": np.float64,  # T_low, ps
        "high": np.float64,  # T_high, ps
        "minimum_rtt": np.float64,  # ps
        "additive": np.float64,  # increase, bytes/s
        "hyper": np.float64,  # hyper increase, bytes/s
        "minimum_rate": np.float64,  # bytes/s
        "stages": np.int32,  # increases before hyper ones
    }
    state: ClassVar = {
        "stage": np.int32,  # increases since a cut
        "previous_rtt": np.float64,  # ps
        "gradient": np.float64,  # smoothed change of the round trip, ps
    }
    fixed_window = True
    paced = True
    delay_key = "high"

    gain: Gain = 0.875
    decrease: Factor = 0.8
    low: Interval = 50_000_000
    high: Interval = 500_000_000
    minimum_rtt: Interval = 20_000_000
    additive: Rate | None = None
    hyper: Rate | None = None
    minimum_rate: Rate | None = None
    stages: Stages = 5

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Scale rates: 10 and 50 Mb/s per 10 Gb/s (ns-3 of the HPCC authors)."""
        return shares_of(self, line_rate, additive=1 / 1000, hyper=1 / 200, minimum_rate=1 / 100)

    def problems(self) -> Iterator[Mistake]:
        """Have the thresholds in order."""
        if self.low >= self.high:
            yield Mistake("low", "is not below high", "lower it, or raise high")


LAW = Timely


@kernel
def target_delay(flow, law):
    """Longest round trip at which a flow keeps its rate, ps."""
    return law.high


@kernel
def _raise(flow, step):
    flow.rate = min(flow.rate + step, flow.line_rate)
    flow.stage += 1


@kernel
def _cut(flow, law, factor):
    flow.rate = max(flow.rate * factor, law.minimum_rate)
    flow.stage = 0


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
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
