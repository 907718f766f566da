"""Windows: the network advances by no more than what separates a deed of one node from its effect on another.

Within a window nodes do not influence one another, so that they can be run one by one, each over the
whole window (conservative synchronisation: Chandy, Misra 1979; Bryant 1977). If links only join
nodes of two sides, as in trees of switches, the sides take turns: what a node does affects its own
side no sooner than over two links, one in each direction, so that either is run that far at once.
Two ways to find the nodes that have something to do: a scan of all next times, where most nodes are
busy in each window; and a calendar, a tournament over the next times, if windows are short or few
nodes are busy, which knows no sides. NICs of one host that share servers do influence one another:
they are run in turns, as their times come.
"""

import numpy as np

from fabricsim.engine.packet.kernels.net import prefetch
from fabricsim.engine.packet.kernels.node import run_node
from fabricsim.engine.program.queue import first_finisher
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.packet import CHUNK
from fabricsim.records.program import NEVER

MESSAGES_PER_EVENT = 1024
"""More than a lane sends before it must wait: its window on each of its connections."""
SAMPLES_PER_EVENT = 2 * MESSAGES_PER_EVENT
"""Window and rate of each flow that begins."""
_STEPS = 8  # hosts ahead of which the first of three fetches is made; each needs what the one before has fetched


@kernel
def next_times(net):
    """When the nodes of each side have something to do, ps; NEVER if none has. The calendar has all on both."""
    world = net.world[0]
    if world.calendar:
        return net.tree[1], net.tree[1]
    sides = np.int64(world.sides)
    return _first(net, 0, sides), _first(net, sides, len(net.stretches))


@kernel
def _first(net, begin, end):
    """When nodes of some stretches have something to do, ps; NEVER if none has."""
    times = net.next_times
    first = NEVER
    for i in range(begin, end):
        for node in range(net.stretches[i].first, net.stretches[i].end):
            first = min(first, times[node])
    return first


@inlined
def _after(time, delay):
    return min(time, NEVER - delay) + delay


@inlined
def _end(world, side, own, other):
    """Up to when the nodes of a side may be run, ps, if theirs and the others' first deeds are at `own` and `other`."""
    reach = world.back if side == 0 else world.out
    if world.calendar:
        reach = min(world.out, world.back)
    return min(_after(own, world.window), _after(other, reach))


@kernel
def open_window(net, zero, one, limit):
    """Begin a window of the side whose turn it is, or of the other if that one has to wait for it.

    `zero`, `one`: when the nodes of each side have something to do, ps.
    `limit`: beyond which no node goes, ps; one of them has something to do before.
    """
    world = net.world[0]
    own, other = (zero, one) if world.side == 0 else (one, zero)
    until = min(_end(world, world.side, own, other), limit)
    if own >= until:
        world.side = 1 - world.side
        until = min(_end(world, world.side, other, own), limit)
    world.until = until
    world.open = 1


@kernel
def has_room(net):
    """Whether all pools hold what one node may need in a window, or one event of a program."""
    world = net.world[0]
    room = world.room
    return (
        world.chunks * CHUNK > 4 * room
        and world.agenda_left > world.plans
        and (world.controls == 0 or world.controls_left > 2 * room)
        and world.transfers_left > MESSAGES_PER_EVENT
        and world.deliveries + room < len(net.deliveries)
        and (world.logging == 0 or world.logged + 2 * room < len(net.log))
        and (world.sampling == 0 or world.sampled + 4 * room + SAMPLES_PER_EVENT < len(net.samples))
    )


@kernel
def _run_host(net, node, until):
    """Run all NICs of a NIC's host up to the end of the window; returns False if a pool has to grow first.

    At one time they come in the order of their numbers.
    """
    times = net.next_times
    peers = np.int64(net.world[0].peers)
    first = node - node % peers
    while True:
        earliest, due, limit = np.int64(-1), until, until
        for other in range(first, first + peers):
            time = times[other]
            if time < due:
                limit = due  # what was the earliest before has the lower number
                earliest, due = np.int64(other), time
            elif time < limit:
                limit = time + 1
        if earliest < 0:
            return True
        if not has_room(net):
            return False
        run_node(net, earliest, limit)


@inlined
def _fetch_ahead(net, node):
    """Have the processor fetch what the next hosts need first, each a step further."""
    ins, links, nodes = net.ins, net.links, net.nodes  # each host has one link, and hosts come first
    if node + _STEPS < net.world[0].hosts:
        prefetch(nodes, node + _STEPS)
        prefetch(net.ports, np.int64(nodes[node + 6].port))
        prefetch(links, np.int64(ins[node + 6]))
        prefetch(links, np.int64(net.ports[nodes[node + 4].port].link))
        prefetch(net.pool, np.int64(links[ins[node + 4]].head))
        flow = np.int64(net.pool[max(np.int64(links[ins[node + 2]].head), 0)].flow)
        prefetch(net.flows, flow)
        prefetch(net.receivers, flow)


@inlined
def _run(net, node, until):
    world = net.world[0]
    if world.peers and node < world.hosts:
        return _run_host(net, node, until)
    if not has_room(net):
        return False
    run_node(net, node, until)
    return True


@kernel
def _run_stretch(net, first, end, until):
    """Run the nodes from `first` on; returns that at which a pool has to grow, or `end`."""
    times = net.next_times
    many = net.world[0].many
    for node in range(first, end):
        if many:
            _fetch_ahead(net, np.int64(node))
        if times[node] < until and not _run(net, np.int64(node), until):
            return node
    return end


@kernel
def run_window(net):
    """Run the nodes of one side up to the end of the present window; returns False if a pool has to grow first.

    It may be called again after that, and goes on where it stopped.
    """
    world = net.world[0]
    until = world.until
    if world.calendar:
        while net.tree[1] < until:
            if not _run(net, np.int64(first_finisher(net.tree)), until):
                return False
    else:
        sides = np.int64(world.sides)
        begin, end = (np.int64(0), sides) if world.side == 0 else (sides, np.int64(len(net.stretches)))
        for i in range(begin, end):
            stretch = net.stretches[i]
            last = np.int64(stretch.end)
            world.node = _run_stretch(net, max(np.int64(stretch.first), np.int64(world.node)), last, until)
            if world.node < last:
                return False
        world.node = 0
        world.side = 1 - world.side
    world.open = 0
    return True
