"""The sending half of a flow: what acknowledgements and timeouts do to it."""

import numpy as np

from fabricsim.engine.packet.kernels.link import sample
from fabricsim.engine.packet.kernels.nic import joins_or_leaves, reconsider, set_alarm, start_timer
from fabricsim.engine.packet.kernels.recovery import (
    find_lost,
    find_lost_before,
    lose_all,
    name_lost,
    rewind,
    sent_after_recovery_began,
    take_note,
)
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import ACK, CNP, MARKED, PULL, PULLS
from fabricsim.records.program import NEVER
from fabricsim.records.transport import GO_BACK_N
from fabricsim.transports.laws import round_trip


@rare
def _forget(net, flow):
    """Give back messages that the receiver is done with: those before the oldest not acknowledged, but one.

    The receiver may still stand on the last one that it delivered.
    """
    world = net.world[0]
    while True:
        first = np.int64(flow.first_transfer)
        after = np.int64(net.transfers[first].next)
        if after < 0:
            flow.forget_at = NEVER
            return
        flow.forget_at = net.transfers[after].last
        if flow.acknowledged <= flow.forget_at:
            return
        flow.first_transfer = after
        net.transfers[first].next = world.free_transfer
        world.free_transfer = first
        world.transfers_left += 1


@inlined
def _sample_pace(net, flow, now):
    """Record window and rate of a flow that is tapped."""
    if flow.tap >= 0:
        sample(net, flow.tap, now, flow.window)
        sample(net, flow.tap + 1, now, flow.rate)


@kernel
def _restart_timer(net, number, flow, now):
    if flow.acknowledged < flow.next_number:
        start_timer(net, number, flow, now)
    else:
        flow.timeout_at = NEVER


@kernel
def receive_answer(net, packet, now):
    """Take an ACK, NACK, CNP or PULL at the host of the flow; returns whether its NIC may now pull."""
    number = np.int64(packet.flow)
    flow = net.flows[number]
    law = net.laws[flow.law]
    if packet.kind == CNP:
        net.notify(flow, law, now)
    elif packet.kind == PULL:
        net.pull(flow, law, np.int64(packet.number))
        _sample_pace(net, flow, now)
    else:
        if packet.state & PULLS:
            net.ride(flow, law)
        _hear_of_arrivals(net, number, flow, law, packet, now)
    return joins_or_leaves(net, number, now)


@kernel
def _hear_of_arrivals(net, number, flow, law, packet, now):
    cumulative, echo = np.int64(packet.number), np.int64(packet.echo)
    is_ack = packet.kind == ACK
    oldest = flow.acknowledged
    later = is_ack and sent_after_recovery_began(net, flow, law, echo)
    newly = take_note(net, flow, law, cumulative, echo if is_ack else np.int64(-1))
    if flow.acknowledged >= flow.recover:
        flow.recovering = 0
    rtt = now - packet.stamp
    if is_ack:
        round_trip.measure(flow, law, rtt)
    if law.recovery == GO_BACK_N:
        if not is_ack and cumulative == flow.acknowledged and flow.next_number > cumulative:
            rewind(net, flow, law, now)
    elif is_ack:
        find_lost(net, flow, law, now)
        if later:
            find_lost_before(net, flow, law, now)
    else:
        name_lost(net, flow, law, echo, now)
    if is_ack:
        marked = 1 if law.ecn and packet.state & MARKED else 0
        net.acknowledge(net, flow, law, now, newly, marked, rtt, echo, np.int64(packet.entropy))
    if flow.acknowledged > oldest:  # RFC 6298, 5.3: not by what arrived after a gap, which may never be filled
        _restart_timer(net, number, flow, now)
        if flow.acknowledged > flow.forget_at:
            _forget(net, flow)
    _sample_pace(net, flow, now)


@rare
def _time_out(net, flow, law, now):
    flow.timeouts += 1
    net.time_out(flow, law, now)
    round_trip.back_off(flow, law)
    lose_all(net, flow, law)
    flow.timeout_at = now + np.int64(flow.timeout)
    _sample_pace(net, flow, now)


@kernel
def wake(net, number, now):
    """Look after a flow whose alarm goes off."""
    flow = net.flows[number]
    if flow.alarm_at != now:
        return
    flow.alarm_at = NEVER
    law = net.laws[flow.law]
    if flow.timeout_at <= now:
        _time_out(net, flow, law, now)
    reconsider(net, number, now)  # which may set an earlier alarm, for the pace
    if flow.timeout_at < NEVER:
        set_alarm(net, number, flow.timeout_at)


@rare
def _restart_if_idle(net, flow, law, now):
    """Begin slow start anew where all was acknowledged and nothing sent for long."""
    if flow.acknowledged == flow.posted and now - flow.last_send >= law.idle_restart:
        net.restart(flow, law)
        if flow.tap >= 0:
            sample(net, flow.tap, now, flow.window)


@kernel
def _note_size(world, law, wire):
    """Have windows fixed anew for a packet that is smaller than any before, by half at least: not for each of many."""
    if wire < world.smallest:
        world.smallest = max(min(wire, world.smallest // 2), law.overhead + 1)
        world.window = 0


@kernel
def send_message(net, number, size, owner, now):
    """Give a flow a message of `size` bytes."""
    world = net.world[0]
    flow = net.flows[number]
    law = net.laws[flow.law]
    at = np.int64(world.free_transfer)
    transfer = net.transfers[at]
    world.free_transfer = transfer.next
    world.transfers_left -= 1
    transfer.next = -1
    transfer.first = flow.posted
    packets = max((size + law.payload - 1) // law.payload, 1)
    transfer.last = flow.posted + packets - 1
    transfer.tail = size - (packets - 1) * law.payload
    _note_size(world, law, law.overhead + transfer.tail)
    transfer.owner = owner
    transfer.posted = now
    if flow.posted == 0:
        flow.first_transfer = at
        flow.send_transfer = at
        flow.send_last = transfer.last
        net.receivers[number].transfer = at
        flow.next_send = now + flow.connect
        flow.last_send = NEVER
        flow.threshold = law.initial_threshold
        flow.window = law.initial_window
        net.start(flow, law)
        round_trip.start(flow, law)
        _sample_pace(net, flow, now)
    else:
        _restart_if_idle(net, flow, law, now)
        net.transfers[flow.last_transfer].next = at
        flow.forget_at = min(flow.forget_at, transfer.last)
    flow.last_transfer = at
    flow.posted += packets
    reconsider(net, number, now)
