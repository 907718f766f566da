"""The flow engine's main loop: advances the compiled world to the next instant somebody must see."""

from __future__ import annotations

from fabricsim.kernels._jit import kernel
from fabricsim.kernels.flow import finish, settle, start
from fabricsim.kernels.lane import (
    ARRIVED,
    DELIVERED,
    MESSAGE,
    OP_DONE,
    OP_START,
    RESUME,
    SEND,
    join,
    lanes_fit,
    message_bytes,
    open_call,
    run_lane,
)
from fabricsim.kernels.queue import close_bucket, first_finisher, has_event_at, next_time, post, take
from fabricsim.tables import COMPUTE, NEVER

# What `advance` stopped for.
IDLE = 0  # nothing is left to do
HORIZON = 1  # the next thing happens after the horizon
COMPLETIONS = 2  # the outbox holds jobs or messages that are done
LANES = 3  # the next call needs more lanes than there are; grow and come back
PAUSED = 4  # the budget of events is used up

JOB_DONE = 0
MESSAGE_DONE = 1

_PS = 1e12


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
        idle = round_trip - int(window / rate * _PS)
        if idle <= 0:
            break
        delay += idle
        left -= window
        window *= 2
    return delay


@kernel
def _moderated(routes, moderation, route, size):
    """Least time from a message's start to its interrupt, ps."""
    interval = 0
    if routes[route].moderation >= 0:
        for i in range(routes[route].moderation_steps):
            step = moderation[routes[route].moderation + i]
            if size > step.above:
                interval = step.interval
    return interval


@kernel
def _send_delay(world, routes, route, size):
    """Time between the decision to send and the first byte, ps."""
    delay = routes[route].overhead
    if routes[route].window > 0 and world[0].now >= routes[route].warm_until:
        delay += slow_start_delay(size, routes[route].peak, routes[route].round_trip, routes[route].window)
    return delay


@kernel
def _release(world, events, buckets, ops, spans, successors, jobs, job_of_op, outbox, op):
    """An op is done: note it, and start those that waited for it."""
    now = world[0].now
    spans[op].end = now
    world[0].dag_nodes += 1
    for i in range(ops[op].successors):
        after = successors[ops[op].first_successor + i]
        ops[after].predecessors -= 1
        if ops[after].predecessors == 0:
            post(world, events, buckets, now, OP_START, after, 0)
    job = job_of_op[op]
    jobs[job].open_ops -= 1
    if jobs[job].open_ops == 0:
        jobs[job].ended = now
        outbox[world[0].outbox, 0] = JOB_DONE
        outbox[world[0].outbox, 1] = job
        world[0].outbox += 1


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
):
    """Advance until something is in the outbox, the horizon is reached, or nothing is left.

    Returns one of IDLE, HORIZON, COMPLETIONS, LANES, PAUSED; the last after `budget` events, so that
    somebody can be told of the progress. All that happens at one instant is done before rates are
    set anew, once.
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
            while has_event_at(world, buckets, now):
                kind, target, extra = take(world, events, buckets)
                world[0].events += 1
                if kind == OP_START:
                    if ops[target].kind == COMPUTE:
                        spans[target].start = now
                        post(world, events, buckets, now + ops[target].duration, OP_DONE, target, 0)
                        continue
                    call = ops[target].call
                    if calls[call].first_lane < 0:
                        communicator = communicators[calls[call].communicator]
                        wanted = templates[communicator.template].members * communicator.channels
                        if not lanes_fit(world, free_blocks, len(lanes), wanted):
                            post(world, events, buckets, now, OP_START, target, 0)
                            world[0].events -= 1
                            return LANES
                        open_call(world, calls, communicators, templates, lanes, inboxes, free_blocks, call)
                    spans[target].start = now
                    join(
                        world,
                        events,
                        buckets,
                        calls,
                        communicators,
                        templates,
                        sources,
                        lanes,
                        target,
                        call,
                        ops[target].member,
                    )
                    continue
                if kind == OP_DONE:
                    _release(world, events, buckets, ops, spans, successors, jobs, job_of_op, outbox, target)
                    continue
                if kind == DELIVERED:
                    outbox[world[0].outbox, 0] = MESSAGE_DONE
                    outbox[world[0].outbox, 1] = target
                    world[0].outbox += 1
                    continue
                if kind == MESSAGE:
                    message = messages[target]
                    start(
                        world,
                        resources,
                        routes,
                        hops,
                        flows,
                        legs,
                        tree,
                        begun,
                        message.route,
                        message.bytes,
                        message.weight,
                        target,
                        -1,
                    )
                    continue
                if kind == ARRIVED:
                    inboxes[target * world[0].inboxes + extra].arrived += 1
                if kind == SEND:
                    connection = extra
                else:
                    connection = run_lane(
                        world,
                        events,
                        buckets,
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
                        target,
                    )
                    if connection < 0:
                        continue
                size = message_bytes(calls, communicators, templates, scripts, steps, lanes, target)
                route = connections[connection].route
                if kind != SEND:
                    delay = _send_delay(world, routes, route, size)
                    if delay > 0:
                        post(world, events, buckets, now + delay, SEND, target, connection)
                        continue
                start(
                    world, resources, routes, hops, flows, legs, tree, begun, route, size, 1.0, target, connection
                )
            if tree[1] != now:
                break
            flow = first_finisher(tree)
            route = flows[flow].route
            owner, connection = flows[flow].owner, flows[flow].connection
            arrival = max(
                now + routes[route].latency,
                flows[flow].started + _moderated(routes, moderation, route, flows[flow].bytes),
            )
            finish(world, resources, routes, flows, legs, tree, series, touched, flow)
            routes[route].warm_until = now + routes[route].idle_restart
            if connection < 0:
                post(world, events, buckets, arrival, DELIVERED, owner, 0)
                continue
            template = templates[communicators[calls[lanes[owner].call].communicator].template]
            base = owner - lanes[owner].member
            receiver = base + connections[connection].member
            post(world, events, buckets, arrival, ARRIVED, receiver, connections[connection].inbox)
            lanes[owner].sending = 0
            lanes[owner].received = 0
            lanes[owner].step += 1
            post(world, events, buckets, now, RESUME, owner, 0)
        close_bucket(world, buckets, now)
        settle(world, resources, routes, flows, legs, tree, series, begun, touched, members, heap)
        if world[0].outbox > 0:
            return COMPLETIONS
        if world[0].events >= budget:
            return PAUSED
