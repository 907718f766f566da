"""The receiving half of a flow: keeps packets or not, acknowledges, and completes messages."""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.packet.agenda import plan
from fabricsim.packet.nic import answer
from fabricsim.packet_tables import ACK, ACKNOWLEDGE, CNP, GO_BACK_N, MARKED, NACK, TRIMMED
from fabricsim.tables import NEVER

_ACKNOWLEDGE = np.int64(ACKNOWLEDGE)
_ACK, _NACK, _CNP = np.int64(ACK), np.int64(NACK), np.int64(CNP)
_MARKED, _PLAIN = np.int64(MARKED), np.int64(0)


@kernel
def _reply(net, number, kind, packet, now):
    """Send a NACK or CNP about a packet."""
    which, entropy = np.int64(packet.number), np.int64(packet.entropy)
    answer(net, number, kind, net.receivers[number].expected, which, packet.stamp, entropy, _PLAIN, now)


@kernel
def _acknowledge(net, number, now):
    """Send an ACK that echoes the last packet noted."""
    receiver = net.receivers[number]
    receiver.unacknowledged = 0
    receiver.due = NEVER
    bits = _MARKED if receiver.marked else _PLAIN
    echo, entropy = np.int64(receiver.echo), np.int64(receiver.entropy)
    answer(net, number, _ACK, receiver.expected, echo, receiver.stamp, entropy, bits, now)


@kernel
def acknowledge_late(net, number, now):
    """Send a delayed ACK if it is due."""
    if net.receivers[number].due == now:
        _acknowledge(net, number, now)


@kernel
def _complete(net, number, now):
    """Hand over messages of which all packets are there; returns whether there were any."""
    receiver = net.receivers[number]
    world = net.world[0]
    done = False
    while True:
        at = np.int64(receiver.transfer)
        if net.transfers[at].last < receiver.delivered:
            at = np.int64(net.transfers[at].next)
            if at < 0:
                return done
        if net.transfers[at].last >= receiver.expected:
            return done
        delivery = net.deliveries[world.deliveries]
        world.deliveries += 1
        delivery.time = now
        delivery.flow = number
        delivery.transfer = at
        delivery.owner = net.transfers[at].owner
        delivery.posted = net.transfers[at].posted
        receiver.transfer = at
        receiver.delivered = net.transfers[at].last + 1
        done = True


@kernel
def _keep(net, flow, law, receiver, which):
    """Keep a packet of selective recovery; returns False for a copy."""
    mask = law.span - 1
    base = flow.slot + law.span
    if which < receiver.expected or net.scoreboard[base + (which & mask)]:
        return False
    net.scoreboard[base + (which & mask)] = 1
    receiver.highest = max(receiver.highest, which + 1)
    while net.scoreboard[base + (receiver.expected & mask)]:
        net.scoreboard[base + (receiver.expected & mask)] = 0
        receiver.expected += 1
    return True


@kernel
def _refuse(net, number, packet, now):
    """Go-back-N: throw away a packet out of sequence; ask for the expected one, once per gap and interval."""
    receiver = net.receivers[number]
    law = net.laws[net.flows[number].law]
    if receiver.nacked != receiver.expected or now >= receiver.nack_at:
        receiver.nacked = receiver.expected
        receiver.nack_at = now + law.nack_interval
        _reply(net, number, _NACK, packet, now)


@kernel
def _notify(net, number, packet, now):
    """Send a CNP for a marked packet, one per interval at most."""
    law = net.laws[net.flows[number].law]
    receiver = net.receivers[number]
    if law.cnp_interval > 0 and packet.state & MARKED and now >= receiver.cnp_at:
        receiver.cnp_at = now + law.cnp_interval
        _reply(net, number, _CNP, packet, now)


@kernel
def receive(net, packet, now):
    """Take a data packet that has passed the receiving host.

    `packet` must not lie on the desk, on which its answer is made.
    """
    number = np.int64(packet.flow)
    which = np.int64(packet.number)
    flow = net.flows[number]
    law = net.laws[flow.law]
    receiver = net.receivers[number]
    if packet.state & TRIMMED:
        _reply(net, number, _NACK, packet, now)
        return
    receiver.received += 1
    _notify(net, number, packet, now)
    before = receiver.expected
    if law.recovery == GO_BACK_N and which > before:
        _refuse(net, number, packet, now)
        return
    marked = 1 if packet.state & MARKED else 0
    if receiver.unacknowledged > 0 and marked != receiver.marked:
        _acknowledge(net, number, now)
    gap = receiver.highest > before
    if law.recovery == GO_BACK_N:
        fresh = which == before
        if fresh:
            receiver.expected = before + 1
            receiver.highest = before + 1
    else:
        fresh = _keep(net, flow, law, receiver, which)
        gap = gap or receiver.highest > receiver.expected
    receiver.marked = marked
    receiver.stamp = packet.stamp
    receiver.echo = which
    receiver.entropy = packet.entropy
    if not fresh:
        receiver.copies += 1
        _acknowledge(net, number, now)
        return
    receiver.unacknowledged += 1
    complete = receiver.expected > before and _complete(net, number, now)
    if gap or complete or law.ack_delay == 0 or receiver.unacknowledged >= law.ack_every:
        _acknowledge(net, number, now)
    elif receiver.due == NEVER:
        receiver.due = now + law.ack_delay
        plan(net, np.int64(flow.target), receiver.due, _ACKNOWLEDGE, number)
