"""A host's NIC: takes packets from its flows in turn, and hands acknowledgements to the wire."""

from typing import Any, NamedTuple

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan
from fabricsim.engine.packet.kernels.departure import may_take, serve_nic
from fabricsim.engine.packet.kernels.emission import SCRATCH, emit_at_once, to_wire
from fabricsim.engine.packet.kernels.fast.clock import hasten
from fabricsim.engine.packet.kernels.link import Made, emit, fill, serialisation, transmit
from fabricsim.engine.packet.kernels.port import submit
from fabricsim.engine.packet.kernels.recovery import next_lost
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import AGAIN, ALARM, CAPABLE, CLASS_SHIFT, DATA, READ_AHEAD, WHEN_FREE
from fabricsim.records.program import NEVER
from fabricsim.topology.shortest_paths import mix, remainder

_ALARM, _DATA, _NO_ECHO = np.int64(ALARM), np.int64(DATA), np.int64(0)
_PS = 1e12


@inlined
def set_alarm(net, number, time):
    """Have a flow looked at no later than `time` (ps)."""
    flow = net.flows[number]
    if time < flow.alarm_at:
        flow.alarm_at = time
        plan(net, np.int64(flow.source), time, _ALARM, number)


@inlined
def start_timer(net, number, flow, now):
    """Have the retransmission timer run from `now` (ps) on."""
    flow.timeout_at = now + np.int64(flow.timeout)
    set_alarm(net, number, flow.timeout_at)


@inlined
def _may_send(flow, law):
    """Whether a flow has something that its window lets it send."""
    if flow.lost == 0 and (flow.next_number >= flow.posted or flow.next_number - flow.acknowledged >= law.span):
        return False
    if law.pulled:
        return flow.window >= 1.0
    return flow.in_flight == 0 or flow.in_flight + 1 <= flow.window


@inlined
def _activate(net, port, number, now):
    """Let a flow join its NIC's round if it may send, or plan for when its pace allows; returns whether it joined."""
    flow = net.flows[number]
    if flow.ready or not _may_send(flow, net.laws[flow.law]):
        return False
    if now < flow.next_send:
        set_alarm(net, number, flow.next_send)
        return False
    flow.ready = 1
    flow.next_ready = -1
    if port.ready < 0:
        port.ready = number
    else:
        net.flows[port.ready_last].next_ready = number
    port.ready_last = number
    return True


@inlined
def joins_or_leaves(net, number, now):
    """Let a flow whose state has changed join its NIC's round, or leave it; returns whether the NIC may now pull."""
    flow = net.flows[number]
    return flow.ready != _may_send(flow, net.laws[flow.law]) and _join_or_leave(net, number, now)


@kernel
def _join_or_leave(net, number, now):
    flow = net.flows[number]
    if flow.ready:
        withdraw(net, number)
        return True
    node = np.int64(flow.source)
    port = net.ports[net.nodes[node].port]
    return _activate(net, port, number, now) and not _still_waits(net, node, port, flow, now)


@kernel
def reconsider(net, number, now):
    """Let a flow whose state has changed join its NIC's round, or leave it; either lets the NIC pull."""
    if joins_or_leaves(net, number, now):
        pull(net, np.int64(net.flows[number].source), now)


@inlined
def _still_waits(net, node, port, flow, now):
    """Whether a plain NIC, to whose round a flow has been added, waits for its wire as it did before."""
    link = net.links[port.link]
    return net.nodes[node].port_due == WHEN_FREE and flow.stages == 0 and link.port < 0 and link.free_at > now


@rare
def withdraw(net, number):
    """Take a flow out of its NIC's round."""
    flow = net.flows[number]
    port = net.ports[net.nodes[flow.source].port]
    flow.ready = 0
    if port.ready == number:
        port.ready = flow.next_ready
        return
    before = np.int64(port.ready)
    while net.flows[before].next_ready != number:
        before = np.int64(net.flows[before].next_ready)
    net.flows[before].next_ready = flow.next_ready
    if port.ready_last == number:
        port.ready_last = before


@inlined
def _next_take(net, index, flow, law):
    """When a NIC may take the next packet of a flow, ps: behind servers it has a number of them on their way."""
    port = net.ports[index]
    if law.device_queue:
        return np.int64(0)
    if flow.stages == 0:
        return np.int64(net.links[port.link].free_at)
    return np.int64(net.departures[index * READ_AHEAD + port.taken % READ_AHEAD])


@inlined
def _wait(net, node, flow, when):
    """Have a NIC act at `when` (ps), when it may take the next packet of a flow; later, if its wire is free later."""
    net.nodes[node].port_due = when if flow.stages > 0 else WHEN_FREE
    hasten(net, node, when)


@inlined
def planned_for(node, wire):
    """When a host has its NIC act, ps: at a time of its own, or when its wire is free; NEVER if at none."""
    return wire.free_at if node.port_due == WHEN_FREE else node.port_due


@inlined
def reacts_to_frames(net, node, now):
    """Whether a RESUME or credits may let a NIC act: not where its next flow has a time of its own to wait for."""
    row = net.nodes[node]
    port = net.ports[row.port]
    due = planned_for(row, net.links[port.link])
    return port.filled != 0 or (port.ready >= 0 and not now < due < NEVER)


@inlined
def _note_departure(net, index, time):
    port = net.ports[index]
    net.departures[index * READ_AHEAD + port.taken % READ_AHEAD] = time
    port.taken += 1


@kernel
def pull(net, node, now):
    """Take packets from the flows of a host while its wire can have them."""
    index = np.int64(net.nodes[node].port)
    port = net.ports[index]
    link = net.links[port.link]
    managed = link.port >= 0
    if managed and port.filled:
        serve_nic(net, index, now)
    while port.ready >= 0:
        number = np.int64(port.ready)
        flow = net.flows[number]
        law = net.laws[flow.law]
        if managed and not may_take(net, index, np.int64(law.data_class), np.int64(flow.wire)):
            net.nodes[node].port_due = NEVER  # which may have been for a flow that has left the round since
            return
        when = _next_take(net, index, flow, law)
        if when > now:
            _wait(net, node, flow, when)
            return
        port.ready = flow.next_ready
        flow.ready = 0
        _send(net, index, number, now)
        _activate(net, port, number, now)


@rare
def _payload_of(net, flow, law, number):
    """Payload of a packet, bytes: the last one of a message has what is left."""
    at = np.int64(flow.first_transfer)
    if number >= net.transfers[flow.send_transfer].first:
        at = np.int64(flow.send_transfer)
    while number > net.transfers[at].last:
        at = np.int64(net.transfers[at].next)
    if number == net.transfers[at].last:
        return np.int64(net.transfers[at].tail)
    return np.int64(law.payload)


@rare
def _choose_entropy(net, flow, law, now):
    """Draw a new entropy if the load-balancing rule says so; or a place for telemetry."""
    if flow.first_telemetry >= 0:
        flow.entropy = flow.draws & (law.span - 1)
        flow.draws += 1
        first = flow.first_telemetry + flow.entropy * flow.hops
        net.telemetry[first].stamp = now
        for hop in range(flow.hops):
            net.telemetry[first + hop].time = 0  # a packet that is trimmed does not get to the later ones
    elif net.renew(flow, law, now):
        flow.entropy = remainder(mix(mix(mix(net.world[0].seed) ^ flow.key) ^ flow.draws), np.int64(law.entropies))
        flow.draws += 1


@rare
def pass_servers(net, first, count, payload, now):
    """Pass servers one after the other; returns when the last has let the packet go, ps."""
    time = now
    for i in range(first, first + count):
        stage = net.stages[i]
        server = net.servers[stage.server]
        duration = np.int64(payload * stage.ps_per_byte + 0.5)
        # Its time is reserved from now on: what passes other servers first leaves no gap here that others could fill.
        free_at = max(now, np.int64(server.free_at)) + duration
        server.free_at = free_at
        time = max(time + duration, free_at)
        server.busy += duration
        server.bytes += payload
    return time


@kernel
def time_alone(net, first, count, payload):
    """Time that servers take if nothing else is there, and that of the slowest, ps."""
    total = slowest = np.int64(0)
    for i in range(first, first + count):
        duration = np.int64(payload * net.stages[i].ps_per_byte + 0.5)
        total += duration
        slowest = max(slowest, duration)
    return total, slowest


@kernel
def pass_way_in(net, flow, payload, now):
    """Take a packet through the servers of the receiving host."""
    return pass_servers(net, np.int64(flow.first_exit), np.int64(flow.exits), payload, now)


@inlined
def send_in_turn(net, node, now):
    """Send the next packet of the flow whose turn it is, if that takes no more than wire and window.

    It is a full packet, sent for the first time, and others before it have the timer run.

    Returns: whether it was such a packet; if not, nothing was done.
    """
    index = np.int64(net.nodes[node].port)
    port = net.ports[index]
    number = np.int64(port.ready)
    if number < 0:
        return False
    flow = net.flows[number]
    law = net.laws[flow.law]
    which = flow.next_number
    if not (law.plain and flow.stages == 0 and flow.lost == 0 and flow.highest <= which < flow.send_last):
        return False
    link = net.links[port.link]
    wire = np.int64(flow.wire)
    duration = serialisation(link, wire)
    if link.free_at > now or duration > link.shallow or flow.timeout_at == NEVER:
        return False
    flow.next_number = which + 1
    flow.in_flight += 1
    flow.last_send = now
    link.payload += law.payload
    state = (law.data_class << CLASS_SHIFT) | (CAPABLE if law.ecn else 0)
    link.free_at = now + duration
    link.deepest = max(link.deepest, duration)
    path, entropy = np.int64(flow.path), np.int64(flow.entropy)
    emit(net, link, now, duration, Made(_DATA, number, which, _NO_ECHO, now, path, wire, entropy, state))
    _note_departure(net, index, now + duration)
    if flow.next_ready < 0 and _may_send(flow, law):
        net.nodes[node].port_due = WHEN_FREE
        return True
    port.ready = flow.next_ready
    flow.ready = 0
    _activate(net, port, number, now)
    if port.ready >= 0:
        pull(net, node, now)
    return True


@inlined
def _send(net, nic, number, now):
    """Make the next packet of a flow and give it to the wire of its NIC."""
    flow = net.flows[number]
    index = np.int64(net.ports[nic].link)
    law = net.laws[flow.law]
    net.advance(flow, law, now)
    if flow.lost > 0:
        which = next_lost(net, flow, law)
        again = AGAIN
    else:
        which = np.int64(flow.next_number)
        flow.next_number = which + 1
        again = AGAIN if which < flow.highest else 0
        if which > flow.send_last:
            flow.send_transfer = net.transfers[flow.send_transfer].next
            flow.send_last = net.transfers[flow.send_transfer].last
    payload = np.int64(law.payload)
    if again or which == flow.send_last:
        payload = _payload_of(net, flow, law, which)
    if flow.first_telemetry >= 0 or law.renews:
        _choose_entropy(net, flow, law, now)
    wire = payload + law.overhead
    state = again | (law.data_class << CLASS_SHIFT) | (CAPABLE if law.ecn else 0)
    flow.in_flight += 1
    flow.last_send = now
    if again:
        flow.retransmissions += 1
    else:
        net.links[index].payload += payload
    if flow.timeout_at == NEVER or (again and which == flow.acknowledged):
        start_timer(net, number, flow, now)
    if flow.rate < np.inf:
        flow.next_send = now + np.int64(wire * _PS / flow.rate + 0.5)
    net.sent(flow, law, wire)
    ready = now
    if flow.stages > 0:
        ready = pass_servers(net, np.int64(flow.first_stage), np.int64(flow.stages), payload, now)
    path, entropy = np.int64(flow.path), np.int64(flow.entropy)
    made = Made(_DATA, number, which, _NO_ECHO, now, path, wire, entropy, state)
    if not emit_at_once(net, index, now, ready, made):
        fill(net.pool[SCRATCH], made)
        to_wire(net, index, law, ready, now)
    _note_departure(net, nic, max(ready, np.int64(net.links[index].free_at)))


class Echo(NamedTuple):
    """What an answer repeats of the packet that caused it, and the bits that it has besides."""

    echo: Any
    stamp: Any
    entropy: Any
    bits: Any


@inlined
def answer(net, number, kind, cumulative, cause, now):
    """Send an ACK, NACK, CNP or PULL from the receiving host of a flow."""
    flow = net.flows[number]
    law = net.laws[flow.law]
    index, path, wire = np.int64(flow.last_link), np.int64(flow.reverse_path), np.int64(law.ack_wire)
    state = cause.bits | (law.ack_class << CLASS_SHIFT)
    made = Made(kind, number, cumulative, cause.echo, cause.stamp, path, wire, cause.entropy, state)
    if not emit_at_once(net, index, now, now, made):
        fill(net.pool[SCRATCH], made)
        _queue_answer(net, index, np.int64(flow.target), now)


@rare
def _queue_answer(net, index, node, now):
    """Give the acknowledgement at `SCRATCH` to a wire that is watched or down, or has queues."""
    packet = net.pool[SCRATCH]
    if net.links[index].port < 0:
        transmit(net, index, packet, now, now)
        return
    submit(net, index, packet, now)
    pull(net, node, now)
