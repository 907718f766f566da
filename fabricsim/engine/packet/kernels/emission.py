"""What a host has made, and how it gets onto the wire of its NIC: at once, or from the desk."""

from __future__ import annotations

import numpy as np

from fabricsim.engine.packet.kernels.departure import may_take, spend
from fabricsim.engine.packet.kernels.link import depart, emit, lose, sample, serialisation, transmit, write_telemetry
from fabricsim.jit.compile import inlined, rare
from fabricsim.records.packet import CLASS_SHIFT, CLASSES, DATA, MANAGED

DESK = 0
"""Place of the pool on which packets are made that cannot be made where they will lie."""


@inlined
def _is_held_up(net, port, kind, lane, wire):
    """Whether a managed NIC may have to keep a packet just made; of data it only takes what may go."""
    row = net.ports[port]
    if row.weighted:
        return True
    return kind != DATA and ((row.filled | row.paused) != 0 or not may_take(net, port, lane, wire))


@inlined
def emit_at_once(net, index, now, ready, kind, flow, number, echo, stamp, cursor, wire, entropy, state):
    """Make a packet on a host's link where nothing keeps it, and nobody watches; it cannot start before `ready` (ps).

    Returns
    -------
    bool
        Whether it was such a link; if not, nothing was done.
    """
    link = net.links[index]
    managed = link.calm == MANAGED
    port, lane = np.int64(link.port), (state >> CLASS_SHIFT) & (CLASSES - 1)
    duration = serialisation(link, wire)
    drain = max(link.free_at - now, 0) + duration
    if (managed and _is_held_up(net, port, kind, lane, wire)) or (not managed and drain > link.calm):
        return False
    start = max(ready, link.free_at)
    link.free_at = start + duration
    if kind != DATA or not managed:  # a managed NIC leaves data with its flows until the wire has room
        link.deepest = max(link.deepest, drain)
    if managed:
        spend(net, port, lane, wire)
    emit(net, link, start, duration, kind, flow, number, echo, stamp, cursor, wire, entropy, state)
    return True


@rare
def to_wire(net, index, law, ready, now):
    """Give the data packet on the desk to a wire that is managed, watched or down, or has queues."""
    packet = net.pool[DESK]
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
    port, lane = np.int64(link.port), np.int64(law.data_class)
    if net.world[0].telemetry:
        write_telemetry(net, index, packet, now, net.queues[port * CLASSES + lane].waiting)
    duration = serialisation(link, packet.wire)
    start = max(ready, link.free_at)
    link.free_at = start + duration
    if link.tap >= 0:
        sample(net, link.tap, now, link.free_at - now)
    if depart(net, index, packet, start, duration):
        spend(net, port, lane, np.int64(packet.wire))
