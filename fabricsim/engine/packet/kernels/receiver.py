"""The receiving half of a flow: keeps packets or not, acknowledges, and completes messages."""

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan
from fabricsim.engine.packet.kernels.nic import Echo, answer
from fabricsim.engine.packet.kernels.pulls import ask, may_ride
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import ACK, ACKNOWLEDGE, CNP, MARKED, NACK, PULLS, TRIMMED
from fabricsim.records.program import NEVER
from fabricsim.records.transport import GO_BACK_N, SELECTIVE

_ACKNOWLEDGE = np.int64(ACKNOWLEDGE)
_ACK, _NACK, _CNP = np.int64(ACK), np.int64(NACK), np.int64(CNP)
_MARKED, _PULLS, _PLAIN = np.int64(MARKED), np.int64(PULLS), np.int64(0)


@rare
def _take_along(net, number):
    """Bits of an answer: a pull rides on it if one may."""
    flow = net.flows[number]
    if flow.rides != 1:
        return _PLAIN
    flow.rides = 2
    return _PULLS


@rare
def _reply(net, number, kind, packet, now):
    """Send a NACK or CNP about a packet."""
    which, entropy = np.int64(packet.number), np.int64(packet.entropy)
    bits = _take_along(net, number) if kind == NACK else _PLAIN
    answer(net, number, kind, net.receivers[number].expected, Echo(which, packet.stamp, entropy, bits), now)


@rare
def _hold(net, number, time):
    """Have an ACK that echoes the last packet noted leave at `time` (ps), when both hosts' stacks have had theirs."""
    receiver = net.receivers[number]
    place = np.int64(net.world[0].free_agenda)  # which the entry takes
    plan(net, np.int64(net.flows[number].target), time, _ACKNOWLEDGE, number)
    held = net.answers[place]
    held.time = time
    held.expected = receiver.expected
    held.stamp = receiver.stamp
    held.echo = receiver.echo
    held.entropy = receiver.entropy
    held.marked = receiver.marked
    held.next = 0
    if receiver.first_held == 0:
        receiver.first_held = place + 1
    else:
        net.answers[receiver.last_held - 1].next = place + 1
    receiver.last_held = place + 1


@rare
def _release(net, number, now):
    """Send the ACKs that leave now."""
    receiver = net.receivers[number]
    while receiver.first_held > 0 and net.answers[receiver.first_held - 1].time == now:
        held = net.answers[receiver.first_held - 1]
        receiver.first_held = held.next
        bits = _MARKED if held.marked else _PLAIN
        cause = Echo(np.int64(held.echo), held.stamp, np.int64(held.entropy), bits)
        answer(net, number, _ACK, held.expected, cause, now)


@rare
def _acknowledge(net, number, now):
    """Acknowledge by an ACK that echoes the last packet noted."""
    receiver = net.receivers[number]
    receiver.unacknowledged = 0
    receiver.due = NEVER
    stacks = net.laws[net.flows[number].law].stacks
    if stacks > 0:
        _hold(net, number, now + stacks)
        return
    bits = (_MARKED if receiver.marked else _PLAIN) | _take_along(net, number)
    echo, entropy = np.int64(receiver.echo), np.int64(receiver.entropy)
    answer(net, number, _ACK, receiver.expected, Echo(echo, receiver.stamp, entropy, bits), now)


@kernel
def acknowledge_late(net, number, now):
    """Send the ACKs that leave the stacks, and acknowledge if a delayed ACK is due."""
    if net.receivers[number].first_held > 0:
        _release(net, number, now)
    if net.receivers[number].due == now:
        _acknowledge(net, number, now)


@rare
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
        receiver.last = net.transfers[at].last
        if receiver.last >= receiver.expected:
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


@inlined
def _is_copy(net, flow, law, receiver, which):
    """Whether a packet was kept before."""
    if law.recovery == GO_BACK_N or which < receiver.expected:
        return which < receiver.expected
    return net.scoreboard[flow.slot + law.span + (which & (law.span - 1))] != 0


@inlined
def _is_quick(law, receiver, now):
    """Whether a packet that is kept now is one of the first of its flow, or after a pause; counts it."""
    if receiver.highest == 0 or now - receiver.kept_at > law.minimum_timeout:
        receiver.quick = law.quick_acks
    receiver.kept_at = now
    if receiver.quick == 0:
        return False
    receiver.quick -= 1
    return True


@inlined
def _keep(net, flow, law, receiver, which):
    """Keep a packet; all in sequence are received."""
    receiver.highest = max(receiver.highest, which + 1)
    if law.recovery == GO_BACK_N:
        receiver.expected = which + 1
        return
    mask = law.span - 1
    first = flow.slot + law.span
    net.scoreboard[first + (which & mask)] = 1
    while net.scoreboard[first + (receiver.expected & mask)]:
        net.scoreboard[first + (receiver.expected & mask)] = 0
        receiver.expected += 1


@rare
def _refuse(net, number, packet, now):
    """Answer a packet that is not kept by a NACK, which acknowledges all that was kept so far."""
    receiver = net.receivers[number]
    receiver.unacknowledged = 0
    receiver.due = NEVER
    _reply(net, number, _NACK, packet, now)


@rare
def _notify(net, number, packet, now):
    """Send a CNP for a marked packet, one per interval at most."""
    law = net.laws[net.flows[number].law]
    receiver = net.receivers[number]
    if law.cnp_interval > 0 and now >= receiver.cnp_at:
        receiver.cnp_at = now + law.cnp_interval
        _reply(net, number, _CNP, packet, now)


@inlined
def _is_next(law, receiver, which, state):
    """Whether a packet is the next one, not the last of its message, and only has to be counted or acknowledged."""
    if state & MARKED and law.cnp_interval > 0:
        return False
    gap = (which ^ receiver.expected) | (which ^ receiver.highest) | (state & TRIMMED)
    return gap == 0 and which < receiver.last and law.counts


@inlined
def receive(net, packet, now):
    """Take a data packet that has passed the receiving host.

    `packet` must not lie at `SCRATCH`, where its answer is made.
    """
    number = np.int64(packet.flow)
    which = np.int64(packet.number)
    law = net.laws[net.flows[number].law]
    receiver = net.receivers[number]
    if _is_next(law, receiver, which, packet.state):
        receiver.received += 1
        receiver.expected = receiver.highest = which + 1
        receiver.unacknowledged += 1
        if receiver.unacknowledged < law.ack_every:
            return
        receiver.unacknowledged = 0
        bits = np.int64(packet.state & MARKED)
        cause = Echo(which, packet.stamp, np.int64(packet.entropy), bits)
        answer(net, number, _ACK, which + 1, cause, now)
    else:
        before = receiver.delivered
        if law.pull_interval > 0:
            net.flows[number].rides = may_ride(net, number, now)
        _receive(net, number, which, packet, now)
        if law.pull_interval > 0:
            ask(net, number, receiver.delivered > before, now)


@rare
def _receive(net, number, which, packet, now):
    flow = net.flows[number]
    law = net.laws[flow.law]
    receiver = net.receivers[number]
    trimmed = packet.state & TRIMMED
    marked = 1 if packet.state & MARKED else 0
    if marked:
        _notify(net, number, packet, now)
    if not trimmed:
        receiver.received += 1
    before = receiver.expected
    copy = _is_copy(net, flow, law, receiver, which)
    if not copy and law.recovery == SELECTIVE and trimmed:
        _refuse(net, number, packet, now)
        return
    if not copy and law.recovery == GO_BACK_N and (trimmed or which > before):
        if receiver.nacked != before or now >= receiver.nack_at:
            receiver.nacked = before
            receiver.nack_at = now + law.nack_interval
            _refuse(net, number, packet, now)
        return
    if receiver.unacknowledged > 0 and marked != receiver.marked:
        _acknowledge(net, number, now)
    at_once = receiver.highest > before
    if not copy:
        if law.quick_acks > 0 and _is_quick(law, receiver, now):
            at_once = True
        _keep(net, flow, law, receiver, which)
        at_once = at_once or receiver.highest > receiver.expected
    receiver.marked = marked
    receiver.stamp = packet.stamp
    receiver.echo = which
    receiver.entropy = packet.entropy
    if copy:
        if not trimmed:
            receiver.copies += 1
        _acknowledge(net, number, now)
        return
    receiver.unacknowledged += 1
    complete = receiver.expected > max(before, receiver.last) and _complete(net, number, now)
    if at_once or complete or receiver.unacknowledged >= law.ack_every:
        _acknowledge(net, number, now)
    elif law.ack_delay > 0 and receiver.due == NEVER:
        receiver.due = now + law.ack_delay
        plan(net, np.int64(flow.target), receiver.due, _ACKNOWLEDGE, number)
