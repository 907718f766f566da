"""What comes to managed egress ports: it passes, joins a queue, or is turned away; and control frames.

Packets that do not fit are dropped or trimmed; `fabricsim.engine.packet.kernels.departure` says what leaves.
"""

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan_departure
from fabricsim.engine.packet.kernels.buffer import (
    PAUSE,
    exceeds,
    exceeds_headroom,
    pause,
    return_credits,
    take_in,
    traffic_class,
    wants_pause,
)
from fabricsim.engine.packet.kernels.departure import catch_up, may_take, serve, serve_nic, settle_before, spend
from fabricsim.engine.packet.kernels.fast.fifo import push
from fabricsim.engine.packet.kernels.link import drop, lose, mark, put_on_wire, sample, serialisation
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import CLASS_SHIFT, CLASSES, DATA, HEADER_BYTES, MANAGED, TRIMMED


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

    Returns: whether it was such a port; if not, nothing was done.
    """
    link = net.links[index]
    row = net.ports[link.port]
    catch_up(net, np.int64(link.port), now)
    if (row.filled | row.paused | row.weighted) != 0 or link.free_at > now or link.shallow != MANAGED:
        return False
    priority = traffic_class(packet)
    account = net.ingress[came * CLASSES + priority]
    if account.pausing or account.bytes > account.above:
        return False
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    if duration > link.limit or exceeds(net, np.int64(link.source), net.queues[link.port * CLASSES + priority], wire):
        return False
    if row.credit_bytes > 0 and not _trade_credits(net, link, came, priority, wire, now):
        return False
    link.free_at = now + duration
    link.deepest = max(link.deepest, duration)
    put_on_wire(net, link, packet, wire, now, duration)
    return True


@kernel
def _trade_credits(net, link, came, priority, wire, now):
    """Spend the credits of a packet, and return those that it came with; False if there are too few."""
    if not may_take(net, np.int64(link.port), priority, wire):
        return False
    spend(net, np.int64(link.port), priority, wire)
    return_credits(net, came, priority, wire, now)
    return True


@inlined
def _overflows(net, link, queue, came, priority, wire, drain):
    """Whether a packet, with which its class of the port takes `drain` (ps) to empty, does not fit in."""
    node = np.int64(link.source)
    return (
        drain > link.limit
        or exceeds(net, node, queue, wire)
        or exceeds_headroom(net, node, queue, came, priority, wire)
    )


@rare
def _overflows_settled(net, link, queue, came, priority, wire, drain, now):
    """Ask again when all that has left the node is counted; some of it may not have been.

    `drain` cannot have changed: the port itself has caught up.
    """
    settle_before(net, np.int64(link.source), now)
    return _overflows(net, link, queue, came, priority, wire, drain)


@inlined
def enqueue(net, index, packet, came, now):
    """Put a packet that did not pass at once into its class at the managed port of a switch, and let the port serve.

    `index`: link of the port.
    `packet`: PACKET record; it is copied.
    `came`: link on which it came.
    `now`: present time, ps.
    """
    link = net.links[index]
    if link.down:
        _lose_here(net, index, packet, came, now)
        return
    node, port = np.int64(link.source), np.int64(link.port)
    priority = traffic_class(packet)
    queue = net.queues[port * CLASSES + priority]
    wire = np.int64(packet.wire)
    duration = serialisation(link, wire)
    busy = max(link.free_at - now, 0)
    drain = queue.waiting + busy
    if _overflows(net, link, queue, came, priority, wire, drain + duration) and _overflows_settled(
        net, link, queue, came, priority, wire, drain + duration, now
    ):
        if not _turn_away(net, index, packet, came, now):
            return
        priority = np.int64(0)
        queue = net.queues[port * CLASSES]
        wire = np.int64(packet.wire)
        duration = serialisation(link, wire)
        drain = queue.waiting + busy
    elif drain > link.mark_low and not net.ports[port].mark_late:
        mark(net, index, packet, drain)
    link.deepest = max(link.deepest, drain + duration)
    if link.tap >= 0:
        sample(net, link.tap, now, drain + duration)
    take_in(net, node, came, priority, wire)
    place = _join(net, port, priority, wire, duration)
    net.pool[place] = packet
    net.pool[place].time = came  # not on a wire yet: its time says where it came from
    if busy > 0:
        plan_departure(net, port, node, link.free_at)
    else:
        serve(net, port, now)
    if net.nodes[node].accounts:
        check_pause(net, node, came, priority, now)


@kernel
def submit(net, index, packet, now):
    """Put a packet that a host has just made into its class at the NIC, which does not wait for its wire."""
    link = net.links[index]
    if link.down:
        lose(net, index, packet, now)
        return
    port = np.int64(link.port)
    priority, wire = traffic_class(packet), np.int64(packet.wire)
    duration = serialisation(link, wire)
    drain = net.queues[port * CLASSES + priority].waiting + max(link.free_at - now, 0) + duration
    link.deepest = max(link.deepest, drain)
    if link.tap >= 0:
        sample(net, link.tap, now, drain)
    net.pool[_join(net, port, priority, wire, duration)] = packet
    serve_nic(net, port, now)


@inlined
def _join(net, port, priority, wire, duration):
    """Take a place in the queue of a class; the caller fills it."""
    queue = net.queues[port * CLASSES + priority]
    queue.bytes += wire
    queue.waiting += duration
    net.ports[port].filled |= 1 << priority
    return push(net, queue)


@inlined
def check_pause(net, node, came, priority, now):
    """Send a PAUSE back over `came` where its bytes have grown beyond the threshold."""
    if wants_pause(net, node, came, priority):
        _pause_settled(net, node, came, priority, now)


@rare
def _pause_settled(net, node, came, priority, now):
    """Send a PAUSE where it is still wanted when all that has left is counted."""
    settle_before(net, node, now)
    if wants_pause(net, node, came, priority):
        pause(net, node, came, priority, now)


@kernel
def act_on(net, index, priority, amount, now):
    """Take note of a control frame that arrived on link `index`; the caller lets the port serve.

    Returns: the port that it is about; NONE if that is not managed.
    """
    port = np.int64(net.links[net.links[index].reverse].port)
    if port < 0:
        return port
    catch_up(net, port, now)
    row = net.ports[port]
    link = net.links[row.link]
    if amount > 0:
        net.queues[port * CLASSES + priority].credits += amount
    elif amount == PAUSE:
        if row.paused == 0:
            row.paused_since = now
        row.paused |= 1 << priority
        link.pauses += 1
    elif (row.paused >> priority) & 1:
        row.paused &= ~(1 << priority)
        if row.paused == 0:
            link.paused += now - row.paused_since
    return port
