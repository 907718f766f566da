"""What arrives at a switch in a window: listed, and where it goes next looked up."""

import numpy as np

from fabricsim.engine.packet.kernels.departure import drain_time
from fabricsim.engine.packet.kernels.fast.fifo import leave
from fabricsim.engine.packet.kernels.fast.order import INDEX_BITS
from fabricsim.engine.packet.kernels.net import prefetch
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.packet import CLASSES
from fabricsim.records.program import NEVER
from fabricsim.topology.shortest_paths import mix, remainder

_AHEAD = 8
"""Links ahead of which the record of an incoming link is fetched; its first packet is half as far ahead."""
_PER_PREFETCH = 3
"""Packets in the lines that are fetched at once."""
_FAILED = np.int64(1 << 61)
"""More than any weight: what a link that is down weighs besides."""


@kernel
def route(net, node, packet, now):
    """Choose among the links that lead on to the host of a packet without a path."""
    flow = net.flows[packet.flow]
    group = net.group_of[np.int64(net.nodes[node].number) * net.world[0].hosts + ~np.int64(packet.cursor)]
    first = net.groups[group]
    choices = net.groups[group + 1] - first
    # Not branched on, though it picks among one choice too: which of its links a packet meets cannot be foreseen.
    pick = remainder(mix(mix(np.int64(flow.key) ^ np.int64(packet.entropy)) ^ mix(node + 1)), choices)
    law = net.laws[flow.law]
    if not law.weighs or choices == 1:
        return np.int64(net.group_links[first + pick])
    best, least = np.int64(-1), np.int64(NEVER)
    for i in range(choices):
        index = np.int64(net.group_links[first + (pick + i) % choices])
        weight = np.int64(net.weigh(law, i, drain_time(net, index, now)))
        if net.links[index].down > 0:
            weight += _FAILED
        if weight < least:
            best, least = index, weight
    return best


@inlined
def _list(net, at, index, place, controlled, many):
    """List a packet that link `index` brings, as number `at`; what it will use is fetched."""
    arrival = net.came[at]
    arrival.link = index
    arrival.place = place
    arrival.out = -1
    cursor = np.int64(net.pool[place].cursor)
    if many:
        arrival.out = cursor  # for `_look_up`, by when the path is there
        prefetch(net.paths, cursor)
    elif cursor >= 0:
        out = np.int64(net.paths[cursor])
        arrival.out = out
        prefetch(net.links, out)
        if controlled:
            port = np.int64(net.links[out].port)
            prefetch(net.ports, port)
            prefetch(net.queues, port * CLASSES)


@kernel
def _look_up(net, count):
    """Look up the next links of all packets listed, and fetch them."""
    for i in range(count):
        cursor = np.int64(net.came[i].out)
        if cursor >= 0:
            out = np.int64(net.paths[cursor])
            net.came[i].out = out
            prefetch(net.links, out)


@kernel
def _look_up_ways(net, node, count):
    """Look up the next links of all packets listed that have no path, and fetch what they will use there."""
    for i in range(count):
        arrival = net.came[i]
        packet = net.pool[arrival.place]
        if packet.cursor < 0 and not net.laws[net.flows[packet.flow].law].weighs:
            arrival.out = route(net, node, packet, NEVER)
            port = np.int64(net.links[arrival.out].port)
            prefetch(net.ports, port)
            prefetch(net.queues, port * CLASSES)


@kernel
def gather(net, node, origin, until):
    """List what arrives at a switch before `until`, and take packets off their links; they stay in their places.

    Returns: how many arrive, the time of the next arrival after that (ps), and whether they may be out of order. Their
        keys are in arrival order per link, all packets before all control frames.
    """
    row = net.nodes[node]
    keys, arrivals, pool = net.keys, net.arrivals, net.pool
    count = np.int64(0)
    links = np.int64(0)
    later = NEVER
    end = np.int64(row.first_in + row.ins)
    many, controlled = net.world[0].many != 0, net.world[0].controls != 0
    for i in range(row.first_in, end):
        time = arrivals[i]
        if many:
            prefetch(net.links, np.int64(net.ins[min(i + _AHEAD, end - 1)]))
            head = np.int64(net.links[net.ins[min(i + _AHEAD // 2, end - 1)]].head)
            prefetch(net.pool, head)
            prefetch(net.pool, head + _PER_PREFETCH)
        if time < until:
            links += 1
            index = net.ins[i]
            link = net.links[index]
            place, left = np.int64(link.head), np.int64(link.count)
            if controlled:
                prefetch(net.ingress, np.int64(index) * CLASSES)
            while True:
                _list(net, count, index, place, controlled, many)
                keys[count] = ((time - origin) << INDEX_BITS) | count
                count += 1
                left -= 1
                if left == 0:
                    time = NEVER
                    break
                place = leave(net, place)
                time = pool[place].time
                if time >= until:
                    break
            link.head = place
            link.count = left
            arrivals[i] = time
        later = min(later, time)
    packets = count
    if many:
        _look_up(net, count)
    if net.world[0].sprayed:
        _look_up_ways(net, node, count)
    if controlled:
        count, later = _gather_frames(net, row, count, later, origin, until)
    return count, later, links > 1 or count > packets


@kernel
def _gather_frames(net, row, count, later, origin, until):
    """Add the control frames to what `gather` listed."""
    frames, controls = net.frames, net.controls
    for i in range(row.first_in, row.first_in + row.ins):
        time = frames[i]
        if time < until:
            index = net.ins[i]
            entry = np.int64(net.links[index].control_head)
            while time < until and count < len(net.came):  # a switch of very many ports may send yet more credits
                net.came[count].link = ~index
                net.keys[count] = ((time - origin) << INDEX_BITS) | count
                count += 1
                entry = np.int64(controls[entry].next)
                time = NEVER if entry < 0 else controls[entry].time
            frames[i] = time
        later = min(later, time)
    return count, later
