"""What a node has to do at which time.

Flows and endpoints: a pairing heap per node, its entries from a common pool (Fredman, Sedgewick,
Sleator, Tarjan, "The pairing heap: a new form of self-adjusting heap", Algorithmica 1986; with the two
passes of merging after a removal). Ports, which act at most once at a time: a list of times per node,
which costs less to look through than a heap to keep.
"""

import numpy as np

from fabricsim.engine.packet.kernels.fast.clock import hasten
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.program import NEVER

TARGET_BITS = 40
_TARGET = (1 << TARGET_BITS) - 1


@kernel
def _merge(agenda, a, b):
    if agenda[b].time < agenda[a].time or (agenda[b].time == agenda[a].time and agenda[b].order < agenda[a].order):
        a, b = b, a
    agenda[b].next = agenda[a].child
    agenda[a].child = b
    return a


@kernel
def plan(net, node, time, kind, target):
    """Put an entry on a node's agenda: kind and target (int64), at `time` (ps)."""
    world = net.world[0]
    agenda = net.agenda
    entry = np.int64(world.free_agenda)
    world.free_agenda = agenda[entry].next
    world.agenda_left -= 1
    agenda[entry].time = time
    agenda[entry].order = (kind << TARGET_BITS) | target
    agenda[entry].child = -1
    agenda[entry].next = -1
    row = net.nodes[node]
    root = np.int64(row.agenda)
    row.agenda = entry if root < 0 else _merge(agenda, root, entry)
    row.agenda_due = min(row.agenda_due, time)
    hasten(net, node, time)


@inlined
def plan_departure(net, port, node, time):
    """Have a port of a switch act at `time` (ps), NEVER included; only while the switch itself is run."""
    net.dues[net.ports[port].place] = time
    net.nodes[node].port_due = min(net.nodes[node].port_due, time)


@kernel
def take_first(net, node):
    """Remove the first entry; returns its kind and target."""
    world = net.world[0]
    agenda = net.agenda
    root = np.int64(net.nodes[node].agenda)
    order = agenda[root].order
    child = np.int64(agenda[root].child)
    agenda[root].next = world.free_agenda
    world.free_agenda = root
    world.agenda_left += 1
    pairs = np.int64(-1)
    while child >= 0:
        other = np.int64(agenda[child].next)
        if other < 0:
            agenda[child].next = pairs
            pairs = child
            break
        after = np.int64(agenda[other].next)
        winner = _merge(agenda, child, other)
        agenda[winner].next = pairs
        pairs = winner
        child = after
    merged = np.int64(-1)
    while pairs >= 0:
        after = np.int64(agenda[pairs].next)
        merged = pairs if merged < 0 else _merge(agenda, merged, pairs)
        pairs = after
    if merged >= 0:
        agenda[merged].next = -1
    net.nodes[node].agenda = merged
    net.nodes[node].agenda_due = NEVER if merged < 0 else agenda[merged].time
    world.due += 1
    return order >> TARGET_BITS, order & _TARGET
