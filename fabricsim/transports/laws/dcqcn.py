"""DCQCN, the reaction point of RoCEv2 senders: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments".

SIGCOMM 2015. Two variants, by the parameters:

- ``law.cut_interval == 0``, the paper's: each CNP cuts at once, then raises alpha (equation 1).
  ``law.cut_interval > 0``, as in the ns-3 model published with HPCC (Li et al., SIGCOMM 2019) and in
  adapters with a rate reduce monitor period: the rate is cut at most once per interval.
- ``law.raise_bytes > 0``, the paper's: a timer and a byte counter raise the rate.
  ``law.raise_bytes == 0``, as in that ns-3 model: the timer alone does.

Timers are not events: `advance` makes up for what they would have done, in time order, before
anything reads or changes the rate. No timer runs before the first CNP. Rates bytes/s, times ps.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.program import NEVER
from fabricsim.scenario.congestion import Bytes, Duration, Gain, Interval, Law, Rate, Stages, shares_of

ALPHA_DUE = 1  # of flow.notified: a CNP came since alpha was updated
CUT_DUE = 2  # of flow.notified: a CNP came since the rate was cut
CLOSE = 1e-9  # halving never quite reaches the target: a gap of this share of it is none
MANY_STAGES = 1 << 30


class Dcqcn(Law):
    """DCQCN (Zhu et al., SIGCOMM 2015).

    ``alpha_interval``, ``cut_interval`` and ``raise_interval`` are those of alpha's updates, of rate
    cuts (0: every notification cuts) and of the increase timer; ``raise_bytes`` is the byte counter,
    none: not used; ``stages`` is F; ``clamp`` says that every cut sets the target rate. With a
    ``cnp_interval`` of 0 acknowledgements echo the mark of their packet, without notification packets.
    The defaults are the tuned set of the HPCC authors (Li et al., SIGCOMM 2019).
    """

    parameters: ClassVar = {
        "gain": np.float64,  # g
        "alpha_interval": np.int64,  # ps
        "cut_interval": np.int64,  # ps; 0: each CNP cuts at once
        "raise_interval": np.int64,  # ps
        "raise_bytes": np.float64,  # byte counter, bytes; 0: none
        "stages": np.int32,  # F
        "additive": np.float64,  # increase, bytes/s
        "hyper": np.float64,  # hyper increase, bytes/s
        "minimum_rate": np.float64,  # bytes/s
        "clamp": np.int32,  # 1: every cut sets the target rate
    }
    state: ClassVar = {
        "alpha": np.float64,  # extent of congestion
        "target_rate": np.float64,  # to which it recovers, bytes/s
        "stage": np.int32,  # increases by the timer since the last cut
        "byte_stage": np.int32,  # increases by the byte counter since the last cut
        "notified": np.int32,  # bits: a CNP came since alpha was updated (1), the rate cut (2)
        "alpha_at": np.int64,  # next update of alpha, ps
        "cut_at": np.int64,  # next look whether to cut, ps
        "raise_at": np.int64,  # next increase by the timer, ps
        "raise_bytes": np.float64,  # bytes until the next increase by the counter
    }
    ecn = True
    fixed_window = True
    paced = True

    gain: Gain = 1 / 256
    alpha_interval: Interval = 1_000_000
    cut_interval: Duration = 4_000_000
    raise_interval: Interval = 300_000_000
    raise_bytes: Annotated[Bytes, Field(gt=0)] | None = None
    stages: Stages = 1
    additive: Rate | None = None
    hyper: Rate | None = None
    minimum_rate: Rate | None = None
    clamp: bool = False
    cnp_interval: Duration = 0

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Scale rates: 5 and 50 Mb/s per 25 Gb/s, at least 1 Gb/s of 100 (ns-3 of the HPCC authors)."""
        return shares_of(self, line_rate, additive=1 / 5000, hyper=1 / 500, minimum_rate=1 / 100)


LAW = Dcqcn


@kernel
def start(flow, law):
    """Send at line rate; nothing is known of congestion."""
    flow.window = law.maximum_window
    flow.rate = flow.line_rate
    flow.target_rate = flow.line_rate
    flow.alpha = 1.0
    flow.stage = 0
    flow.byte_stage = 0
    flow.notified = 0
    flow.alpha_at = NEVER
    flow.cut_at = NEVER
    flow.raise_at = NEVER
    flow.raise_bytes = law.raise_bytes


@kernel
def _update_alpha(flow, law, until):
    """Do the alpha updates due up to `until`: one with a CNP at most, the others decay."""
    if flow.alpha_at > until:
        return
    updates = (until - flow.alpha_at) // law.alpha_interval + 1
    flow.alpha_at += updates * law.alpha_interval
    if flow.notified & ALPHA_DUE:
        flow.notified &= CUT_DUE
        flow.alpha += law.gain * (1.0 - flow.alpha)
        updates -= 1
    flow.alpha *= (1.0 - law.gain) ** float(updates)


@kernel
def _step(flow, law):
    """By how much an increase event raises the target rate: not, additively, or more and more."""
    if law.raise_bytes > 0.0:  # SIGCOMM 2015, figure 7: both counters count this event already
        if max(flow.stage, flow.byte_stage) < law.stages:
            return 0.0
        beyond = min(flow.stage, flow.byte_stage) - law.stages
        return beyond * law.hyper if beyond > 0 else law.additive
    if flow.stage <= law.stages:
        return 0.0
    return law.additive if flow.stage == law.stages + 1 else law.hyper


@kernel
def _raise(flow, law):
    """Do one increase event: fast recovery, additive or hyper increase (SIGCOMM 2015, equations 3 and 4)."""
    flow.target_rate = min(flow.target_rate + _step(flow, law), flow.line_rate)
    flow.rate = (flow.rate + flow.target_rate) / 2.0
    if flow.target_rate - flow.rate < CLOSE * flow.target_rate:
        flow.rate = flow.target_rate


@kernel
def _run_raise_timer(flow, law, until):
    """Do the increase events of the timer due up to `until`; at line rate they only count."""
    while flow.raise_at <= until:
        events = 1
        if flow.rate >= flow.line_rate:
            events = (until - flow.raise_at) // law.raise_interval + 1
        flow.raise_at += events * law.raise_interval
        flow.stage = min(flow.stage + events, MANY_STAGES)
        _raise(flow, law)


@kernel
def _cut(flow, law, now):
    """Cut the rate and begin recovery anew (SIGCOMM 2015, equation 1)."""
    if law.clamp == 1 or flow.stage > 0 or flow.byte_stage > 0:
        flow.target_rate = flow.rate
    flow.rate = max(flow.rate * (1.0 - flow.alpha / 2.0), law.minimum_rate)
    flow.stage = 0
    flow.byte_stage = 0
    flow.raise_at = now + law.raise_interval
    flow.raise_bytes = law.raise_bytes


@inlined
def advance(flow, law, now):
    """Do all that the timers would have done up to `now`, ps.

    At one instant alpha comes first, then the increase, then the cut, as their events do in the
    ns-3 model, where each is planned one interval ahead.
    """
    if flow.alpha_at < NEVER and min(flow.alpha_at, flow.raise_at, flow.cut_at) <= now:
        _advance(flow, law, now)


@rare
def _advance(flow, law, now):
    if flow.notified & CUT_DUE and flow.cut_at <= now:
        _update_alpha(flow, law, flow.cut_at)
        _run_raise_timer(flow, law, flow.cut_at)
        _cut(flow, law, flow.cut_at)
        flow.notified &= ALPHA_DUE
    _update_alpha(flow, law, now)
    _run_raise_timer(flow, law, now)
    if flow.cut_at <= now:
        flow.cut_at += ((now - flow.cut_at) // law.cut_interval + 1) * law.cut_interval


@kernel
def notify(flow, law, now):
    """Take a CNP, or an ACK with the echo where the receiver sends no CNPs."""
    advance(flow, law, now)
    if law.cut_interval == 0:
        _cut(flow, law, now)
        flow.alpha += law.gain * (1.0 - flow.alpha)
        flow.alpha_at = now + law.alpha_interval
    elif flow.alpha_at == NEVER:
        flow.alpha = 1.0
        flow.target_rate = flow.rate
        flow.alpha_at = now + law.alpha_interval
        flow.cut_at = now + law.cut_interval
        flow.notified = CUT_DUE
    else:
        flow.notified = ALPHA_DUE | CUT_DUE


@inlined
def sent(flow, law, wire):
    """Count a packet of `wire` bytes that was sent: every ``law.raise_bytes`` bytes are an increase event."""
    if law.raise_bytes <= 0.0 or flow.alpha_at == NEVER:
        return
    flow.raise_bytes -= wire
    if flow.raise_bytes <= 0.0:
        _raise_by_bytes(flow, law)


@rare
def _raise_by_bytes(flow, law):
    while flow.raise_bytes <= 0.0:
        flow.raise_bytes += law.raise_bytes
        flow.byte_stage = min(flow.byte_stage + 1, MANY_STAGES)
        _raise(flow, law)


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Take an ACK, which is a notification if it echoes a mark and the receiver sends no CNPs."""
    if marked == 1 and law.cnp_interval == 0:
        notify(flow, law, now)


@kernel
def lose(flow, law, now):
    """Keep the rate: DCQCN answers to marks, and leaves losses to retransmission."""


@kernel
def time_out(flow, law, now):
    """Keep the rate, as after any loss."""
