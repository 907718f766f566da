"""Plain links: FIFO queues whose departures are known when a packet is given to them."""

from typing import Any, NamedTuple

import numpy as np

from fabricsim.engine.packet.kernels.fast.clock import hasten
from fabricsim.engine.packet.kernels.fast.fifo import push
from fabricsim.jit.compile import inlined, kernel, rare
from fabricsim.records.packet import CAPABLE, CONTROL_BYTES, DATA, DROPPED, HEADER_BYTES, LOST, MARKED, SENT, TRIMMED
from fabricsim.topology.shortest_paths import mix

_UNIT = 1.0 / 4294967296.0  # mix gives 32 bits


@inlined
def serialisation(link, size):
    """Time that `size` bytes take on a link, ps."""
    return np.int64(size * link.ps_per_byte + 0.5)


@kernel
def uniform(seed, index, draw):
    """Random number in [0, 1): the same for the same seed, link and number of the draw."""
    return mix(mix(mix(seed) ^ index) ^ draw) * _UNIT


@kernel
def _draw(net, index):
    link = net.links[index]
    link.draws += 1
    return uniform(net.world[0].seed, index, link.draws - 1)


@kernel
def mark(net, index, packet, drain):
    """Mark a packet by RED (Floyd and Jacobson 1993) on a drain time of its queue (ps) above the lower threshold."""
    link = net.links[index]
    if packet.state & (CAPABLE | TRIMMED) != CAPABLE:
        return
    if drain < link.mark_high:
        share = (drain - link.mark_low) / (link.mark_high - link.mark_low)
        if _draw(net, index) >= link.mark_most * share:
            return
    packet.state |= MARKED
    link.marks += 1


@rare
def note(net, index, packet, time, fate):
    """Log what became of a packet at a link."""
    world = net.world[0]
    entry = net.log[world.logged]
    world.logged += 1
    entry.time = time
    entry.link = index
    entry.flow = packet.flow
    entry.number = packet.number
    entry.echo = packet.echo
    entry.wire = packet.wire
    entry.kind = packet.kind
    entry.state = packet.state & ~CAPABLE
    entry.fate = fate


@rare
def sample(net, tap, time, value):
    """Record a value of something tapped."""
    world = net.world[0]
    entry = net.samples[world.sampled]
    world.sampled += 1
    entry.time = time
    entry.tap = tap
    entry.value = value


@rare
def drop(net, index, packet, now):
    """Count a packet that a full queue did not take."""
    net.links[index].drops += 1
    if net.links[index].log:
        note(net, index, packet, now, DROPPED)


@rare
def lose(net, index, packet, time):
    """Count a packet lost by a bit error or on a failed link."""
    net.links[index].errors += 1
    if net.links[index].log:
        note(net, index, packet, time, LOST)


class Made(NamedTuple):
    """A packet that a host makes: the columns of PACKET but `time`."""

    kind: Any
    flow: Any
    number: Any
    echo: Any
    stamp: Any
    cursor: Any
    wire: Any
    entropy: Any
    state: Any


@inlined
def fill(packet, made):
    """Write the columns of PACKET but `time`."""
    packet.stamp = made.stamp
    packet.flow = made.flow
    packet.number = made.number
    packet.echo = made.echo
    packet.cursor = made.cursor
    packet.wire = made.wire
    packet.entropy = made.entropy
    packet.kind = made.kind
    packet.state = made.state


@inlined
def _count(net, link, kind, wire):
    link.packets += 1
    link.bytes += wire
    world = net.world[0]
    if kind == DATA:
        world.data_hops += 1
    else:
        world.ack_hops += 1


@inlined
def _arrival(link, wire, start, duration):
    """When a packet that is on the wire from `start` on for `duration` (ps) may go on from its far end, ps."""
    if link.cut_through and wire > HEADER_BYTES:
        return start + link.delay + serialisation(link, HEADER_BYTES)
    return start + link.delay + duration


@inlined
def _announce(net, link, place, arrival):
    """Have a packet arrive at the far end of its link at `arrival` (ps)."""
    net.pool[place].time = arrival
    if link.count == 1:
        net.arrivals[link.place] = arrival
        hasten(net, np.int64(link.target), arrival)


@inlined
def _put(net, link, packet, arrival):
    """Put a packet on a link at whose far end it is at `arrival` (ps)."""
    cursor = np.int64(packet.cursor)
    place = push(net, link)
    net.pool[place] = packet
    net.pool[place].cursor = _next(cursor)
    _announce(net, link, place, arrival)


@inlined
def _next(cursor):
    """Place of the link after one of a path, if there is a path."""
    return cursor + (cursor >= 0)


@inlined
def put_on_wire(net, link, packet, wire, start, duration):
    """Put a packet of `wire` bytes on a link that nobody watches, at `start` (ps) for `duration` (ps)."""
    _count(net, link, packet.kind, wire)
    _put(net, link, packet, _arrival(link, wire, start, duration))


@inlined
def depart(net, index, packet, start, duration):
    """Put a packet on the wire at `start` (ps) for `duration` (ps); returns False if it is lost there."""
    link = net.links[index]
    if link.down:  # as all that has waited at a managed port
        lose(net, index, packet, start)
        return False
    _count(net, link, packet.kind, packet.wire)
    if link.loss > 0.0 and _draw(net, index) < 1.0 - (1.0 - link.loss) ** (8 * packet.wire):
        lose(net, index, packet, start)
        return False
    if link.log:
        note(net, index, packet, start, SENT)
    _put(net, link, packet, _arrival(link, packet.wire, start, duration))
    return True


@inlined
def send_at_once(net, index, packet, now):
    """Give a packet of another node to a plain link where it is neither dropped nor marked, and nobody watches.

    Returns: whether it was such a link; if not, nothing was done.
    """
    link = net.links[index]
    duration = serialisation(link, packet.wire)
    drain = max(link.free_at - now, 0) + duration
    if drain > link.shallow:
        return False
    link.free_at = now + drain
    link.deepest = max(link.deepest, drain)
    put_on_wire(net, link, packet, packet.wire, now + drain - duration, duration)
    return True


@inlined
def emit(net, link, start, duration, made):
    """Make a packet on a host's link that nobody watches, at `start` (ps) for `duration` (ps)."""
    _count(net, link, made.kind, made.wire)
    place = push(net, link)
    fill(net.pool[place], made)
    net.pool[place].cursor = _next(made.cursor)
    _announce(net, link, place, _arrival(link, made.wire, start, duration))


@rare
def write_telemetry(net, index, packet, now, drain):
    """Leave in-band telemetry for a data packet (HPCC): what the link has sent, and what waits in its queue.

    It travels in a table of its own, which has room for that of the last `law.span` packets of a flow; the
    packet's entropy says where, and comes back with the ACK.
    """
    flow = net.flows[packet.flow]
    if packet.kind != DATA or packet.state & TRIMMED or flow.first_telemetry < 0:
        return
    first = flow.first_telemetry + packet.entropy * flow.hops
    if net.telemetry[first].stamp != packet.stamp:
        return
    row = net.telemetry[first + packet.cursor - flow.path]
    link = net.links[index]
    row.time = now
    row.sent = link.bytes - np.int64(max(link.free_at - now, 0) / link.ps_per_byte)
    row.drain = drain
    row.ps_per_byte = link.ps_per_byte


@kernel
def transmit(net, index, packet, now, ready):
    """Give a packet to a plain link: dropped, or its departure fixed.

    `packet`: PACKET record, which is copied; the cursor of the copy moves on.
    `now`: present time, ps.
    `ready`: time before which it cannot start, ps.
    """
    link = net.links[index]
    if link.down:
        lose(net, index, packet, now)
        return
    drain = max(link.free_at - now, 0)
    duration = serialisation(link, packet.wire)
    if drain + duration > link.limit:
        drop(net, index, packet, now)
        return
    if drain > link.mark_low:
        mark(net, index, packet, drain)
    if net.world[0].telemetry:
        write_telemetry(net, index, packet, now, drain)
    start = max(ready, link.free_at)
    link.free_at = start + duration
    link.deepest = max(link.deepest, drain + duration)
    if link.tap >= 0:
        sample(net, link.tap, now, drain + duration)
    depart(net, index, packet, start, duration)


@kernel
def send_control(net, index, traffic_class, amount, now):
    """Send a PAUSE (0), RESUME (-1) or credits (bytes) over link `index`, past all queues."""
    world = net.world[0]
    entry = np.int64(world.free_control)
    frame = net.controls[entry]
    world.free_control = frame.next
    world.controls_left -= 1
    world.frames += 1
    link = net.links[index]
    frame.time = now + serialisation(link, CONTROL_BYTES) + link.delay
    frame.amount = amount
    frame.traffic_class = traffic_class
    frame.next = -1
    if link.control_count == 0:
        link.control_head = entry
        net.frames[link.place] = frame.time
        hasten(net, np.int64(link.target), frame.time)
    else:
        net.controls[link.control_tail].next = entry
    link.control_tail = entry
    link.control_count += 1
