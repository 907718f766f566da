"""HPCC: Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1.

Switches write into each packet when it left them, what they had sent by then and how long their
queue was; the ACK brings it back. As in the authors' ns-3 model the flow starts with a utilisation
of one, the window stays within its bandwidth-delay product, and a packet may go while less than the window is in flight
(``RdmaQueuePair::IsWinBound``): its last packet need not fit, which matters if it is a few packets. Windows in
packets, times ps.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Bytes, Factor, Interval, Law, Packets, Stages

PS_PER_S = 1e12
LEAST_OVERUSE = 1e-9  # an idle path lets the window grow to its bound


class Hpcc(Law):
    """HPCC (Li et al., SIGCOMM 2019).

    ``eta`` is the target utilisation, ``stages`` its maxStage, ``additive`` W_AI in bytes. The window
    stays within the product of line rate and ``network_rtt``, the base round trip that all flows count
    in; if it is left out, each counts in that of its own way.
    """

    parameters: ClassVar = {
        "eta": np.float64,  # target utilisation
        "stages": np.int32,  # maxStage
        "additive": np.float64,  # increase, packets
    }
    state: ClassVar = {
        "stage": np.int32,  # increases since a cut
        "epoch": np.int64,  # a round trip has passed when this number is acknowledged
        "reference": np.float64,  # window of the last round trip, packets
        "utilisation": np.float64,  # smoothed, of the busiest link
    }
    telemetry = True
    paced = True
    most_outstanding = 2**20  # each packet has its telemetry

    eta: Factor = 0.95
    stages: Stages = 5
    network_rtt: Interval | None = None
    additive: Annotated[Bytes, Field(gt=0)] | None = None
    minimum_window: Packets = 0.01

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Count the increase in packets: 10 Mb/s per 25 Gb/s over a base round trip of 13 us (the authors' ns-3)."""
        additive = line_rate / 2500 * 13e-6 if self.additive is None else self.additive
        return {"additive": additive / packet}


LAW = Hpcc


@kernel
def _set_window(flow, law, window):
    """Bound the window, let whole packets of it go, and pace it over the base round trip; returns the window."""
    most = min(flow.line_rate * flow.base_rtt / PS_PER_S / flow.wire, law.maximum_window)
    window = max(min(window, most), law.minimum_window)
    flow.window = float(math.ceil(window))
    flow.rate = min(window * flow.wire / flow.base_rtt * PS_PER_S, flow.line_rate)
    return window


@kernel
def start(flow, law):
    """Fill the bandwidth-delay product."""
    flow.reference = _set_window(flow, law, law.maximum_window)
    flow.utilisation = 1.0
    flow.stage = 0
    flow.epoch = 0


@kernel
def _keep(flow, telemetry, first, kept):
    for hop in range(flow.hops):
        telemetry[kept + hop] = telemetry[first + hop]


@kernel
def _measure(flow, telemetry, first, kept):
    """Update the utilisation by the busiest link (function MeasureInflight); whether any link is newer.

    Telemetry that is not newer than what is kept (its packet was overtaken) says nothing and is left out.
    """
    busiest = -1.0
    interval = 0.0
    for hop in range(flow.hops):
        new = telemetry[first + hop]
        old = telemetry[kept + hop]
        passed = float(new.time - old.time)
        if passed <= 0.0:
            continue
        sending = (new.sent - old.sent) * new.ps_per_byte / passed
        waiting = min(new.drain, old.drain) / flow.base_rtt
        if sending + waiting > busiest:
            busiest = sending + waiting
            interval = passed
        telemetry[kept + hop] = telemetry[first + hop]
    if busiest < 0.0:
        return False
    weight = min(interval / flow.base_rtt, 1.0)
    flow.utilisation += weight * (busiest - flow.utilisation)
    return True


@kernel
def acknowledge(flow, law, now, packets, telemetry, number, slot):
    """Take the ACK of packet `number`; its telemetry is one row per link from place `slot` of the flow on.

    The window follows each ACK from a reference that is itself moved once per round trip (function NewAck).
    """
    first = flow.first_telemetry + slot * flow.hops
    kept = flow.first_telemetry + law.span * flow.hops
    if telemetry[kept + flow.hops - 1].time == 0:  # of the last link: at the first one 0 may be a time
        _keep(flow, telemetry, first, kept)
        flow.epoch = flow.next_number
        return
    if not _measure(flow, telemetry, first, kept):
        return
    overuse = flow.utilisation / law.eta
    whole = overuse >= 1.0 or flow.stage >= law.stages
    scale = max(overuse, LEAST_OVERUSE) if whole else 1.0
    window = _set_window(flow, law, flow.reference / scale + law.additive)
    if number >= flow.epoch:
        flow.reference = window
        flow.stage = 0 if whole else flow.stage + 1
        flow.epoch = flow.next_number


@kernel
def lose(flow, law, now):
    """Keep the window: HPCC answers to telemetry, and leaves losses to retransmission."""


@kernel
def time_out(flow, law, now):
    """Keep the window, as after any loss."""
