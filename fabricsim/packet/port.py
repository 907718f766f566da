"""Managed egress ports, which decide at each departure.

Traffic classes with strict priority or deficit weighted round robin (Shreedhar and Varghese,
SIGCOMM 1995), shared buffers with dynamic thresholds (Choudhury and Hahne, IEEE/ACM ToN 1998), PFC
(IEEE 802.1Qbb), InfiniBand credits per virtual lane, and packet trimming.
"""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import inlined, kernel, rare
from fabricsim.packet.agenda import plan_departure
from fabricsim.packet.fifo import pop, push
from fabricsim.packet.lanes import lowest_bit
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
    send_control,
    serialisation,
    write_telemetry,
)
from fabricsim.packet_tables import CLASS_SHIFT, CLASSES, DATA, HEADER_BYTES, MANAGED, TRIMMED, WATCHED
from fabricsim.tables import NEVER

_CREDIT = 64  # bytes (InfiniBand architecture specification, volume 1, flow control)
_PAUSE = np.int64(0)
_RESUME = np.int64(-1)


@inlined
def traffic_class(packet):
    """Class, or virtual lane, of a packet."""
    return (np.int64(packet.state) >> CLASS_SHIFT) & (CLASSES - 1)


@kernel
def drain_time(net, index, now):
    """Time until all that waits at link `index` has left, ps."""
    link = net.links[index]
    drain = max(link.free_at - now, 0)
    if link.port >= 0:
        for lane in range(net.ports[link.port].classes):
            drain += net.queues[link.port * CLASSES + lane].waiting
    return drain


@inlined
def _credit_bytes(wire):
    return (wire + _CREDIT - 1) // _CREDIT * _CREDIT


@inlined
def _threshold(net, node, account):
    """Bytes of one incoming link and class beyond which a PAUSE is sent."""
    free = max(net.nodes[node].buffer - net.nodes[node].used, 0)
    return max(np.int64(account.above), np.int64(account.alpha * free))  # alpha is 0 for a static threshold


@inlined
def take_in(net, node, came, lane, wire):
    """Count bytes that link `came` brought into a node's buffer; NONE: they are its own."""
    counted = came >= 0 and net.nodes[node].accounts
    if counted:
        net.ingress[came * CLASSES + lane].bytes += wire
    if counted or net.nodes[node].buffer > 0:
        net.nodes[node].used += wire


@inlined
def check_pause(net, node, came, lane, now):
    """Send a PAUSE back over `came` where its bytes have grown beyond the threshold."""
    account = net.ingress[came * CLASSES + lane]
    if account.bytes <= _threshold(net, node, account) or account.pausing:
        return
    account.pausing = 1
    account.held = account.bytes
    send_control(net, np.int64(net.links[came].reverse), lane, _PAUSE, now)


@inlined
def let_go(net, node, came, lane, wire, now):
    """Free bytes that `came` had brought in; sends a RESUME or credits back."""
    counted = came >= 0 and net.nodes[node].accounts
    if counted or net.nodes[node].buffer > 0:
        net.nodes[node].used -= wire
    if not counted:
        return
    account = net.ingress[came * CLASSES + lane]
    account.bytes -= wire
    back = np.int64(net.links[came].reverse)
    if account.pausing:
        resume = np.int64(account.below)
        if account.alpha > 0.0:
            resume = max(resume, _threshold(net, node, account) - account.below)
        if account.bytes <= resume:
            account.pausing = 0
            send_control(net, back, lane, _RESUME, now)
    if account.credits:
        send_control(net, back, lane, _credit_bytes(wire), now)


@inlined
def _pass_through(net, node, came, lane, wire, now):
    """Do what `take_in` and then `let_go` do for a packet that goes on at once."""
    if came >= 0 and net.nodes[node].accounts:
        account = net.ingress[came * CLASSES + lane]
        if account.pausing or account.credits:
            take_in(net, node, came, lane, wire)
            let_go(net, node, came, lane, wire, now)


@kernel
def _return_credits(net, came, lane, wire, now):
    """Give back the credits of a packet that is not kept."""
    if came >= 0 and net.ingress[came * CLASSES + lane].credits:
        send_control(net, np.int64(net.links[came].reverse), lane, _credit_bytes(wire), now)


@inlined
def _exceeds(net, link, queue, wire):
    """Whether a packet takes more of the shared buffer than is left for its class.

    Lossless classes are not asked for, as packets of different classes alternate.
    """
    free = net.nodes[link.source].buffer - net.nodes[link.source].used
    return queue.shared * (wire - free) > 0 or queue.bytes + wire > queue.alpha * max(free, 0)


@inlined
def _overflows(net, link, queue, came, lane, wire, drain):
    """Whether a packet, with which its class of the port takes `drain` (ps) to empty, does not fit in."""
    over = drain > link.limit or _exceeds(net, link, queue, wire)
    if came >= 0 and net.nodes[link.source].accounts:
        account = net.ingress[came * CLASSES + lane]
        if account.pausing:
            over = over or (queue.lossless == 1 and account.bytes + wire > account.held + account.headroom)
    return over


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
        _return_credits(net, came, traffic_class(packet), wire, now)
        return False
    packet.wire = header
    packet.state = (packet.state & ((1 << CLASS_SHIFT) - 1)) | TRIMMED
    link.trims += 1
    return True


@rare
def _lose_here(net, index, packet, came, now):
    """Count a packet for a failed link."""
    lose(net, index, packet, now)
    _return_credits(net, came, traffic_class(packet), np.int64(packet.wire), now)


@inlined
def pass_at_once(net, index, packet, came, now):
    """Send a packet on over a switch's managed port where that is idle and nothing can keep it.

    Returns
    -------
    bool
        Whether it was such a port; if not, nothing was done.
    """
    link = net.links[index]
    row = net.ports[link.port]
    if (row.filled | row.paused | row.guarded) != 0 or link.free_at > now or link.calm != MANAGED:
        return False
    lane = traffic_class(packet)
    account = net.ingress[came * CLASSES + lane]
    if account.pausing or account.bytes > account.above:
        return False
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    if duration > link.limit or _exceeds(net, link, net.queues[link.port * CLASSES + lane], wire):
        return False
    link.free_at = now + duration
    link.deepest = max(link.deepest, duration)
    put_kept(net, link, packet, wire, now, duration)
    return True


@kernel
def enqueue(net, index, packet, came, now):
    """Put a packet into its class at the managed port of link `index`, and let the port serve.

    Parameters
    ----------
    packet
        PACKET record; it is copied.
    came
        Link on which it came; NONE for a packet of this host.
    now
        Present time, ps.
    """
    link = net.links[index]
    if link.down:
        _lose_here(net, index, packet, came, now)
        return
    port = np.int64(link.port)
    row = net.ports[port]
    lane = traffic_class(packet)
    queue = net.queues[port * CLASSES + lane]
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    busy = max(link.free_at - now, 0)
    drain = queue.waiting + busy
    if _overflows(net, link, queue, came, lane, wire, drain + duration):
        if not _turn_away(net, index, packet, came, now):
            return
        lane = np.int64(0)
        queue = net.queues[port * CLASSES]
        wire = np.int64(packet.wire)
        duration = serialisation(link, wire)
        drain = queue.waiting + busy
    elif drain > link.mark_low and not row.mark_late:
        mark(net, index, packet, drain)
    link.deepest = max(link.deepest, drain + duration)
    if link.tap >= 0:
        sample(net, link.tap, now, drain + duration)
    held_up = came >= 0 and busy > 0  # at a switch; a host's NIC does not wait for its wire
    if (row.filled | row.weighted | held_up) == 0 and may_take(net, port, lane, wire):
        if came < 0:
            _send_new(net, port, index, lane, packet, wire, duration, now)
        else:
            _send_kept(net, port, index, lane, packet, wire, duration, now)
        _pass_through(net, np.int64(link.source), came, lane, wire, now)
    else:
        take_in(net, np.int64(link.source), came, lane, wire)
        place = push(net, queue)
        if came < 0:
            copy_new(net, place, packet)
        else:
            copy_kept(net, place, packet)
        net.pool[place].time = came  # not on a wire yet: its time says where it came from
        queue.bytes += wire
        queue.waiting += duration
        row.filled |= 1 << lane
        if came < 0:
            serve_nic(net, port, now)
        elif held_up:
            plan_departure(net, port, np.int64(link.source), link.free_at)
        else:
            serve(net, port, now)
    if came >= 0 and net.nodes[link.source].accounts:
        check_pause(net, np.int64(link.source), came, lane, now)


@inlined
def _may_go(net, port, lane):
    """Whether the first packet of a class may be sent."""
    row = net.ports[port]
    if ((row.filled & ~row.paused) >> lane) & 1 == 0:
        return False
    queue = net.queues[port * CLASSES + lane]
    return row.credit_bytes == 0 or queue.credits >= _credit_bytes(net.pool[queue.head].wire)


@inlined
def may_take(net, port, lane, wire):
    """Whether a host's NIC may take a packet of `wire` bytes of a class from its flows."""
    if (net.ports[port].paused >> lane) & 1:
        return False
    return net.ports[port].credit_bytes == 0 or net.queues[port * CLASSES + lane].credits >= _credit_bytes(wire)


@inlined
def spend(net, port, lane, wire):
    """Use up the credits of a packet that is sent."""
    if net.ports[port].credit_bytes > 0:
        net.queues[port * CLASSES + lane].credits -= _credit_bytes(wire)


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
def serve(net, port, now):
    """Let a port of a switch send the packet whose turn it is, if it is free, and plan for when it is free again."""
    row = net.ports[port]
    index = np.int64(row.link)
    link = net.links[index]
    if link.free_at <= now:
        lane = _next_class(net, port)
        if lane < 0:
            return
        _send_first(net, port, index, lane, now)
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
    """Send the first packet of a class, and free what it took up of the buffer."""
    queue = net.queues[port * CLASSES + lane]
    link = net.links[index]
    packet = net.pool[queue.head]
    wire = np.int64(packet.wire)
    came = packet.time
    duration = serialisation(link, wire)
    queue.bytes -= wire
    queue.waiting -= duration
    pop(net, queue)
    net.ports[port].filled &= ~((queue.count == 0) << lane)
    _send_kept(net, port, index, lane, packet, wire, duration, now)
    let_go(net, np.int64(link.source), came, lane, wire, now)


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
    row = net.ports[port]
    link = net.links[row.link]
    if amount > 0:
        net.queues[port * CLASSES + lane].credits += amount
    elif amount == _PAUSE:
        if row.paused == 0:
            row.paused_since = now
        row.paused |= 1 << lane
        link.pauses += 1
    elif (row.paused >> lane) & 1:
        row.paused &= ~(1 << lane)
        if row.paused == 0:
            link.paused += now - row.paused_since
    return port
