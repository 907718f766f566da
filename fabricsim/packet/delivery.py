"""From the network back to programs: messages that were received become events."""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.kernels.lane import ARRIVED, DELIVERED, NO_EXTRA
from fabricsim.kernels.queue import post
from fabricsim.kernels.transfer import handed_over, note_slowdown

BATCH_DONE = np.int64(16)
"""Kind of an event: all messages of a batch are handed over; target: the job that counts them."""
INBOX_BITS = 20
"""Of the owner of a lane's message, for the inbox; the bits above hold the receiving lane."""
_INBOX = (1 << INBOX_BITS) - 1


@kernel
def _before(deliveries, flows, a, b):
    """Whether delivery `b` comes before delivery `a`: by time, then by receiving node."""
    if deliveries[a].time != deliveries[b].time:
        return deliveries[b].time < deliveries[a].time
    return flows[deliveries[b].flow].target < flows[deliveries[a].flow].target


@kernel
def _sort(deliveries, flows, order, count):
    """Sort deliveries stably into order[:count]; the second half of `order` is scratch."""
    half = len(order) >> 1
    for i in range(count):
        order[i] = i
    source, target = 0, half
    width = 1
    while width < count:
        low = 0
        while low < count:
            middle, high = min(low + width, count), min(low + 2 * width, count)
            a, b = source + low, source + middle
            end_a, end_b = source + middle, source + high
            for k in range(target + low, target + high):
                if a < end_a and (b >= end_b or not _before(deliveries, flows, order[a], order[b])):
                    order[k] = order[a]
                    a += 1
                else:
                    order[k] = order[b]
                    b += 1
            low = high
        source, target = target, source
        width *= 2
    if source:
        for i in range(count):
            order[i] = order[half + i]


@kernel
def hand_over(world, events, buckets, routes, moderation, messages, jobs, slowdowns, net):
    """Post an event for each message received in the window that has ended."""
    network = net.world[0]
    count = np.int64(network.deliveries)
    _sort(net.deliveries, net.flows, net.order, count)
    for i in range(count):
        delivery = net.deliveries[net.order[i]]
        route = np.int64(net.flows[delivery.flow].route)
        transfer = net.transfers[delivery.transfer]
        size = (transfer.last - transfer.first) * net.laws[net.flows[delivery.flow].law].payload + transfer.tail
        arrival = handed_over(routes, moderation, route, size, delivery.posted, delivery.time)
        note_slowdown(slowdowns, routes, route, size, delivery.time - delivery.posted)
        report_arrival(world, events, buckets, messages, jobs, delivery.owner, arrival, network.until)
    network.deliveries = 0


@kernel
def report_arrival(world, events, buckets, messages, jobs, owner, arrival, earliest):
    """Post what follows when a message is handed over at `arrival` (ps).

    The end of a batch, to which nobody reacts within a window, is posted no sooner than `earliest`.
    """
    if owner >= 0:
        post(world, events, buckets, arrival, ARRIVED, owner >> INBOX_BITS, owner & _INBOX)
        return
    message = -1 - owner
    batch = np.int64(messages[message].batch)
    if batch < 0:
        post(world, events, buckets, arrival, DELIVERED, message, NO_EXTRA)
        return
    messages[message].ended = arrival
    world[0].dag_nodes += 1
    jobs[batch].open_ops -= 1
    jobs[batch].ended = max(jobs[batch].ended, arrival)
    if jobs[batch].open_ops == 0:
        post(world, events, buckets, max(jobs[batch].ended, earliest), BATCH_DONE, batch, NO_EXTRA)
