"""What a sender knows of its packets: acknowledged, lost, to be sent again.

Go-back-N keeps numbers only. Selective recovery keeps a scoreboard (RFC 6675): a byte per packet
from the oldest outstanding to the newest.
"""

import numpy as np

from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.program import NEVER
from fabricsim.records.transport import GO_BACK_N

OUTSTANDING = 0
ARRIVED = 1
MISSING = 2  # lost, to be sent again
RESENT = 3  # lost once, and outstanding again


@inlined
def _place(flow, law, number):
    return flow.slot + (number & (law.span - 1))


@inlined
def _arrive(net, flow, law, number):
    """Note that a packet has arrived; returns how many that are newly known of, 0 or 1."""
    place = _place(flow, law, number)
    state = net.scoreboard[place]
    if state == ARRIVED:
        return 0
    net.scoreboard[place] = ARRIVED
    if state == MISSING:
        flow.lost -= 1
    else:
        flow.in_flight -= 1
    return 1


@kernel
def take_note(net, flow, law, cumulative, echo):
    """Take what an ACK says into account; returns how many packets it newly acknowledges."""
    newly = np.int64(0)
    if law.recovery == GO_BACK_N:
        newly = np.int64(max(cumulative - flow.acknowledged, 0))
        if newly > 0:
            flow.acknowledged = cumulative
            flow.next_number = max(flow.next_number, cumulative)
            flow.in_flight = flow.next_number - cumulative
        return newly
    while flow.acknowledged < cumulative:
        newly += _arrive(net, flow, law, flow.acknowledged)
        net.scoreboard[_place(flow, law, flow.acknowledged)] = OUTSTANDING
        flow.acknowledged += 1
    if echo >= flow.acknowledged:
        newly += _arrive(net, flow, law, echo)
        flow.highest = max(flow.highest, echo + 1)
    return newly


@kernel
def _is_outstanding(net, flow, law, number):
    state = net.scoreboard[_place(flow, law, number)]
    return state in (OUTSTANDING, RESENT)


@rare
def _begin_recovery(net, flow, law, now):
    if flow.recovering == 0 or law.each_loss:
        net.lose(flow, law, now)
    if flow.recovering == 0:
        flow.recovering = 1
        flow.recover = max(flow.next_number, flow.highest)


@rare
def _miss(net, flow, law, number):
    net.scoreboard[_place(flow, law, number)] = MISSING
    flow.lost += 1
    flow.in_flight -= 1
    flow.resend = min(flow.resend, number)


@rare
def _find_lost_again(net, flow, law, now):
    """Declare lost what was sent again, and overtaken by packets that first were sent after that."""
    flow.renewed = NEVER
    for number in range(flow.acknowledged, flow.scanned):
        if net.scoreboard[_place(flow, law, number)] == RESENT:
            _begin_recovery(net, flow, law, now)
            _miss(net, flow, law, number)


@kernel
def find_lost(net, flow, law, now):
    """Declare lost what packets enough above it have overtaken (RFC 6675, section 4)."""
    limit = flow.highest - law.reordering
    number = max(flow.scanned, flow.acknowledged)
    while number < limit:
        if net.scoreboard[_place(flow, law, number)] == OUTSTANDING:
            _begin_recovery(net, flow, law, now)
            _miss(net, flow, law, number)
        number += 1
    flow.scanned = max(flow.scanned, number)
    if flow.highest - law.reordering > flow.renewed:
        _find_lost_again(net, flow, law, now)


@inlined
def sent_after_recovery_began(net, flow, law, number):
    """Whether a packet was sent again in this recovery, on the one way that all packets of the flow take."""
    if flow.recovering == 0 or not law.one_path or law.recovery == GO_BACK_N or number < flow.acknowledged:
        return False
    return net.scoreboard[_place(flow, law, number)] == RESENT


@rare
def find_lost_before(net, flow, law, now):
    """Declare lost what was sent before this recovery began: what was sent later has arrived (RFC 6582, RFC 8985)."""
    if flow.recovering == 0:
        return
    for number in range(max(flow.scanned, flow.acknowledged), flow.recover):
        if net.scoreboard[_place(flow, law, number)] == OUTSTANDING:
            _begin_recovery(net, flow, law, now)
            _miss(net, flow, law, number)
    flow.scanned = max(flow.scanned, flow.recover)


@rare
def name_lost(net, flow, law, number, now):
    """Declare one packet lost: the receiver got its trimmed header."""
    if flow.acknowledged <= number < flow.next_number and _is_outstanding(net, flow, law, number):
        _begin_recovery(net, flow, law, now)
        _miss(net, flow, law, number)


@inlined
def _go_back(flow):
    flow.highest = max(flow.highest, flow.next_number)
    flow.next_number = flow.acknowledged
    flow.in_flight = 0


@rare
def rewind(net, flow, law, now):
    """Go back to the oldest packet not acknowledged."""
    _begin_recovery(net, flow, law, now)
    _go_back(flow)


@rare
def lose_all(net, flow, law):
    """Declare all outstanding packets lost, after a timeout."""
    flow.recovering = 0
    if law.recovery == GO_BACK_N:
        _go_back(flow)
        return
    number = flow.acknowledged
    while number < flow.next_number:
        if _is_outstanding(net, flow, law, number):
            _miss(net, flow, law, number)
        number += 1
    flow.scanned = flow.next_number


@rare
def next_lost(net, flow, law):
    """Take the lowest packet that is to be sent again; there must be one."""
    number = max(flow.resend, flow.acknowledged)
    while net.scoreboard[_place(flow, law, number)] != MISSING:
        number += 1
    net.scoreboard[_place(flow, law, number)] = RESENT
    flow.renewed = flow.next_number
    flow.lost -= 1
    flow.resend = number + 1
    return number
