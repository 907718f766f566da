"""The flow engine's main loop: advances the compiled world to the next instant somebody must see."""

from __future__ import annotations

import math

import numpy as np

from fabricsim.kernels._jit import inlined, kernel
from fabricsim.kernels.flow import finish, settle, start
from fabricsim.kernels.lane import (
    ARRIVED,
    DELIVERED,
    MESSAGE,
    NO_EXTRA,
    OP_DONE,
    OP_START,
    RESUME,
    SEND,
    join,
    lanes_fit,
    message_bytes,
    open_call,
    run_lane,
    sent,
)
from fabricsim.kernels.queue import close_bucket, first_finisher, has_event_at, next_time, post, take
from fabricsim.tables import COMPUTE, NEVER, SLOWDOWN_BINS, SLOWDOWN_BINS_PER_OCTAVE

# What `advance` stopped for.
IDLE = 0  # nothing is left to do
HORIZON = 1  # the next thing happens after the horizon
COMPLETIONS = 2  # the outbox holds jobs or messages that are done
LANES = 3  # the next call needs more lanes than there are; grow and come back
PAUSED = 4  # the budget of events is used up

# What `handle` leaves to do; negative, unlike the kinds of events.
NOTHING = np.int64(-1)
RUN = np.int64(-2)
START = np.int64(-3)
POST = np.int64(-4)
NO_LANES = np.int64(-5)

# What the outbox tells.
JOB_DONE = np.int64(0)
MESSAGE_DONE = np.int64(1)

_PS = 1e12
_STARTED_COLD = np.int64(1)  # extra of a MESSAGE event that has waited for its slow start


@kernel
def slow_start_delay(size, rate, round_trip, window):
    """Extra time of a message on a cold TCP connection, ps.

    The congestion window starts at `window` bytes and doubles each round trip (RFC 5681, RFC 6928)
    until it covers ``rate * round_trip``; in each round before that the sender idles for what is
    left of the round trip after its window is sent. The last window needs no acknowledgement.
    """
    delay = 0
    left = size
    while left > window:
        busy = window / rate * _PS
        if busy >= round_trip:
            break
        delay += round_trip - int(busy)
        left -= window
        window *= 2
    return delay


@kernel
def moderated(routes, moderation, route, size):
    """Least time from a message's start to its interrupt, ps."""
    interval = np.int64(0)
    if routes[route].moderation >= 0:
        for i in range(routes[route].moderation_steps):
            step = moderation[routes[route].moderation + i]
            if size > step.above:
                interval = step.interval
    return interval


@kernel
def _cold_start(world, routes, route, size):
    """Extra time of a message that begins now, ps; none where the connection is warm."""
    if routes[route].window == 0 or world[0].now < routes[route].warm_until:
        return np.int64(0)
    return np.int64(slow_start_delay(size, routes[route].peak, routes[route].round_trip, routes[route].window))


@kernel
def _start_collective(
    world,
    events,
    buckets,
    ops,
    spans,
    calls,
    communicators,
    templates,
    scripts,
    sources,
    lanes,
    inboxes,
    free_blocks,
    op,
):
    """Let a rank join its call; returns False where there are too few lanes for the call."""
    call = np.int64(ops[op].call)
    if calls[call].first_lane < 0:
        communicator = communicators[calls[call].communicator]
        wanted = np.int64(templates[communicator.template].members) * communicator.channels
        if not lanes_fit(world, free_blocks, len(lanes), wanted):
            return False
        open_call(world, calls, communicators, templates, scripts, lanes, inboxes, free_blocks, call)
    spans[op].start = world[0].now
    member = np.int64(ops[op].member)
    join(world, events, buckets, calls, communicators, templates, sources, lanes, op, call, member)
    return True


@kernel
def report(world, outbox, kind, number):
    """Tell of the end of a job or message."""
    outbox[world[0].outbox, 0] = kind
    outbox[world[0].outbox, 1] = number
    world[0].outbox += 1


@kernel
def _release(world, events, buckets, ops, spans, successors, jobs, job_of_op, outbox, op):
    """Note the end of an op, and start those that waited for it."""
    now = world[0].now
    spans[op].end = now
    world[0].dag_nodes += 1
    for i in range(ops[op].successors):
        after = successors[ops[op].first_successor + i]
        ops[after].predecessors -= 1
        if ops[after].predecessors == 0:
            post(world, events, buckets, now, OP_START, after, NO_EXTRA)
    job = job_of_op[op]
    jobs[job].open_ops -= 1
    if jobs[job].open_ops == 0:
        jobs[job].ended = now
        report(world, outbox, JOB_DONE, job)


@kernel
def note_slowdown(slowdowns, alone, taken):
    """Count a message by how much longer its transfer took than alone on its route; both in ps."""
    # A finish time is rounded up to a whole picosecond, which is no slowdown.
    if taken <= alone + 1.0:
        slowdowns[0] += 1
    else:
        octaves = math.log2(taken / alone) if alone > 0.0 else float(SLOWDOWN_BINS)
        slowdowns[min(int(octaves * SLOWDOWN_BINS_PER_OCTAVE) + 1, SLOWDOWN_BINS - 1)] += 1


@kernel
def _note_delivery(world, jobs, messages, outbox, message):
    """Report a message from outside, or count it in its batch."""
    batch = np.int64(messages[message].batch)
    if batch < 0:
        report(world, outbox, MESSAGE_DONE, message)
        return
    messages[message].ended = world[0].now
    world[0].dag_nodes += 1
    jobs[batch].ended = world[0].now
    jobs[batch].open_ops -= 1
    if jobs[batch].open_ops == 0:
        report(world, outbox, JOB_DONE, batch)


@inlined
def handle(
    world,
    events,
    buckets,
    ops,
    spans,
    successors,
    jobs,
    job_of_op,
    calls,
    communicators,
    templates,
    scripts,
    sources,
    lanes,
    inboxes,
    free_blocks,
    messages,
    outbox,
):
    """Take the earliest event, and do what it takes but for the network's part.

    Returns
    -------
    tuple of int
        What is left to do, with its target and extra: RUN (a lane), START (a lane, its connection),
        POST (a message from outside, extra of its event), an event that only one engine knows (its
        kind), NOTHING, or NO_LANES.
    """
    now = world[0].now
    kind, target, extra = take(world, events, buckets)
    world[0].events += 1
    if kind == ARRIVED:
        inboxes[target * world[0].inboxes + extra].arrived += 1
        return RUN, target, extra
    if kind == RESUME:
        return RUN, target, extra
    if kind == SEND:
        return START, target, extra
    if kind == MESSAGE:
        return POST, target, extra
    if kind == DELIVERED:
        _note_delivery(world, jobs, messages, outbox, target)
    elif kind == OP_DONE:
        _release(world, events, buckets, ops, spans, successors, jobs, job_of_op, outbox, target)
    elif kind != OP_START:
        return kind, target, extra
    elif ops[target].kind == COMPUTE:
        spans[target].start = now
        post(world, events, buckets, now + ops[target].duration, OP_DONE, target, NO_EXTRA)
    elif not _start_collective(
        world,
        events,
        buckets,
        ops,
        spans,
        calls,
        communicators,
        templates,
        scripts,
        sources,
        lanes,
        inboxes,
        free_blocks,
        target,
    ):
        post(world, events, buckets, now, OP_START, target, NO_EXTRA)
        world[0].events -= 1
        return NO_LANES, target, extra
    return NOTHING, target, extra


@kernel
def _deliver(
    world,
    resources,
    routes,
    moderation,
    flows,
    legs,
    tree,
    series,
    touched,
    events,
    buckets,
    connections,
    lanes,
    slowdowns,
):
    """End the flow that finishes first and post its arrival; returns the lane that sent it, or -1."""
    flow = first_finisher(tree)
    now = world[0].now
    route = flows[flow].route
    owner, connection = np.int64(flows[flow].owner), flows[flow].connection
    interrupt = flows[flow].started + moderated(routes, moderation, route, flows[flow].bytes)
    arrival = max(now + routes[route].latency, interrupt)
    note_slowdown(slowdowns, flows[flow].bytes / routes[route].peak * _PS, now - flows[flow].started)
    finish(world, resources, flows, legs, tree, series, touched, flow)
    routes[route].warm_until = now + routes[route].idle_restart
    if connection < 0:
        post(world, events, buckets, arrival, DELIVERED, owner, NO_EXTRA)
        return -1
    receiver = sent(connections, lanes, owner, connection)
    post(world, events, buckets, arrival, ARRIVED, receiver, np.int64(connections[connection].inbox))
    return owner


@kernel
def advance(
    horizon,
    budget,
    world,
    resources,
    routes,
    hops,
    moderation,
    flows,
    legs,
    tree,
    series,
    begun,
    touched,
    members,
    heap,
    events,
    buckets,
    ops,
    spans,
    successors,
    jobs,
    job_of_op,
    calls,
    communicators,
    templates,
    scripts,
    steps,
    connections,
    sources,
    lanes,
    inboxes,
    free_blocks,
    messages,
    outbox,
    slowdowns,
):
    """Advance until something is in the outbox, the horizon is reached, or nothing is left.

    Parameters
    ----------
    horizon
        Nothing after this time (ps) is done.
    budget
        Stop at the end of the instant in which this many events are used up, so that somebody can
        be told of the progress. The end of a flow counts as an event.
    world, ..., slowdowns
        Tables of `fabricsim.tables`, in the order of ``World._arguments``.

    Returns
    -------
    int
        IDLE, HORIZON, COMPLETIONS, LANES or PAUSED. All that happens at one instant is done before
        rates are set anew, once; only LANES stops within an instant, and may be called again.
    """
    budget += world[0].events
    while True:
        now = min(next_time(world, buckets), tree[1])
        if now == NEVER:
            return IDLE
        if now > horizon:
            return HORIZON
        world[0].now = now
        while True:
            lane, connection = np.int64(-1), np.int64(-1)
            if has_event_at(world, buckets, now):
                todo, target, extra = handle(
                    world,
                    events,
                    buckets,
                    ops,
                    spans,
                    successors,
                    jobs,
                    job_of_op,
                    calls,
                    communicators,
                    templates,
                    scripts,
                    sources,
                    lanes,
                    inboxes,
                    free_blocks,
                    messages,
                    outbox,
                )
                if todo == RUN:
                    lane = target
                elif todo == START:
                    lane, connection = target, extra
                elif todo == NO_LANES:
                    return LANES
                elif todo == POST:
                    row = messages[target]
                    route, size, weight = np.int64(row.route), row.bytes, row.weight
                    delay = _cold_start(world, routes, route, size) if extra == NO_EXTRA else np.int64(0)
                    if delay > 0:
                        post(world, events, buckets, now + delay, MESSAGE, target, _STARTED_COLD)
                        continue
                    start(
                        world,
                        resources,
                        routes,
                        hops,
                        flows,
                        legs,
                        tree,
                        begun,
                        route,
                        size,
                        weight,
                        target,
                        connection,
                    )
            elif tree[1] == now:
                world[0].events += 1
                lane = _deliver(
                    world,
                    resources,
                    routes,
                    moderation,
                    flows,
                    legs,
                    tree,
                    series,
                    touched,
                    events,
                    buckets,
                    connections,
                    lanes,
                    slowdowns,
                )
            else:
                break
            if lane < 0:
                continue
            if connection < 0:
                connection = run_lane(
                    world,
                    events,
                    buckets,
                    calls,
                    communicators,
                    templates,
                    steps,
                    connections,
                    sources,
                    lanes,
                    inboxes,
                    free_blocks,
                    lane,
                )
                if connection < 0:
                    continue
                route = np.int64(connections[connection].route)
                size = message_bytes(calls, communicators, templates, steps, lanes, lane)
                delay = routes[route].overhead + _cold_start(world, routes, route, size)
                if delay > 0:
                    post(world, events, buckets, now + delay, SEND, lane, connection)
                    continue
            else:
                route = np.int64(connections[connection].route)
                size = message_bytes(calls, communicators, templates, steps, lanes, lane)
            start(world, resources, routes, hops, flows, legs, tree, begun, route, size, 1.0, lane, connection)
        close_bucket(world, buckets, now)
        settle(world, resources, flows, legs, tree, series, begun, touched, members, heap)
        if world[0].outbox > 0:
            return COMPLETIONS
        if world[0].events >= budget:
            return PAUSED
