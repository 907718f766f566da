"""DCTCP: RFC 8257; Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010. Windows in packets.

The sender estimates the share of marked packets, once per window, and cuts by half that share, at
most once per window. Growth and losses are those of New Reno.

With ``cut = "proportional"`` a cut takes a round trip: the window falls by a part for each packet acknowledged, so
that the sender goes on sending (proportional rate reduction, RFC 6937; ns-3 and Linux do so after marks, too).

With ``cut = "every-window"`` it answers as the source of csg-htsim does (``sim/dctcp.cpp``): a mark
ends slow start, the window is cut at the end of each observation window, marks or none, and every
ACK raises it.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Gain, Law, Packets
from fabricsim.transports.laws import new_reno

# when it cuts
AT_MARKS = 0  # at the first mark of a window
EVERY_WINDOW = 1  # at the end of each window, marks or none
PROPORTIONAL = 2  # at the first mark of a window, by a part for each packet acknowledged


class Dctcp(Law):
    """DCTCP (RFC 8257).

    ``gain`` is its g, ``initial_alpha`` the alpha of a new connection. ``cut`` says when the window is
    cut: at the first mark of a window of data, at once or in proportion to what is acknowledged until all that
    was sent by then is (PRR, RFC 6937, as ns-3 and Linux do), or at the end of every one, marks or none, as
    csg-htsim does.
    """

    parameters: ClassVar = {
        "gain": np.float64,
        "initial_alpha": np.float64,
        "cut": np.int32,  # AT_MARKS, EVERY_WINDOW or PROPORTIONAL
    }
    state: ClassVar = {
        "alpha": np.float64,  # extent of congestion
        "epoch": np.int64,  # a window has passed when more than this number is acknowledged
        "epoch_packets": np.float64,  # acknowledged since the epoch began
        "epoch_marked": np.float64,  # of these, marked
        "cut_until": np.int64,  # no cut by marks until more than this number is acknowledged
        "reduction": np.float64,  # of the window for each packet acknowledged while a cut lasts; 0: none does
    }
    ecn = True
    slow_start = True
    window_only = True

    gain: Gain = 1 / 16
    initial_alpha: Annotated[float, Field(ge=0, le=1)] = 1.0
    cut: Literal["marked", "proportional", "every-window"] = "marked"
    minimum_window: Packets = 2.0
    initial_threshold: Packets | None = None

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Say by its number when to cut."""
        return {"cut": {"marked": AT_MARKS, "every-window": EVERY_WINDOW, "proportional": PROPORTIONAL}[self.cut]}


LAW = Dctcp


@kernel
def _begin_epoch(flow, number):
    """Begin an observation window, which ends when more than `number` is acknowledged."""
    flow.epoch = number
    flow.epoch_packets = 0.0
    flow.epoch_marked = 0.0


@kernel
def start(flow, law):
    """Give the first message of a connection its window, and the alpha that it expects."""
    new_reno.start(flow, law)
    flow.alpha = law.initial_alpha
    flow.cut_until = flow.acknowledged - 1
    _begin_epoch(flow, flow.acknowledged)


@kernel
def _observe(flow, law, packets, marked):
    """Count marks and update alpha at the end of a window, which is returned (RFC 8257, section 3.3, steps 2 to 8)."""
    flow.epoch_packets += packets
    if marked != 0:
        flow.epoch_marked += packets
    if flow.acknowledged > flow.epoch and flow.epoch_packets > 0.0:
        flow.alpha += law.gain * (flow.epoch_marked / flow.epoch_packets - flow.alpha)
        _begin_epoch(flow, flow.next_number)
        return True
    return False


@kernel
def _cut(flow, law):
    """Cut by half of alpha (RFC 8257, section 3.3, step 9; SIGCOMM 2010, equation 2), or begin to."""
    before = flow.window
    flow.window = max(before * (1.0 - flow.alpha / 2.0), law.minimum_window)
    flow.threshold = max(flow.window, new_reno.LOWEST_THRESHOLD)
    flow.cut_until = flow.next_number
    if law.cut == PROPORTIONAL:
        flow.reduction = max(1.0 - flow.threshold / before, 0.0)
        flow.window = before


@kernel
def _reduce(flow, packets):
    """Let the window fall with each packet until what was sent before the cut is acknowledged (PRR, RFC 6937)."""
    flow.window = max(flow.window - packets * flow.reduction, flow.threshold)
    if flow.acknowledged > flow.cut_until:
        flow.window = flow.threshold
        flow.reduction = 0.0


@kernel
def _answer_every_window(flow, law, packets, marked, ended):
    """Cut where a window has ended, and grow with each ACK (csg-htsim, ``sim/dctcp.cpp``)."""
    if marked != 0:
        flow.threshold = min(flow.threshold, flow.window)
    if ended and flow.alpha > 0.0:  # no mark was ever seen: slow start goes on
        _cut(flow, law)
    new_reno.grow(flow, law, packets)


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Take an ACK of `packets` packets; during recovery marks are counted and the window stands still."""
    ended = _observe(flow, law, packets, marked)
    if flow.recovering == 1:
        return
    if flow.reduction > 0.0:
        _reduce(flow, packets)
        if flow.reduction > 0.0:
            return
    if law.cut == EVERY_WINDOW:
        _answer_every_window(flow, law, packets, marked, ended)
    elif marked == 0:
        new_reno.grow(flow, law, packets)  # an ACK with the echo never raises the window (RFC 3168, section 6.1.2)
    elif flow.acknowledged > flow.cut_until:
        _cut(flow, law)


@kernel
def lose(flow, law, now):
    """Halve the flight as New Reno does; marks of the same window cut no further."""
    new_reno.lose(flow, law, now)
    flow.reduction = 0.0
    flow.cut_until = flow.next_number
    if law.cut == EVERY_WINDOW:
        _begin_epoch(flow, flow.next_number)


@kernel
def restart(flow, law):
    """Begin slow start anew after an idle time as New Reno does; what is known of marks is kept."""
    new_reno.restart(flow, law)
    flow.reduction = 0.0


@kernel
def time_out(flow, law, now):
    """Start again from one packet; nothing of the lost window is observed."""
    new_reno.time_out(flow, law, now)
    flow.reduction = 0.0
    flow.cut_until = flow.acknowledged
    _begin_epoch(flow, flow.acknowledged)
