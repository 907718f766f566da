"""Managed egress ports, which decide at each departure.

Traffic classes with strict priority or deficit weighted round robin (Shreedhar and Varghese,
SIGCOMM 1995), paused by PFC or held up for want of credits, and packet trimming.

What a port of a switch sends within a window matters to that port alone, as long as its node neither has
sent a PAUSE nor gives credits: it is made up for when the next packet comes to the port, or at the end of
the window. Until then the node counts some bytes that have left, so that what looks full is asked again
once all its ports have caught up.
"""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import inlined, kernel, rare
from fabricsim.packet.agenda import plan_departure
from fabricsim.packet.buffer import (
    PAUSE,
    credit_bytes,
    exceeds,
    exceeds_headroom,
    let_go,
    pause,
    return_credits,
    take_in,
    traffic_class,
    wants_pause,
)
from fabricsim.packet.fifo import pop, push
from fabricsim.packet.lanes import GROUP, bits_before, earliest_from, lowest_bit
from fabricsim.packet.link import (
    copy_kept,
    copy_new,
    depart_here,
    drop,
    lose,
    mark,
    put_kept,
    put_new,
    sample,
    serialisation,
    write_telemetry,
)
from fabricsim.packet_tables import CLASS_SHIFT, CLASSES, DATA, HEADER_BYTES, MANAGED, TRIMMED, WATCHED
from fabricsim.tables import NEVER


@kernel
def drain_time(net, index, now):
    """Time until all that waits at link `index` has left, ps."""
    link = net.links[index]
    if link.port >= 0:
        _catch_up(net, np.int64(link.port), now)
    drain = max(link.free_at - now, 0)
    if link.port >= 0:
        for lane in range(net.ports[link.port].classes):
            drain += net.queues[link.port * CLASSES + lane].waiting
    return drain


@rare
def _turn_away(net, index, packet, came, now):
    """Drop a packet of a full queue, or trim it into class 0; returns whether it was trimmed."""
    link = net.links[index]
    port = np.int64(link.port)
    wire = np.int64(packet.wire)
    header = min(wire, HEADER_BYTES)
    drain = net.queues[port * CLASSES].waiting + max(link.free_at - now, 0)
    can_trim = net.ports[port].trimming and packet.kind == DATA and not packet.state & TRIMMED
    if not can_trim or drain + serialisation(link, header) > link.limit:
        drop(net, index, packet, now)
        return_credits(net, came, traffic_class(packet), wire, now)
        return False
    packet.wire = header
    packet.state = (packet.state & ((1 << CLASS_SHIFT) - 1)) | TRIMMED
    link.trims += 1
    return True


@rare
def _lose_here(net, index, packet, came, now):
    """Count a packet for a failed link."""
    lose(net, index, packet, now)
    return_credits(net, came, traffic_class(packet), np.int64(packet.wire), now)


@inlined
def pass_at_once(net, index, packet, came, now):
    """Send a packet on over the managed port of a switch where that is idle, and nothing can keep it.

    Returns
    -------
    bool
        Whether it was such a port; if not, nothing was done.
    """
    link = net.links[index]
    row = net.ports[link.port]
    _catch_up(net, np.int64(link.port), now)
    if (row.filled | row.paused | row.weighted) != 0 or link.free_at > now or link.calm != MANAGED:
        return False
    lane = traffic_class(packet)
    account = net.ingress[came * CLASSES + lane]
    if account.pausing or account.bytes > account.above:
        return False
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    if duration > link.limit or exceeds(net, np.int64(link.source), net.queues[link.port * CLASSES + lane], wire):
        return False
    if row.credit_bytes > 0 and not _trade_credits(net, link, came, lane, wire, now):
        return False
    link.free_at = now + duration
    link.deepest = max(link.deepest, duration)
    put_kept(net, link, packet, wire, now, duration)
    return True


@kernel
def _trade_credits(net, link, came, lane, wire, now):
    """Spend the credits of a packet, and return those that it came with; False where there are too few."""
    if not may_take(net, np.int64(link.port), lane, wire):
        return False
    spend(net, np.int64(link.port), lane, wire)
    return_credits(net, came, lane, wire, now)
    return True


@inlined
def _overflows(net, link, queue, came, lane, wire, drain):
    """Whether a packet, with which its class of the port takes `drain` (ps) to empty, does not fit in."""
    node = np.int64(link.source)
    return drain > link.limit or exceeds(net, node, queue, wire) or exceeds_headroom(net, node, queue, came, lane, wire)


@rare
def _overflows_settled(net, link, queue, came, lane, wire, drain, now):
    """Ask again when all that has left the node is counted; some of it may not have been.

    `drain` cannot have changed: the port itself has caught up.
    """
    _settle_before(net, np.int64(link.source), now)
    return _overflows(net, link, queue, came, lane, wire, drain)


@inlined
def _settle_before(net, node, now):
    """Let all ports of a switch catch up, where they may be behind."""
    if not net.nodes[node].strict:
        settle(net, node, now)


@inlined
def enqueue(net, index, packet, came, now):
    """Put a packet that did not pass at once into its class at the managed port of a switch, and let the port serve.

    Parameters
    ----------
    index
        Link of the port.
    packet
        PACKET record; it is copied.
    came
        Link on which it came.
    now
        Present time, ps.
    """
    link = net.links[index]
    if link.down:
        _lose_here(net, index, packet, came, now)
        return
    node, port = np.int64(link.source), np.int64(link.port)
    lane = traffic_class(packet)
    queue = net.queues[port * CLASSES + lane]
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    busy = max(link.free_at - now, 0)
    drain = queue.waiting + busy
    if _overflows(net, link, queue, came, lane, wire, drain + duration) and _overflows_settled(
        net, link, queue, came, lane, wire, drain + duration, now
    ):
        if not _turn_away(net, index, packet, came, now):
            return
        lane = np.int64(0)
        queue = net.queues[port * CLASSES]
        wire = np.int64(packet.wire)
        duration = serialisation(link, wire)
        drain = queue.waiting + busy
    elif drain > link.mark_low and not net.ports[port].mark_late:
        mark(net, index, packet, drain)
    link.deepest = max(link.deepest, drain + duration)
    if link.tap >= 0:
        sample(net, link.tap, now, drain + duration)
    take_in(net, node, came, lane, wire)
    place = _join(net, port, lane, wire, duration)
    copy_kept(net, place, packet)
    net.pool[place].time = came  # not on a wire yet: its time says where it came from
    if busy > 0:
        plan_departure(net, port, node, link.free_at)
    else:
        serve(net, port, now)
    if net.nodes[node].accounts:
        check_pause(net, node, came, lane, now)


@kernel
def submit(net, index, packet, now):
    """Put a packet that a host has just made into its class at the NIC, which does not wait for its wire."""
    link = net.links[index]
    if link.down:
        lose(net, index, packet, now)
        return
    port = np.int64(link.port)
    lane, wire = traffic_class(packet), np.int64(packet.wire)
    duration = serialisation(link, wire)
    drain = net.queues[port * CLASSES + lane].waiting + max(link.free_at - now, 0) + duration
    link.deepest = max(link.deepest, drain)
    if link.tap >= 0:
        sample(net, link.tap, now, drain)
    if (net.ports[port].filled | net.ports[port].weighted) == 0 and may_take(net, port, lane, wire):
        _send_new(net, port, index, lane, packet, wire, duration, now)
    else:
        copy_new(net, _join(net, port, lane, wire, duration), packet)
        serve_nic(net, port, now)


@inlined
def _join(net, port, lane, wire, duration):
    """Take a place in the queue of a class; the caller fills it."""
    queue = net.queues[port * CLASSES + lane]
    queue.bytes += wire
    queue.waiting += duration
    net.ports[port].filled |= 1 << lane
    return push(net, queue)


@inlined
def check_pause(net, node, came, lane, now):
    """Send a PAUSE back over `came` where its bytes have grown beyond the threshold."""
    if wants_pause(net, node, came, lane):
        _pause_settled(net, node, came, lane, now)


@rare
def _pause_settled(net, node, came, lane, now):
    """Send a PAUSE where it is still wanted when all that has left is counted."""
    _settle_before(net, node, now)
    if wants_pause(net, node, came, lane):
        pause(net, node, came, lane, now)


@inlined
def _may_go(net, port, lane):
    """Whether the first packet of a class may be sent."""
    row = net.ports[port]
    if ((row.filled & ~row.paused) >> lane) & 1 == 0:
        return False
    queue = net.queues[port * CLASSES + lane]
    return row.credit_bytes == 0 or queue.credits >= credit_bytes(net.pool[queue.head].wire)


@inlined
def may_take(net, port, lane, wire):
    """Whether a host's NIC may take a packet of `wire` bytes of a class from its flows."""
    if (net.ports[port].paused >> lane) & 1:
        return False
    return net.ports[port].credit_bytes == 0 or net.queues[port * CLASSES + lane].credits >= credit_bytes(wire)


@inlined
def spend(net, port, lane, wire):
    """Use up the credits of a packet that is sent."""
    if net.ports[port].credit_bytes > 0:
        net.queues[port * CLASSES + lane].credits -= credit_bytes(wire)


@inlined
def _first_class(net, port):
    """Lowest class whose first packet may be sent; NONE where there is none."""
    row = net.ports[port]
    waiting = np.int64(row.filled & ~row.paused)
    while waiting:
        lane = lowest_bit(waiting)
        if row.credit_bytes == 0 or _may_go(net, port, lane):
            return lane
        waiting &= waiting - 1
    return np.int64(-1)


@inlined
def _next_class(net, port):
    """Class to send from; NONE where nothing may go."""
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
    for start in range(row.first_port, row.first_port + row.ports, GROUP):
        first = np.int64(start)
        later = min(later, earliest_from(dues, first, until))
        behind = bits_before(dues, first, until)
        while behind:
            later = min(later, _serve_before(net, np.int64(net.outs[first + lowest_bit(behind)]), until))
            behind &= behind - 1
    row.port_due = later


@inlined
def _catch_up(net, port, now):
    """Let a port send what has left before `now` (ps)."""
    if net.dues[net.ports[port].place] < now:
        _serve_before(net, port, now)


@kernel
def _serve_before(net, port, until):
    """Let a port of a switch send what leaves before `until` (ps); returns when it is to act next, ps."""
    row = net.ports[port]
    index = np.int64(row.link)
    link = net.links[index]
    due = NEVER
    while row.filled:
        due = np.int64(link.free_at)
        if due >= until:
            break
        lane = _next_class(net, port)
        if lane < 0:
            due = NEVER
            break
        came, wire = _send_first(net, port, index, lane, due)
        let_go(net, np.int64(link.source), came, lane, wire, due)
        net.world[0].due += 1
        due = NEVER
    net.dues[row.place] = due
    return due


@kernel
def serve(net, port, now):
    """Let a port of a switch send the packet whose turn it is, if it is free, and plan for when it is free again."""
    row = net.ports[port]
    index = np.int64(row.link)
    link = net.links[index]
    if link.free_at <= now:
        lane = _next_class(net, port)
        if lane < 0:
            return
        came, wire = _send_first(net, port, index, lane, now)
        let_go(net, np.int64(link.source), came, lane, wire, now)
    plan_departure(net, port, np.int64(link.source), link.free_at if row.filled else NEVER)


@kernel
def serve_nic(net, port, now):
    """Let a host's NIC hand all that may go to its wire, for which it does not wait."""
    row = net.ports[port]
    while row.filled:
        lane = _next_class(net, port)
        if lane < 0:
            return
        _send_first(net, port, np.int64(row.link), lane, now)


@inlined
def _send_first(net, port, index, lane, now):
    """Send the first packet of a class; returns the link that it came by, and its size on the wire, bytes."""
    queue = net.queues[port * CLASSES + lane]
    link = net.links[index]
    packet = net.pool[queue.head]
    wire = np.int64(packet.wire)
    came = np.int64(packet.time)
    duration = serialisation(link, wire)
    queue.bytes -= wire
    queue.waiting -= duration
    pop(net, queue)
    net.ports[port].filled &= ~((queue.count == 0) << lane)
    _send_kept(net, port, index, lane, packet, wire, duration, now)
    return came, wire


def _sending(put):
    """Make a kernel that sends packets by `put`."""

    def send_on(net, port, index, lane, packet, wire, duration, now):
        """Put a packet on the free wire."""
        link = net.links[index]
        waiting = net.queues[port * CLASSES + lane].waiting
        if net.ports[port].mark_late and waiting > link.mark_low:
            mark(net, index, packet, waiting)
        if link.calm == WATCHED:
            _send_watched(net, port, index, lane, packet, duration, now)
            return
        start = max(now, np.int64(link.free_at))
        link.free_at = start + duration
        put(net, link, packet, wire, start, duration)
        spend(net, port, lane, wire)

    return send_on


@rare
def _send_watched(net, port, index, lane, packet, duration, now):
    """Do so where somebody watches, or the packet may be lost."""
    link = net.links[index]
    waiting = net.queues[port * CLASSES + lane].waiting
    if net.world[0].telemetry:
        write_telemetry(net, index, packet, now, waiting)
    start = max(now, np.int64(link.free_at))
    link.free_at = start + duration
    if link.tap >= 0:
        sample(net, link.tap, now, waiting + duration)
    if depart_here(net, index, packet, start, duration):
        spend(net, port, lane, np.int64(packet.wire))


_send_kept = inlined(_sending(put_kept))
_send_new = inlined(_sending(put_new))
"""Of a packet that the host has just made."""


@kernel
def act_on(net, index, lane, amount, now):
    """Take note of a control frame that arrived on link `index`; the caller lets the port serve.

    Returns
    -------
    int
        The port that it is about; NONE where that is not managed.
    """
    port = np.int64(net.links[net.links[index].reverse].port)
    if port < 0:
        return port
    _catch_up(net, port, now)
    row = net.ports[port]
    link = net.links[row.link]
    if amount > 0:
        net.queues[port * CLASSES + lane].credits += amount
    elif amount == PAUSE:
        if row.paused == 0:
            row.paused_since = now
        row.paused |= 1 << lane
        link.pauses += 1
    elif (row.paused >> lane) & 1:
        row.paused &= ~(1 << lane)
        if row.paused == 0:
            link.paused += now - row.paused_since
    return port
