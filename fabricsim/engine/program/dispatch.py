"""Events that mean the same whatever carries messages: ops and calls, and what Python is told of their ends."""

import numpy as np

from fabricsim.engine.program.lane import (
    ARRIVED,
    DELIVERED,
    MESSAGE,
    NO_EXTRA,
    OP_DONE,
    OP_START,
    REDUCED,
    RESUME,
    SEND,
    join,
    lanes_fit,
    lanes_per_channel,
    open_call,
)
from fabricsim.engine.program.queue import post, take
from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.program import COLLECTIVE

# What the main loop of an engine, `advance`, stopped for.
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

_LAUNCHED = np.int64(1)  # extra of an OP_START whose kernel has been launched


@kernel
def _start_collective(sim, op):
    """Let a rank join its call; returns False if there are too few lanes or inboxes for the call."""
    ops, calls, communicators = sim.ops, sim.calls, sim.communicators
    call = np.int64(ops[op].call)
    if calls[call].first_lane < 0:
        communicator = communicators[calls[call].communicator]
        template = sim.templates[communicator.template]
        wanted = lanes_per_channel(template) * communicator.channels
        if not lanes_fit(sim, wanted, wanted * template.inboxes):
            return False
        open_call(sim, call)
    if communicators[calls[call].communicator].start == 0:
        sim.spans[op].start = sim.world[0].now
    member = np.int64(ops[op].member)
    join(sim, op, call, member)
    return True


@kernel
def report(sim, kind, number):
    """Tell of the end of a job or message."""
    world, outbox = sim.world[0], sim.outbox
    outbox[world.outbox].kind = kind
    outbox[world.outbox].number = number
    world.outbox += 1


@kernel
def _release(sim, op):
    """Note the end of an op, and start those that waited for it."""
    world = sim.world[0]
    ops, jobs = sim.ops, sim.jobs
    now = world.now
    sim.spans[op].end = now
    world.dag_nodes += 1
    for i in range(ops[op].successors):
        after = sim.successors[ops[op].first_successor + i]
        ops[after].predecessors -= 1
        if ops[after].predecessors == 0:
            post(sim, now, OP_START, after, NO_EXTRA)
    job = sim.job_of_op[op]
    jobs[job].open_ops -= 1
    if jobs[job].open_ops == 0:
        jobs[job].ended = now
        report(sim, JOB_DONE, job)


@kernel
def _note_delivery(sim, message):
    """Report a message from outside, or count it in its batch."""
    world = sim.world[0]
    jobs, messages = sim.jobs, sim.messages
    batch = np.int64(messages[message].batch)
    if batch < 0:
        report(sim, MESSAGE_DONE, message)
        return
    messages[message].ended = world.now
    world.dag_nodes += 1
    jobs[batch].ended = world.now
    jobs[batch].open_ops -= 1
    if jobs[batch].open_ops == 0:
        report(sim, JOB_DONE, batch)


@inlined
def handle(sim):
    """Take the earliest event, and do what it takes but for the network's part.

    Returns: what is left to do, with its target and extra: RUN (a lane), START (a lane, its connection), POST (a
        message from outside, extra of its event), an event that only one engine knows (its kind), NOTHING, or NO_LANES.
    """
    world = sim.world[0]
    ops, spans, calls = sim.ops, sim.spans, sim.calls
    communicators, lanes = sim.communicators, sim.lanes
    now = world.now
    kind, target, extra = take(sim)
    world.events += 1
    if kind == ARRIVED:
        sim.inboxes[lanes[target].first_inbox + extra].arrived += 1
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
        _note_delivery(sim, target)
    elif kind == OP_DONE:
        _release(sim, target)
    elif kind != OP_START:
        return kind, target, extra
    elif ops[target].kind != COLLECTIVE:
        spans[target].start = now
        post(sim, now + ops[target].duration, OP_DONE, target, NO_EXTRA)
    elif extra == NO_EXTRA and communicators[calls[ops[target].call].communicator].start > 0:
        spans[target].start = now
        launched = now + communicators[calls[ops[target].call].communicator].start
        post(sim, launched, OP_START, target, _LAUNCHED)
    elif not _start_collective(sim, target):
        post(sim, now, OP_START, target, extra)
        world.events -= 1
        return NO_LANES, target, extra
    return NOTHING, target, extra
