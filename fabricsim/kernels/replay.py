"""The flow engine's main loop: advances the compiled world to the next instant somebody must see."""

from __future__ import annotations

import math

import numpy as np

from fabricsim.kernels._jit import inlined, kernel
from fabricsim.kernels.flow import finish, settle, start
from fabricsim.kernels.lane import (
    ARRIVED,
    DELIVERED,
    ENTER,
    MESSAGE,
    NO_EXTRA,
    OP_DONE,
    OP_START,
    REDUCED,
    RESUME,
    SEND,
    inbox_of,
    join,
    lanes_fit,
    lanes_per_channel,
    message_bytes,
    open_call,
    run_lane,
    sent,
)
from fabricsim.kernels.queue import close_bucket, first_finisher, has_event_at, next_time, post, take
from fabricsim.packet_tables import HEADER_BYTES
from fabricsim.tables import COLLECTIVE, LONGEST_FIFO, NEVER, SLOWDOWN_BINS, SLOWDOWN_BINS_PER_OCTAVE

# What `advance` stopped for.
IDLE = 0  # nothing is left to do
HORIZON = 1  # the next thing happens after the horizon
COMPLETIONS = 2  # the outbox holds jobs or messages that are done
LANES = 3  # the next call needs more lanes or inboxes than there are; grow and come back
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
_FULL = 1e-9  # relative; a resource with no more than this left is full
_LAUNCHED = np.int64(1)  # extra of an OP_START whose kernel has been launched
_HAS_WAITED = np.int64(1)  # extra of a MESSAGE event that has waited for its slow start, or for the adapter


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
def handed_over(routes, moderation, route, size, started, received):
    """Time at which a message is handed over whose last byte was sent at `received`, ps."""
    late = received + routes[route].latency + np.int64(routes[route].byte_latency * size)
    return max(late, started + _moderated(routes, moderation, route, size))


@kernel
def _moderated(routes, moderation, route, size):
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
def _leaving(world, resources, routes, flows, legs, flow):
    """Time that a flow of the host's wire needs for what it has left, ps, if the host limits it; else 0.

    What another part of the network limits is not ahead of the wire.
    """
    first_leg = flows[flow].first_leg
    rate = np.inf
    full = flows[flow].rate == 0.0  # it has begun in this instant
    for leg in range(first_leg, first_leg + routes[flows[flow].route].out_hops):
        resource = np.int64(legs[leg].resource)
        capacity = resources[resource].capacity
        rate = min(rate, capacity / legs[leg].cost)
        # One that has lost a flow in this instant is filled by the others at the end of it.
        full = full or resources[resource].touched or resources[resource].residual <= _FULL * capacity
    if not full:
        return 0.0
    left = flows[flow].remaining - flows[flow].rate * (world[0].now - flows[flow].updated) / _PS
    return left / rate * _PS


@kernel
def _adapter_wait(world, resources, routes, hops, flows, legs, route):
    """Time for which the adapter has taken other messages already, ps.

    An adapter reads ahead of the wire. A message that finds others waits for what it has read of them; only
    then do they share the wire.
    """
    most = np.int64(routes[route].read_ahead)
    if most == 0:
        return most
    wire = np.int64(hops[routes[route].first_hop + routes[route].out_hops - 1].resource)
    leg = np.int64(resources[wire].first)
    ahead = 0.0
    while leg >= 0 and ahead < most:
        ahead += _leaving(world, resources, routes, flows, legs, np.int64(legs[leg].flow))
        leg = np.int64(legs[leg].next)
    return np.int64(min(ahead, float(most)))


@kernel
def _entrance(world, resources, routes, hops, flows, legs, route, size):
    """Time that a message waits before its first byte takes to the wire, ps."""
    cold = _cold_start(world, routes, route, size)
    return cold if cold > 0 else _adapter_wait(world, resources, routes, hops, flows, legs, route)


@kernel
def _hand_over(
    world,
    resources,
    routes,
    hops,
    flows,
    legs,
    tree,
    begun,
    events,
    buckets,
    connections,
    lanes,
    inboxes,
    lane,
    connection,
    size,
):
    """Give a lane's message to its connection: it starts when it has its turn and the adapter takes it."""
    inbox = inbox_of(connections, lanes, lane, connection)
    if inboxes[inbox].moving:
        at = (inboxes[inbox].head + inboxes[inbox].waiting) % LONGEST_FIFO
        inboxes[inbox].queued[at] = size
        inboxes[inbox].waiting += 1
        return
    inboxes[inbox].moving = 1
    route = np.int64(connections[connection].route)
    delay = _entrance(world, resources, routes, hops, flows, legs, route, size)
    if delay > 0:
        inboxes[inbox].entering = size
        post(world, events, buckets, world[0].now + delay, ENTER, lane, connection)
    else:
        start(world, resources, routes, hops, flows, legs, tree, begun, route, size, 1.0, lane, connection)


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
    """Let a rank join its call; returns False where there are too few lanes or inboxes for the call."""
    call = np.int64(ops[op].call)
    if calls[call].first_lane < 0:
        communicator = communicators[calls[call].communicator]
        template = templates[communicator.template]
        wanted = lanes_per_channel(template) * communicator.channels
        if not lanes_fit(world, free_blocks, len(lanes), len(inboxes), wanted, wanted * template.inboxes):
            return False
        open_call(world, calls, communicators, templates, scripts, lanes, inboxes, free_blocks, call)
    if communicators[calls[call].communicator].start == 0:
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
def time_alone(route, size):
    """Time of a message of `size` bytes when alone on its route, ps; of packets, the first has to go all the way.

    The framing of a last packet that is not full is counted by its bytes. Also for arrays of both.
    """
    first = np.minimum(size, route["packet"])
    header = np.minimum(first + route["framing"], HEADER_BYTES)
    fill = route["base_time"] + first * route["byte_time"] + header * route["header_time"]
    return fill + (size - first) / route["peak"] * _PS


@kernel
def note_slowdown(slowdowns, routes, route, size, taken):
    """Count a message by how much longer than alone its transfer took; `taken` in ps."""
    alone = time_alone(routes[route], size)
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
        inboxes[lanes[target].first_inbox + extra].arrived += 1
        return RUN, target, extra
    if kind == RESUME:
        return RUN, target, extra
    if kind == SEND:
        return START, target, extra
    if kind == REDUCED:
        lanes[target].sending = 0
        return RUN, target, extra
    if kind == MESSAGE:
        return POST, target, extra
    if kind == DELIVERED:
        _note_delivery(world, jobs, messages, outbox, target)
    elif kind == OP_DONE:
        _release(world, events, buckets, ops, spans, successors, jobs, job_of_op, outbox, target)
    elif kind != OP_START:
        return kind, target, extra
    elif ops[target].kind != COLLECTIVE:
        spans[target].start = now
        post(world, events, buckets, now + ops[target].duration, OP_DONE, target, NO_EXTRA)
    elif extra == NO_EXTRA and communicators[calls[ops[target].call].communicator].start > 0:
        spans[target].start = now
        launched = now + communicators[calls[ops[target].call].communicator].start
        post(world, events, buckets, launched, OP_START, target, _LAUNCHED)
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
        post(world, events, buckets, now, OP_START, target, extra)
        world[0].events -= 1
        return NO_LANES, target, extra
    return NOTHING, target, extra


@kernel
def _deliver(
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
    events,
    buckets,
    connections,
    lanes,
    inboxes,
    slowdowns,
):
    """End the flow that finishes first, post its arrival, and start what its connection has queued."""
    flow = first_finisher(tree)
    now = world[0].now
    route = np.int64(flows[flow].route)
    owner, connection = np.int64(flows[flow].owner), np.int64(flows[flow].connection)
    arrival = handed_over(routes, moderation, route, flows[flow].bytes, flows[flow].started, now)
    note_slowdown(slowdowns, routes, route, flows[flow].bytes, now - flows[flow].started)
    finish(world, resources, flows, legs, tree, series, touched, flow)
    idle_restart = routes[route].idle_restart
    routes[route].warm_until = NEVER if idle_restart == NEVER else now + idle_restart
    if connection < 0:
        post(world, events, buckets, arrival, DELIVERED, owner, NO_EXTRA)
        return
    receiver = np.int64(lanes[owner].peers + connections[connection].member)
    post(world, events, buckets, arrival, ARRIVED, receiver, np.int64(connections[connection].inbox))
    inbox = inbox_of(connections, lanes, owner, connection)
    if inboxes[inbox].waiting == 0:
        inboxes[inbox].moving = 0
        return
    # The adapter goes on with the connection: nobody comes in between.
    at = inboxes[inbox].head
    queued = np.int64(inboxes[inbox].queued[at])
    inboxes[inbox].head = (at + 1) % LONGEST_FIFO
    inboxes[inbox].waiting -= 1
    start(world, resources, routes, hops, flows, legs, tree, begun, route, queued, 1.0, owner, connection)


@kernel
def _work(
    world,
    resources,
    routes,
    hops,
    flows,
    legs,
    tree,
    begun,
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
    connection,
):
    """Let a lane go on until it must wait; `connection` is that on which it is due to send, or NONE."""
    while True:
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
                return
            overhead = np.int64(routes[connections[connection].route].overhead)
            if overhead > 0:
                post(world, events, buckets, world[0].now + overhead, SEND, lane, connection)
                return
        size = message_bytes(calls, communicators, templates, steps, lanes, lane)
        _hand_over(
            world,
            resources,
            routes,
            hops,
            flows,
            legs,
            tree,
            begun,
            events,
            buckets,
            connections,
            lanes,
            inboxes,
            lane,
            connection,
            size,
        )
        sent(connections, lanes, lane, connection)
        connection = np.int64(-1)


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
                elif todo == ENTER:
                    route = np.int64(connections[extra].route)
                    size = inboxes[inbox_of(connections, lanes, target, extra)].entering
                    start(world, resources, routes, hops, flows, legs, tree, begun, route, size, 1.0, target, extra)
                elif todo == POST:
                    row = messages[target]
                    route, size, weight = np.int64(row.route), row.bytes, row.weight
                    delay = np.int64(0)
                    if extra == NO_EXTRA:
                        delay = _entrance(world, resources, routes, hops, flows, legs, route, size)
                    if delay > 0:
                        post(world, events, buckets, now + delay, MESSAGE, target, _HAS_WAITED)
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
                _deliver(
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
                    events,
                    buckets,
                    connections,
                    lanes,
                    inboxes,
                    slowdowns,
                )
            else:
                break
            if lane >= 0:
                _work(
                    world,
                    resources,
                    routes,
                    hops,
                    flows,
                    legs,
                    tree,
                    begun,
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
                    connection,
                )
        close_bucket(world, buckets, now)
        settle(world, resources, flows, legs, tree, series, begun, touched, members, heap)
        if world[0].outbox > 0:
            return COMPLETIONS
        if world[0].events >= budget:
            return PAUSED
