"""A node's part of a window: works off what arrives and what it has planned, in canonical order."""

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan, take_first
from fabricsim.engine.packet.kernels.arrivals import gather, route
from fabricsim.engine.packet.kernels.buffer import let_go, take_in, traffic_class
from fabricsim.engine.packet.kernels.departure import serve, settle
from fabricsim.engine.packet.kernels.fast.clock import set_next
from fabricsim.engine.packet.kernels.fast.fifo import following, free_left, leave, pop, push
from fabricsim.engine.packet.kernels.fast.order import INDEX_BITS, sort
from fabricsim.engine.packet.kernels.link import send_at_once, transmit
from fabricsim.engine.packet.kernels.net import prefetch
from fabricsim.engine.packet.kernels.nic import pass_way_in, planned_for, pull, reacts_to_frames, send_in_turn
from fabricsim.engine.packet.kernels.port import act_on, check_pause, enqueue, pass_at_once
from fabricsim.engine.packet.kernels.pulls import pull_next
from fabricsim.engine.packet.kernels.receiver import acknowledge_late, receive
from fabricsim.engine.packet.kernels.sender import receive_answer, wake
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import ACKNOWLEDGE, ALARM, DATA, HOST, READ_AHEAD, RECEIVED, TRIMMED
from fabricsim.records.program import NEVER

_INDEX = (1 << INDEX_BITS) - 1
_SOON = 2  # packets ahead of which the place that one will be written to is fetched
_RECEIVED = np.int64(RECEIVED)
LONGEST_WINDOW = 1 << 42
"""ps (4 s): so that times within a window fit into a sort key."""


@inlined
def _forward(net, node, place, out, came, now):
    """Send a packet on at a switch, over link `out` if that is known."""
    packet = net.pool[place]
    if out < 0:
        out = route(net, node, packet, now)
    if net.links[out].port >= 0:
        if not pass_at_once(net, out, packet, came, now):
            enqueue(net, out, packet, came, now)
    elif not send_at_once(net, out, packet, now):
        transmit(net, out, packet, now, now)


@kernel
def _admit(net, node, packet, came, now):
    """Take a packet in at its host; returns whether the NIC may now pull."""
    if packet.kind != DATA:
        _release(net, node, packet, came, now)
        return receive_answer(net, packet, now)
    flow = net.flows[packet.flow]
    if flow.exits == 0 or packet.state & TRIMMED:
        _release(net, node, packet, came, now)
        receive(net, packet, now)
    else:
        _admit_to_servers(net, node, flow, packet, came, now)
    return False


@rare
def _admit_to_servers(net, node, flow, packet, came, now):
    """Take a packet in that servers of its host have yet to pass on."""
    priority = traffic_class(packet)
    take_in(net, node, came, priority, np.int64(packet.wire))
    endpoint = np.int64(flow.endpoint)
    fifo = net.endpoints[endpoint]
    place = push(net, fifo)
    net.pool[place] = packet
    net.pool[place].time = came
    if fifo.waiting == 0:
        fifo.first_waiting = place
    fifo.waiting += 1
    if fifo.waiting == 1:
        _serve_waiting(net, node, endpoint, now)
    if net.nodes[node].accounts:
        check_pause(net, node, came, priority, now)


@kernel
def _serve_waiting(net, node, endpoint, now):
    """Give packets that wait to the servers of the host, which hold a number of them."""
    fifo = net.endpoints[endpoint]
    while fifo.waiting > 0:
        packet = net.pool[fifo.first_waiting]
        flow = net.flows[packet.flow]
        if fifo.count - fifo.waiting >= READ_AHEAD:
            return
        payload = np.int64(packet.wire) - net.laws[flow.law].overhead
        fifo.received_at = max(pass_way_in(net, flow, payload, now), fifo.received_at)
        plan(net, node, np.int64(fifo.received_at), _RECEIVED, endpoint)
        fifo.waiting -= 1
        if fifo.waiting > 0:
            fifo.first_waiting = following(net, np.int64(fifo.first_waiting))


@inlined
def _release(net, node, packet, came, now):
    """Give credits back for a packet that a host takes at once."""
    if net.nodes[node].accounts:
        priority, wire = traffic_class(packet), np.int64(packet.wire)
        take_in(net, node, came, priority, wire)
        let_go(net, node, came, priority, wire, now)


@kernel
def _finish_receiving(net, node, endpoint, now):
    """Receive the packet that has passed the servers of its host."""
    fifo = net.endpoints[endpoint]
    packet = net.pool[fifo.head]
    let_go(net, node, packet.time, traffic_class(packet), np.int64(packet.wire), now)
    receive(net, packet, now)
    pop(net, fifo)
    _serve_waiting(net, node, endpoint, now)


@inlined
def _do(net, node, kind, target, now):
    """Work off an agenda entry."""
    if kind == RECEIVED:
        _finish_receiving(net, node, target, now)
    elif kind == ALARM:
        wake(net, target, now)
    elif kind == ACKNOWLEDGE:
        acknowledge_late(net, target, now)
    else:
        pull_next(net, target, now)


@kernel
def _receive_frame(net, came, now):
    """Act on the first control frame of a link; returns the port that may now act, or NONE."""
    entry = np.int64(net.links[came].control_head)
    priority, amount = np.int64(net.controls[entry].traffic_class), net.controls[entry].amount
    _free_control(net, came, entry)
    return act_on(net, came, priority, amount, now)


@kernel
def _free_control(net, index, entry):
    world = net.world[0]
    net.links[index].control_head = net.controls[entry].next
    net.links[index].control_count -= 1
    net.controls[entry].next = world.free_control
    world.free_control = entry
    world.controls_left += 1


@inlined
def _take_frame(net, node, came, place, now):
    """Take the first control frame of a host's link in.

    Returns: when the next one arrives (ps), and whether the NIC may now pull.
    """
    pulls = _receive_frame(net, came, now) >= 0 and reacts_to_frames(net, node, now)
    link = net.links[came]
    time = NEVER if link.control_count == 0 else net.controls[link.control_head].time
    net.frames[place] = time
    return time, pulls


@inlined
def _take_packet(net, node, came, head, left, now):
    """Take the first of the `left` packets of a host's link in.

    Returns: place and time (ps) of the next one, and whether the NIC may now pull.
    """
    after, time = head, NEVER
    if left > 1:
        after = leave(net, head)
        time = net.pool[after].time
        prefetch(net.flows, np.int64(net.pool[after].flow))
    return after, time, _admit(net, node, net.pool[head], came, now)


@inlined
def _act(net, node, due):
    """Do what a host has planned for `due` (ps): at one time, its NIC comes last; returns whether it may pull."""
    if due == net.nodes[node].agenda_due:
        kind, target = take_first(net, node)
        _do(net, node, kind, target, due)
        return False
    net.nodes[node].port_due = NEVER
    net.world[0].due += 1
    return True


@kernel
def _run_host(net, node, until):
    """Do all that a host has to do before `until` (ps): what its one link brings is in order already."""
    row = net.nodes[node]
    place = np.int64(row.first_in)
    came = np.int64(net.ins[place])
    arrival, frame = net.arrivals[place], net.frames[place]
    link = net.links[came]
    head, left = np.int64(link.head), np.int64(link.count)
    wire = net.links[net.ports[row.port].link]
    while True:
        due = min(row.agenda_due, planned_for(row, wire))
        now = min(arrival, frame, due)
        if now >= until:
            break
        if arrival == now:
            head, arrival, pulls = _take_packet(net, node, came, head, left, now)
            left -= 1
        elif frame == now:
            frame, pulls = _take_frame(net, node, came, place, now)
        else:
            pulls = _act(net, node, now)
        if pulls and not send_in_turn(net, node, now):
            pull(net, node, now)
    link.head, link.count = head, left
    net.arrivals[place] = arrival
    free_left(net)
    set_next(net, node, now)


@inlined
def _take_key(net, node, key, now):
    """Take in the packet or control frame of a key."""
    arrival = net.came[key & _INDEX]
    came = np.int64(arrival.link)
    if came >= 0:
        _forward(net, node, np.int64(arrival.place), np.int64(arrival.out), came, now)
        return
    port = _receive_frame(net, ~came, now)
    if port >= 0 and net.ports[port].filled:
        serve(net, port, now)


@inlined
def _fetch_tail(net, key):
    """Have the processor fetch where the link that a packet will go to ends."""
    out = np.int64(net.came[key & _INDEX].out)
    if out >= 0:
        prefetch(net.pool, np.int64(net.links[out].tail))


@kernel
def _run_switch(net, node, until):
    """Do all that a switch has to do before `until` (ps)."""
    origin = until - net.world[0].window
    count, later, unsorted = gather(net, node, origin, until)
    keys = net.keys
    at = sort(net, keys, count) if unsorted else np.int64(0)
    end = at + count
    row = net.nodes[node]
    many = net.world[0].many != 0
    while at < end:
        key = keys[at]
        now = origin + (key >> INDEX_BITS)
        if row.strict and row.port_due < now:
            settle(net, node, row.port_due + 1)
            continue
        at += 1
        if many and at + _SOON < end:
            _fetch_tail(net, keys[at + _SOON])
        _take_key(net, node, key, now)
    free_left(net)
    while row.port_due < until:
        settle(net, node, row.port_due + 1 if row.strict else until)
    set_next(net, node, min(later, row.port_due))


@kernel
def run_node(net, node, until):
    """Do all that a node has to do before `until` (ps)."""
    if net.nodes[node].kind == HOST:
        _run_host(net, node, until)
    else:
        _run_switch(net, node, until)
