"""The flow engine's main loop: advances the compiled world to the next instant somebody must see."""

import numpy as np

from fabricsim.engine.flow.kernels.flows import at_tick, finish, settle, start, tick_of
from fabricsim.engine.program.dispatch import (
    COMPLETIONS,
    HORIZON,
    IDLE,
    LANES,
    NO_LANES,
    PAUSED,
    POST,
    RUN,
    START,
    handle,
)
from fabricsim.engine.program.lane import (
    ARRIVED,
    DELIVERED,
    ENTER,
    MESSAGE,
    NO_EXTRA,
    SEND,
    inbox_of,
    message_bytes,
    run_lane,
    sent,
)
from fabricsim.engine.program.queue import close_bucket, first_finisher, has_event_at, next_time, post
from fabricsim.engine.program.transfer import entrance, first_sent, handed_over, note_slowdown
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.program import LONGEST_FIFO, NEVER

_HAS_WAITED = np.int64(1)  # extra of a MESSAGE event that has waited for its slow start, or for the adapter


@kernel
def _hand_over(sim, lane, connection, size):
    """Give a lane's message to its connection: it starts when it has its turn and the adapter takes it."""
    inboxes = sim.inboxes
    inbox = inbox_of(sim, lane, connection)
    if inboxes[inbox].moving:
        at = (inboxes[inbox].head + inboxes[inbox].waiting) % LONGEST_FIFO
        inboxes[inbox].queued[at] = size
        inboxes[inbox].waiting += 1
        return
    inboxes[inbox].moving = 1
    route = np.int64(sim.connections[connection].route)
    now = sim.world[0].now
    begins = at_tick(now + entrance(sim, route, size), tick_of(sim, route, size, lane))
    if begins > now:
        inboxes[inbox].entering = size
        post(sim, begins, ENTER, lane, connection)
    else:
        start(sim, route, size, 1.0, lane, connection)


@kernel
def _deliver(sim):
    """End the flow that finishes first, post its arrival, and start what its connection has queued."""
    routes, flows, connections = sim.routes, sim.flows, sim.connections
    inboxes = sim.inboxes
    flow = first_finisher(sim.tree)
    now = sim.world[0].now
    route = np.int64(flows[flow].route)
    owner, connection = np.int64(flows[flow].owner), np.int64(flows[flow].connection)
    size, started = flows[flow].bytes, np.int64(flows[flow].started)
    began = first_sent(sim, route, size, started) if routes[route].moderation >= 0 else started
    arrival = handed_over(sim, route, size, began, now)
    note_slowdown(sim, route, size, now - started)
    finish(sim, flow)
    idle_restart = routes[route].idle_restart
    routes[route].warm_until = NEVER if idle_restart == NEVER else now + idle_restart
    if connection < 0:
        post(sim, arrival, DELIVERED, owner, NO_EXTRA)
        return
    receiver = np.int64(sim.lanes[owner].peers + connections[connection].member)
    post(sim, arrival, ARRIVED, receiver, np.int64(connections[connection].inbox))
    inbox = inbox_of(sim, owner, connection)
    if inboxes[inbox].waiting == 0:
        inboxes[inbox].moving = 0
        return
    # The adapter goes on with the connection: nobody comes in between.
    at = inboxes[inbox].head
    queued = np.int64(inboxes[inbox].queued[at])
    inboxes[inbox].head = (at + 1) % LONGEST_FIFO
    inboxes[inbox].waiting -= 1
    start(sim, route, queued, 1.0, owner, connection)


@kernel
def _work(sim, lane, connection):
    """Let a lane go on until it must wait; `connection` is that on which it is due to send, or NONE."""
    while True:
        if connection < 0:
            connection = run_lane(sim, lane)
            if connection < 0:
                return
            overhead = np.int64(sim.routes[sim.connections[connection].route].overhead)
            if overhead > 0:
                post(sim, sim.world[0].now + overhead, SEND, lane, connection)
                return
        size = message_bytes(sim, lane, connection)
        _hand_over(sim, lane, connection, size)
        sent(sim, lane, connection)
        connection = np.int64(-1)


@inlined
def _post(sim, number, waited):
    """Start a message, if its adapter is through with what it has read ahead, or has waited for it; else later."""
    row = sim.messages[number]
    route, size, weight = np.int64(row.route), row.bytes, row.weight
    delay = np.int64(0)
    if waited == NO_EXTRA:
        delay = entrance(sim, route, size)
    if delay > 0:
        post(sim, sim.world[0].now + delay, MESSAGE, number, _HAS_WAITED)
    else:
        start(sim, route, size, weight, number, np.int64(-1))


@kernel
def advance(horizon, budget, sim):
    """Advance until something is in the outbox, the horizon is reached, or nothing is left.

    `horizon`: nothing after this time (ps) is done.
    `budget`: stop at the end of the instant in which this many events are used up, so that somebody can be told of the
        progress. The end of a flow counts as an event, and so does a change of a rate.
    Returns: IDLE, HORIZON, COMPLETIONS, LANES or PAUSED of `fabricsim.engine.program.dispatch`. All that happens at one
        instant is done before rates are set anew, once; only LANES stops within an instant, and may be called again.
    """
    world = sim.world[0]
    tree = sim.tree
    budget += world.events + world.rate_updates
    while True:
        now = min(next_time(sim), tree[1])
        if now == NEVER:
            return IDLE
        if now > horizon:
            return HORIZON
        world.now = now
        while True:
            lane, connection = np.int64(-1), np.int64(-1)
            if has_event_at(sim, now):
                todo, target, extra = handle(sim)
                if todo == RUN:
                    lane = target
                elif todo == START:
                    lane, connection = target, extra
                elif todo == NO_LANES:
                    return LANES
                elif todo == ENTER:
                    route = np.int64(sim.connections[extra].route)
                    size = sim.inboxes[inbox_of(sim, target, extra)].entering
                    start(sim, route, size, 1.0, target, extra)
                elif todo == POST:
                    _post(sim, target, extra)
            elif tree[1] == now:
                world.events += 1
                _deliver(sim)
            else:
                break
            if lane >= 0:
                _work(sim, lane, connection)
        close_bucket(sim, now)
        settle(sim)
        if world.outbox > 0:
            return COMPLETIONS
        if world.events + world.rate_updates >= budget:
            return PAUSED
