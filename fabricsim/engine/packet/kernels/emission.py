"""What a host has made, and how it gets onto the wire of its NIC: at once, or from `SCRATCH`."""

import numpy as np

from fabricsim.engine.packet.kernels.departure import may_take, spend
from fabricsim.engine.packet.kernels.link import depart, emit, lose, sample, serialisation, transmit, write_telemetry
from fabricsim.jit.compile import inlined, rare
from fabricsim.records.packet import CLASS_SHIFT, CLASSES, DATA, MANAGED

SCRATCH = 0
"""Place of the pool on which packets are made that cannot be made where they will lie."""


@inlined
def _is_held_up(net, port, kind, priority, wire):
    """Whether a managed NIC may have to keep a packet just made; of data it only takes what may go."""
    row = net.ports[port]
    if row.weighted:
        return True
    return kind != DATA and ((row.filled | row.paused) != 0 or not may_take(net, port, priority, wire))


@inlined
def emit_at_once(net, index, now, ready, made):
    """Make a packet on a host's link where nothing keeps it, and nobody watches; it cannot start before `ready` (ps).

    Returns: whether it was such a link; if not, nothing was done.
    """
    link = net.links[index]
    managed = link.shallow == MANAGED
    port, priority = np.int64(link.port), (made.state >> CLASS_SHIFT) & (CLASSES - 1)
    duration = serialisation(link, made.wire)
    drain = max(link.free_at - now, 0) + duration
    if (managed and _is_held_up(net, port, made.kind, priority, made.wire)) or (not managed and drain > link.shallow):
        return False
    start = max(ready, link.free_at)
    link.free_at = start + duration
    if made.kind != DATA or not managed:  # a managed NIC leaves data with its flows until the wire has room
        link.deepest = max(link.deepest, drain)
    if managed:
        spend(net, port, priority, made.wire)
    emit(net, link, start, duration, made)
    return True


@rare
def to_wire(net, index, law, ready, now):
    """Give the data packet at `SCRATCH` to a wire that is managed, watched or down, or has queues."""
    packet = net.pool[SCRATCH]
    link = net.links[index]
    if link.down:
        # The NIC sends all the same: it would take all that the window allows at once otherwise.
        lose(net, index, packet, now)
        link.free_at = max(ready, np.int64(link.free_at)) + serialisation(link, packet.wire)
    elif link.port < 0:
        transmit(net, index, packet, now, ready)
    else:
        _past_queues(net, index, law, packet, now, ready)


@inlined
def _past_queues(net, index, law, packet, now, ready):
    """Put a packet that a managed NIC has taken onto the wire."""
    link = net.links[index]
    port, priority = np.int64(link.port), np.int64(law.data_class)
    if net.world[0].telemetry:
        write_telemetry(net, index, packet, now, net.queues[port * CLASSES + priority].waiting)
    duration = serialisation(link, packet.wire)
    start = max(ready, link.free_at)
    link.free_at = start + duration
    if link.tap >= 0:
        sample(net, link.tap, now, link.free_at - now)
    if depart(net, index, packet, start, duration):
        spend(net, port, priority, np.int64(packet.wire))
