"""Swift: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter".

SIGCOMM 2020, algorithm 1 and section 3. The fabric window only: the window for delays within the
receiving host is not modelled, nor are the host's parts of the delay taken off. Windows in packets,
times ps, rates bytes/s.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.errors import Mistake
from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Duration, Factor, Interval, Law, Packets

PS_PER_S = 1e12


class Swift(Law):
    """Swift (Kumar et al., SIGCOMM 2020).

    ``low`` is the base target delay, ``per_hop`` what each link adds, ``flow_range`` the most that a
    small window adds, between windows of ``flow_low`` and ``flow_high``; ``additive`` is the increase per
    round trip, ``decrease`` beta, ``largest_cut`` the most that one cut takes away; ``stages`` timeouts
    in a row set the window to its minimum.
    """

    parameters: ClassVar = {
        "low": np.float64,  # base target delay, ps
        "per_hop": np.float64,  # target delay per link, ps
        "flow_range": np.float64,  # most target delay for small windows, ps
        "flow_low": np.float64,  # window of the full range, packets
        "flow_high": np.float64,  # window without any, packets
        "additive": np.float64,  # increase, packets
        "decrease": np.float64,
        "largest_cut": np.float64,
        "stages": np.int32,  # timeouts to a reset
    }
    state: ClassVar = {
        "stage": np.int32,  # timeouts in a row
        "cut_at": np.int64,  # time of the last cut, ps
    }
    delay_key = "low"

    low: Interval = 20_000_000
    per_hop: Duration | None = None
    flow_range: Duration | None = None
    flow_low: Packets = 0.1
    flow_high: Packets = 100.0
    additive: Packets = 1.0
    decrease: Factor = 0.8
    largest_cut: Factor = 0.5
    stages: Annotated[int, Field(ge=1, le=1000)] = 5
    initial_window: Packets = 10.0
    minimum_window: Packets = 0.1

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Scale delays to the base one, as uet-htsim does."""
        per_hop = self.low / 6.55 if self.per_hop is None else self.per_hop
        return {"per_hop": per_hop, "flow_range": 5 * self.low if self.flow_range is None else self.flow_range}

    def problems(self) -> Iterator[Mistake]:
        """Have the windows of flow scaling in order."""
        if self.flow_low >= self.flow_high:
            yield Mistake("flow_low", "is not below flow_high", "lower it, or raise flow_high")


LAW = Swift


@kernel
def start(flow, law):
    """Give the first message of a connection its window."""
    flow.stage = 0
    flow.cut_at = 0
    _set_window(flow, law, law.initial_window)


@kernel
def target_delay(flow, law):
    """Round trip that the flow aims at: base, path length and flow scaling (sections 3.4 and 3.5), ps."""
    scaling = 0.0
    if law.flow_range > 0.0:
        highest = 1.0 / math.sqrt(law.flow_high)
        slope = law.flow_range / (1.0 / math.sqrt(law.flow_low) - highest)
        scaling = min(max(slope * (1.0 / math.sqrt(flow.window) - highest), 0.0), law.flow_range)
    return law.low + flow.hops * law.per_hop + scaling


@kernel
def _round_trip(flow):
    return flow.smoothed if flow.smoothed > 0.0 else flow.base_rtt


@kernel
def _set_window(flow, law, window):
    """Bound the window, and pace where it is less than one packet: one packet per ``rtt / window``."""
    flow.window = min(max(window, law.minimum_window), law.maximum_window)
    flow.rate = math.inf
    if flow.window < 1.0:
        flow.rate = flow.window * flow.wire / _round_trip(flow) * PS_PER_S


@kernel
def _cut(flow, law, now, factor):
    """Cut the window, at most once per round trip."""
    if now - flow.cut_at >= _round_trip(flow):
        _set_window(flow, law, flow.window * factor)
        flow.cut_at = now


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Grow while the round trip is below its target, else cut in proportion to the excess."""
    flow.stage = 0
    if rtt <= 0:
        return
    target = target_delay(flow, law)
    if rtt < target:
        share = packets / flow.window if flow.window >= 1.0 else float(packets)
        _set_window(flow, law, flow.window + law.additive * share)
    else:
        _cut(flow, law, now, max(1.0 - law.decrease * (rtt - target) / rtt, 1.0 - law.largest_cut))


@kernel
def lose(flow, law, now):
    """Take the largest cut."""
    flow.stage = 0
    _cut(flow, law, now, 1.0 - law.largest_cut)


@kernel
def time_out(flow, law, now):
    """Take the largest cut; after ``law.stages`` timeouts in a row fall to the smallest window."""
    flow.stage += 1
    if flow.stage < law.stages:
        _cut(flow, law, now, 1.0 - law.largest_cut)
    else:
        _set_window(flow, law, law.minimum_window)
        flow.cut_at = now
