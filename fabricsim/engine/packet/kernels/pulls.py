"""A receiving host's pace of pulls (NDP, EQDS): flows in turn, one packet each, as fast as its link brings packets."""

import numpy as np

from fabricsim.engine.packet.kernels.agenda import plan
from fabricsim.engine.packet.kernels.nic import Echo, answer
from fabricsim.jit.compile import kernel, rare
from fabricsim.records.packet import PULL, PULL_DUE

_PULL, _PULL_DUE, _NONE = np.int64(PULL), np.int64(PULL_DUE), np.int64(0)


@rare
def _send(net, number, count, now):
    """Pull `count` packets of a flow."""
    flow = net.flows[number]
    flow.pulls += count
    flow.pulls_due -= count
    entropy = np.int64(flow.pulls % max(net.laws[flow.law].entropies, 1))
    answer(net, number, _PULL, flow.pulls, Echo(_NONE, now, entropy, _NONE), now)


@rare
def _wanted(net, number):
    """Count the packets to be pulled: those due, and some ahead of what came, of those that are missing."""
    flow = net.flows[number]
    missing = flow.posted - net.receivers[number].received
    return flow.pulls_due + max(min(net.laws[flow.law].ahead, missing), 0)


@rare
def _join(net, node, number):
    row = net.pulls[node]
    net.flows[number].next_pull = -1
    net.flows[number].in_round = 1
    if row.first < 0:
        row.first = number
    else:
        net.flows[row.last].next_pull = number
    row.last = number


@rare
def _leave(net, node, number):
    """Take a flow out of the round, in which it may not be."""
    row = net.pulls[node]
    net.flows[number].in_round = 0
    before, at = np.int64(-1), np.int64(row.first)
    while at >= 0 and at != number:
        before, at = at, np.int64(net.flows[at].next_pull)
    if at < 0:
        return
    after = net.flows[number].next_pull
    if before < 0:
        row.first = after
    else:
        net.flows[before].next_pull = after
    if row.last == number:
        row.last = before


@rare
def may_ride(net, number, now):
    """Whether (1) or not (0) a pull for a packet that comes now may leave at once, on the answer to it."""
    flow = net.flows[number]
    row = net.pulls[flow.target]
    return 1 if row.first < 0 and now >= row.at and net.laws[flow.law].ahead == 0 else 0


@rare
def ask(net, number, complete, now):
    """Have a packet pulled for one that came; if a message is complete, at once all that wait for its flow."""
    node = np.int64(net.flows[number].target)
    row = net.pulls[node]
    flow = net.flows[number]
    if flow.rides > 1:
        row.at = now + net.laws[flow.law].pull_interval
        return
    flow.pulls_due += 1
    if complete:
        _leave(net, node, number)
        if flow.pulls_due > 0:
            _send(net, number, np.int64(flow.pulls_due), now)
    elif not flow.in_round and _wanted(net, number) > 0:
        alone = row.first < 0
        _join(net, node, number)
        if alone and now >= row.at:
            pull_next(net, node, now)
        elif alone:
            plan(net, node, np.int64(row.at), _PULL_DUE, node)


@kernel
def pull_next(net, node, now):
    """Pull a packet of the flow whose turn it is, if one waits and the pace allows it."""
    row = net.pulls[node]
    number = np.int64(row.first)
    if number < 0 or now < row.at:
        return
    flow = net.flows[number]
    row.first = flow.next_pull
    row.at = now + net.laws[flow.law].pull_interval
    flow.in_round = 0
    if _wanted(net, number) > 1:
        _join(net, node, number)
    _send(net, number, np.int64(1), now)
    if row.first >= 0:
        plan(net, node, np.int64(row.at), _PULL_DUE, node)
