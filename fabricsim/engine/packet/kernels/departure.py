"""What leaves managed egress ports, and when.

Traffic classes with strict priority or deficit weighted round robin (Shreedhar and Varghese,
SIGCOMM 1995), paused by PFC or held up for want of credits.

What a port of a switch sends within a window matters to that port alone, as long as its node neither has
sent a PAUSE nor gives credits: it is made up for when the next packet comes to the port, or at the end of
the window. Until then the node counts some bytes that have left, so that what looks full is asked again
once all its ports have caught up.
"""

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan_departure
from fabricsim.engine.packet.kernels.buffer import credit_bytes, let_go
from fabricsim.engine.packet.kernels.fast.fifo import pop
from fabricsim.engine.packet.kernels.link import depart, mark, put_on_wire, sample, serialisation, write_telemetry
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import CLASSES, WATCHED
from fabricsim.records.program import NEVER


@inlined
def _may_go(net, port, priority):
    """Whether the first packet of a class may be sent."""
    row = net.ports[port]
    if ((row.filled & ~row.paused) >> priority) & 1 == 0:
        return False
    queue = net.queues[port * CLASSES + priority]
    return row.credit_bytes == 0 or queue.credits >= credit_bytes(net.pool[queue.head].wire)


@inlined
def may_take(net, port, priority, wire):
    """Whether a port may take a packet of `wire` bytes of a class that has none waiting: a host's from its flows."""
    if (net.ports[port].paused >> priority) & 1:
        return False
    return net.ports[port].credit_bytes == 0 or net.queues[port * CLASSES + priority].credits >= credit_bytes(wire)


@inlined
def spend(net, port, priority, wire):
    """Use up the credits of a packet that is sent."""
    if net.ports[port].credit_bytes > 0:
        net.queues[port * CLASSES + priority].credits -= credit_bytes(wire)


@inlined
def _first_class(net, port):
    """Lowest class whose first packet may be sent; NONE if there is none."""
    row = net.ports[port]
    waiting = np.int64(row.filled & ~row.paused)
    priority = np.int64(0)
    while waiting >> priority:
        if (waiting >> priority) & 1 and (row.credit_bytes == 0 or _may_go(net, port, priority)):
            return priority
        priority += 1
    return np.int64(-1)


@inlined
def _next_class(net, port):
    """Class to send from; NONE if nothing may go."""
    row = net.ports[port]
    classes = np.int64(row.classes)
    if row.weighted == 0:
        return _first_class(net, port)
    if _first_class(net, port) < 0:
        return np.int64(-1)
    while True:
        turn = np.int64(row.turn)
        queue = net.queues[port * CLASSES + turn]
        if _may_go(net, port, turn):
            wire = net.pool[queue.head].wire
            if row.visited == 0:
                queue.deficit += queue.weight
                row.visited = 1
            if queue.deficit >= wire:
                queue.deficit -= wire
                return turn
        elif queue.count == 0:
            queue.deficit = 0
        row.turn = (turn + 1) % classes
        row.visited = 0


@kernel
def settle(net, node, until):
    """Let all ports of a switch send what leaves before `until` (ps)."""
    row = net.nodes[node]
    dues = net.dues
    later = NEVER
    for place in range(row.first_port, row.first_port + row.ports):
        due = dues[place]
        if due < until:
            due = _serve_before(net, np.int64(net.outs[place]), until)
        later = min(later, due)
    row.port_due = later


@inlined
def catch_up(net, port, now):
    """Let a port send what has left before `now` (ps)."""
    if net.dues[net.ports[port].place] < now:
        _serve_before(net, port, now)


@kernel
def _serve_before(net, port, until):
    """Let a port of a switch send what leaves before `until` (ps); returns when it is to act next, ps."""
    row = net.ports[port]
    index = np.int64(row.link)
    link = net.links[index]
    while row.filled:
        now = np.int64(link.free_at)
        if now >= until:
            net.dues[row.place] = now
            return now
        priority = _next_class(net, port)
        if priority < 0:
            break
        came, wire = _send_first(net, port, index, priority, now)
        let_go(net, np.int64(link.source), came, priority, wire, now)
        net.world[0].due += 1
    net.dues[row.place] = NEVER
    return NEVER


@kernel
def serve(net, port, now):
    """Let a port of a switch send the packet whose turn it is, if it is free, and plan for when it is free again."""
    row = net.ports[port]
    index = np.int64(row.link)
    link = net.links[index]
    if link.free_at <= now:
        priority = _next_class(net, port)
        if priority < 0:
            return
        came, wire = _send_first(net, port, index, priority, now)
        let_go(net, np.int64(link.source), came, priority, wire, now)
    plan_departure(net, port, np.int64(link.source), link.free_at if row.filled else NEVER)


@kernel
def serve_nic(net, port, now):
    """Let a host's NIC hand all that may go to its wire, for which it does not wait."""
    row = net.ports[port]
    while row.filled:
        priority = _next_class(net, port)
        if priority < 0:
            return
        _send_first(net, port, np.int64(row.link), priority, now)


@inlined
def _send_first(net, port, index, priority, now):
    """Send the first packet of a class; returns the link that it came by, and its size on the wire, bytes."""
    queue = net.queues[port * CLASSES + priority]
    link = net.links[index]
    packet = net.pool[queue.head]
    wire = np.int64(packet.wire)
    came = np.int64(packet.time)
    duration = serialisation(link, wire)
    queue.bytes -= wire
    queue.waiting -= duration
    pop(net, queue)
    net.ports[port].filled &= ~((queue.count == 0) << priority)
    _send_on(net, port, index, priority, packet, wire, duration, now)
    return came, wire


@inlined
def _send_on(net, port, index, priority, packet, wire, duration, now):
    """Put a packet on the free wire."""
    link = net.links[index]
    waiting = net.queues[port * CLASSES + priority].waiting
    if net.ports[port].mark_late and waiting > link.mark_low:
        mark(net, index, packet, waiting)
    if link.shallow == WATCHED:
        _send_watched(net, port, index, priority, packet, duration, now)
        return
    start = max(now, np.int64(link.free_at))
    link.free_at = start + duration
    put_on_wire(net, link, packet, wire, start, duration)
    spend(net, port, priority, wire)


@rare
def _send_watched(net, port, index, priority, packet, duration, now):
    """Do so where somebody watches, or the packet may be lost."""
    link = net.links[index]
    waiting = net.queues[port * CLASSES + priority].waiting
    if net.world[0].telemetry:
        write_telemetry(net, index, packet, now, waiting)
    start = max(now, np.int64(link.free_at))
    link.free_at = start + duration
    if link.tap >= 0:
        sample(net, link.tap, now, waiting + duration)
    if depart(net, index, packet, start, duration):
        spend(net, port, priority, np.int64(packet.wire))


@inlined
def settle_before(net, node, now):
    """Let all ports of a switch catch up, if they may be behind."""
    if not net.nodes[node].strict:
        settle(net, node, now)


@kernel
def drain_time(net, index, now):
    """Time until all that waits at link `index` has left, ps."""
    link = net.links[index]
    if link.port < 0:
        return np.int64(max(link.free_at - now, 0))
    catch_up(net, np.int64(link.port), now)
    drain = np.int64(max(link.free_at - now, 0))
    for priority in range(net.ports[link.port].classes):
        drain += net.queues[link.port * CLASSES + priority].waiting
    return drain
