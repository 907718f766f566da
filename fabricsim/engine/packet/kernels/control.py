"""Which law of congestion control answers: one place that knows them all."""

from __future__ import annotations

from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.transport import CUBIC, DCQCN, DCTCP, HPCC, NDP, NEW_RENO, NSCC, SWIFT, TIMELY
from fabricsim.transports.laws import cubic, dcqcn, dctcp, hpcc, ndp, new_reno, nscc, swift, timely


@kernel
def start(flow, law):
    """Set a flow's window and rate before its first message."""
    kind = law.law
    flow.threshold = law.initial_threshold
    flow.window = law.initial_window
    if kind == NEW_RENO:
        new_reno.start(flow, law)
    elif kind == CUBIC:
        cubic.start(flow, law)
    elif kind == DCTCP:
        dctcp.start(flow, law)
    elif kind == DCQCN:
        dcqcn.start(flow, law)
    elif kind == TIMELY:
        timely.start(flow, law)
    elif kind == SWIFT:
        swift.start(flow, law)
    elif kind == HPCC:
        hpcc.start(flow, law)
    elif kind == NSCC:
        nscc.start(flow, law)
    elif kind == NDP:
        ndp.start(flow, law)


@kernel
def acknowledge(net, flow, law, now, packets, marked, rtt, echo, slot):
    """Tell the law of an acknowledgement; `echo` is its packet, `slot` if telemetry of that lies."""
    kind = law.law
    if kind == NEW_RENO:
        new_reno.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == CUBIC:
        cubic.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == DCTCP:
        dctcp.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == DCQCN:
        dcqcn.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == TIMELY:
        timely.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == SWIFT:
        swift.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == HPCC:
        if net.telemetry[flow.first_telemetry + slot * flow.hops].stamp == now - rtt:  # not yet that of a later packet
            hpcc.acknowledge(flow, law, now, packets, net.telemetry, echo, slot)
    elif kind == NSCC:
        nscc.acknowledge(flow, law, now, packets, marked, rtt)
    elif kind == NDP:
        ndp.acknowledge(flow, law, now, packets, marked, rtt)


@kernel
def lose(flow, law, now):
    """Tell the law of a loss, once per recovery."""
    kind = law.law
    if kind == NEW_RENO:
        new_reno.lose(flow, law, now)
    elif kind == CUBIC:
        cubic.lose(flow, law, now)
    elif kind == DCTCP:
        dctcp.lose(flow, law, now)
    elif kind == DCQCN:
        dcqcn.lose(flow, law, now)
    elif kind == TIMELY:
        timely.lose(flow, law, now)
    elif kind == SWIFT:
        swift.lose(flow, law, now)
    elif kind == HPCC:
        hpcc.lose(flow, law, now)
    elif kind == NSCC:
        nscc.lose(flow, law, now)
    elif kind == NDP:
        ndp.lose(flow, law, now)


@kernel
def time_out(flow, law, now):
    """Tell the law of a retransmission timeout."""
    kind = law.law
    if kind == NEW_RENO:
        new_reno.time_out(flow, law, now)
    elif kind == CUBIC:
        cubic.time_out(flow, law, now)
    elif kind == DCTCP:
        dctcp.time_out(flow, law, now)
    elif kind == DCQCN:
        dcqcn.time_out(flow, law, now)
    elif kind == TIMELY:
        timely.time_out(flow, law, now)
    elif kind == SWIFT:
        swift.time_out(flow, law, now)
    elif kind == HPCC:
        hpcc.time_out(flow, law, now)
    elif kind == NSCC:
        nscc.time_out(flow, law, now)
    elif kind == NDP:
        ndp.time_out(flow, law, now)


@kernel
def restart(flow, law):
    """Tell the law of a message after an idle time."""
    kind = law.law
    if kind == NEW_RENO:
        new_reno.restart(flow, law)
    elif kind == CUBIC:
        cubic.restart(flow, law)
    elif kind == DCTCP:
        dctcp.restart(flow, law)


@kernel
def notify(flow, law, now):
    """Tell the law of a congestion notification packet."""
    if law.law == DCQCN:
        dcqcn.notify(flow, law, now)


@kernel
def pull(flow, law, number):
    """Tell the law of how many pulls there were."""
    if law.law == NDP:
        ndp.pull(flow, law, number)


@inlined
def before_send(flow, law, now):
    """Let timers of the law that are due act before the rate is used."""
    if law.law == DCQCN:
        dcqcn.advance(flow, law, now)


@inlined
def after_send(flow, law, wire):
    """Tell the law of `wire` bytes sent."""
    if law.law == DCQCN:
        dcqcn.sent(flow, law, wire)
    elif law.law == NDP:
        ndp.sent(flow)
