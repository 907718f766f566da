"""A node's part of a window: gathers what arrives, and works it off with its agenda in canonical order."""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import inlined, inner
from fabricsim.kernels.path import mix
from fabricsim.packet.agenda import first_time, plan, take_first
from fabricsim.packet.clock import set_next
from fabricsim.packet.fifo import next_place, pop, push
from fabricsim.packet.link import transmit_here
from fabricsim.packet.nic import pass_way_in, pull
from fabricsim.packet.port import (
    act_on,
    check_pause,
    drain_time,
    enqueue,
    let_go,
    serve,
    take_in,
    traffic_class,
)
from fabricsim.packet.receiver import acknowledge_late, receive
from fabricsim.packet.sender import hear, wake
from fabricsim.packet_tables import ACKNOWLEDGE, ALARM, DATA, FRAME, HOST, LEAST_LOADED, RECEIVED, TRIMMED
from fabricsim.tables import NEVER

INDEX_BITS = 18
"""Of a sort key, for the place among the gathered; the bits above hold the time since the first."""
_INDEX = (1 << INDEX_BITS) - 1
_SHORT = 40  # up to here insertion sort is the fastest
_RECEIVED = np.int64(RECEIVED)
LONGEST_WINDOW = 1 << 42
"""ps (4 s): so that times within a window fit into a sort key."""


@inner
def _sort(keys, count):
    """Sort keys[:count]; the second half of `keys` is scratch."""
    if count <= _SHORT:
        for i in range(1, count):
            key = keys[i]
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        return
    half = len(keys) >> 1
    width = 1
    source, target = 0, half
    while width < count:
        low = 0
        while low < count:
            middle, high = min(low + width, count), min(low + 2 * width, count)
            a, b = source + low, source + middle
            end_a, end_b = source + middle, source + high
            for k in range(target + low, target + high):
                if a < end_a and (b >= end_b or keys[a] <= keys[b]):
                    keys[k] = keys[a]
                    a += 1
                else:
                    keys[k] = keys[b]
                    b += 1
            low = high
        source, target = target, source
        width *= 2
    if source:
        for i in range(count):
            keys[i] = keys[half + i]


@inner
def _gather(net, node, origin, until):
    """Take what arrives before `until` off the incoming links.

    Returns
    -------
    tuple of int
        How many arrive, and the time of the next arrival after that (ps). Their keys are in arrival
        order per link, all packets before all control frames.
    """
    row = net.nodes[node]
    gathered, came, keys, arrivals, pool = net.gathered, net.came, net.keys, net.arrivals, net.pool
    count = np.int64(0)
    later = NEVER
    for i in range(row.first_in, row.first_in + row.ins):
        time = arrivals[i]
        if time < until:
            index = net.ins[i]
            link = net.links[index]
            head, left = np.int64(link.head), link.count
            while True:
                gathered[count] = pool[head]
                came[count] = index
                keys[count] = ((time - origin) << INDEX_BITS) | count
                count += 1
                left -= 1
                if left == 0:
                    time = NEVER
                    break
                head = next_place(net, head)
                time = pool[head].time
                if time >= until:
                    break
            link.head, link.count = head, left
            arrivals[i] = time
        later = min(later, time)
    if net.world[0].controls:
        count, later = _gather_frames(net, row, count, later, origin, until)
    return count, later


@inner
def _gather_frames(net, row, count, later, origin, until):
    """Add the control frames to what `_gather` took."""
    for i in range(row.first_in, row.first_in + row.ins):
        index = net.ins[i]
        link = net.links[index]
        left = link.control_count
        entry = np.int64(link.control_head)
        while left > 0:
            time = net.controls[entry].time
            if time >= until:
                later = min(later, time)
                break
            net.gathered[count].kind = FRAME
            net.gathered[count].flow = entry
            net.gathered[count].time = time
            net.came[count] = index
            net.keys[count] = ((time - origin) << INDEX_BITS) | count
            count += 1
            left -= 1
            entry = np.int64(net.controls[entry].next)
    return count, later


@inner
def _route(net, node, packet, now):
    """Choose among the links that lead on, where the packet has no path."""
    flow = net.flows[packet.flow]
    host = flow.target if packet.kind == DATA else flow.source
    group = net.group_of[np.int64(net.nodes[node].number) * net.world[0].hosts + net.nodes[host].number]
    first = net.groups[group]
    choices = net.groups[group + 1] - first
    if choices == 1:
        return np.int64(net.group_links[first])
    pick = mix(mix(np.int64(flow.key) ^ np.int64(packet.entropy)) ^ mix(node + 1)) % choices
    if net.laws[flow.law].balance != LEAST_LOADED:
        return np.int64(net.group_links[first + pick])
    best, least = np.int64(-1), NEVER
    for i in range(choices):
        index = np.int64(net.group_links[first + (pick + i) % choices])
        drain = drain_time(net, index, now)
        if drain < least:
            best, least = index, drain
    return best


@inlined
def _forward(net, node, packet, came, now):
    """Send a packet on at a switch."""
    if packet.cursor >= 0:
        out = np.int64(net.paths[packet.cursor])
        packet.cursor += 1
    else:
        out = _route(net, node, packet, now)
    if net.links[out].port < 0:
        transmit_here(net, out, packet, now, now)
    else:
        enqueue(net, out, packet, came, now)


@inner
def _admit(net, node, packet, came, now):
    """Take a packet in at its host."""
    if packet.kind != DATA:
        _release(net, node, packet, came, now)
        hear(net, packet, now)
        return
    flow = net.flows[packet.flow]
    if flow.exits == 0 or packet.state & TRIMMED:
        _release(net, node, packet, came, now)
        receive(net, packet, now)
        return
    payload = np.int64(packet.wire) - net.laws[flow.law].overhead
    lane = traffic_class(packet)
    if net.nodes[node].accounts:
        take_in(net, node, came, lane, np.int64(packet.wire))
    endpoint = np.int64(flow.endpoint)
    time = max(pass_way_in(net, flow, payload, now), net.endpoints[endpoint].received_at)
    net.endpoints[endpoint].received_at = time
    waiting = push(net, net.endpoints[endpoint])
    net.pool[waiting] = packet
    net.pool[waiting].time = came
    plan(net, node, time, _RECEIVED, endpoint)
    if net.nodes[node].accounts:
        check_pause(net, node, came, lane, now)


@inlined
def _release(net, node, packet, came, now):
    """Give credits back for a packet that a host takes at once."""
    if net.nodes[node].accounts:
        lane, wire = traffic_class(packet), np.int64(packet.wire)
        take_in(net, node, came, lane, wire)
        let_go(net, node, came, lane, wire, now)


@inner
def _finish_receiving(net, node, endpoint, now):
    """Receive the packet that has passed the servers of its host."""
    fifo = net.endpoints[endpoint]
    packet = net.pool[fifo.head]
    let_go(net, node, packet.time, traffic_class(packet), np.int64(packet.wire), now)
    receive(net, packet, now)
    pop(net, fifo)


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
        port = net.ports[target]
        if port.due != now:
            return
        port.due = NEVER
        if net.nodes[node].kind == HOST:
            pull(net, node, now)
        else:
            serve(net, target, now)


@inner
def _hear_frame(net, node, packet, came, now):
    """Act on a control frame."""
    entry = np.int64(packet.flow)
    lane, amount = np.int64(net.controls[entry].traffic_class), net.controls[entry].amount
    _free_control(net, came, entry)
    port = act_on(net, came, lane, amount, now)
    if port < 0:
        return
    if net.nodes[node].kind == HOST:
        pull(net, node, now)
    else:
        serve(net, port, now)


@inner
def _free_control(net, index, entry):
    world = net.world[0]
    net.links[index].control_head = net.controls[entry].next
    net.links[index].control_count -= 1
    net.controls[entry].next = world.free_control
    world.free_control = entry
    world.controls_left += 1


@inner
def run_node(net, node, until):
    """Do all that a node has to do before `until` (ps)."""
    origin = until - net.world[0].window
    count, later = _gather(net, node, origin, until)
    keys, gathered, came = net.keys, net.gathered, net.came
    if count > 1:
        _sort(keys, count)
    is_host = net.nodes[node].kind == HOST
    i = 0
    due = first_time(net, node)
    while True:
        if i < count:
            which = keys[i] & _INDEX
            packet = gathered[which]
            now = packet.time
            if now <= due:
                i += 1
                if packet.kind == FRAME:
                    _hear_frame(net, node, packet, np.int64(came[which]), now)
                elif is_host:
                    _admit(net, node, packet, np.int64(came[which]), now)
                else:
                    _forward(net, node, packet, np.int64(came[which]), now)
                due = first_time(net, node)
                continue
        if due >= until:
            break
        kind, target = take_first(net, node)
        _do(net, node, kind, target, due)
        due = first_time(net, node)
    set_next(net, node, min(later, due))
