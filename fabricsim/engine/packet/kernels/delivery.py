"""From the network back to programs: messages that were received become events."""

import numpy as np

from fabricsim.engine.packet.kernels.fast.order import merge_sorting
from fabricsim.engine.program.lane import ARRIVED, DELIVERED, NO_EXTRA
from fabricsim.engine.program.queue import post
from fabricsim.engine.program.transfer import handed_over, note_slowdown
from fabricsim.jit.compile import inlined, kernel

BATCH_DONE = np.int64(16)
"""Kind of an event: all messages of a batch are handed over; target: the job that counts them."""
INBOX_BITS = 20
"""Of the owner of a lane's message, for the inbox; the bits above hold the receiving lane."""
_INBOX = (1 << INBOX_BITS) - 1


@inlined
def _comes_after(net, a, b):
    """Whether delivery `a` comes after delivery `b`: by time, then by receiving node."""
    deliveries, flows = net.deliveries, net.flows
    if deliveries[a].time != deliveries[b].time:
        return deliveries[a].time > deliveries[b].time
    return flows[deliveries[a].flow].target > flows[deliveries[b].flow].target


_sort = kernel(merge_sorting(_comes_after))


@kernel
def hand_over(sim, net):
    """Post an event for each message received in the window that has ended."""
    network = net.world[0]
    count = np.int64(network.deliveries)
    order = net.order
    for i in range(count):
        order[i] = i
    first = _sort(net, order, count)
    for i in range(first, first + count):
        delivery = net.deliveries[order[i]]
        route = np.int64(net.flows[delivery.flow].route)
        transfer = net.transfers[delivery.transfer]
        size = (transfer.last - transfer.first) * net.laws[net.flows[delivery.flow].law].payload + transfer.tail
        arrival = handed_over(sim, route, size, delivery.posted, delivery.time)
        note_slowdown(sim, route, size, delivery.time - delivery.posted)
        report_arrival(sim, delivery.owner, arrival, delivery.time + network.window)
    network.deliveries = 0


@kernel
def report_arrival(sim, owner, arrival, earliest):
    """Post what follows when a message is handed over at `arrival` (ps).

    The end of a batch, to which nobody reacts within a window, is posted no sooner than `earliest`.
    """
    messages, jobs = sim.messages, sim.jobs
    if owner >= 0:
        post(sim, arrival, ARRIVED, owner >> INBOX_BITS, owner & _INBOX)
        return
    message = -1 - owner
    batch = np.int64(messages[message].batch)
    if batch < 0:
        post(sim, arrival, DELIVERED, message, NO_EXTRA)
        return
    messages[message].ended = arrival
    sim.world[0].dag_nodes += 1
    jobs[batch].open_ops -= 1
    jobs[batch].ended = max(jobs[batch].ended, arrival)
    if jobs[batch].open_ops == 0:
        post(sim, max(jobs[batch].ended, earliest), BATCH_DONE, batch, NO_EXTRA)
