"""Lanes: the members of live collective calls, each working through its script.

A lane is one member of a call on one channel, NCCL's thread block: in every round it goes through
the steps of its script, and in each step first receives, then sends. Memory is taken when the first
member of a call joins and given back when the last one is done.
"""

from __future__ import annotations

from fabricsim.kernels._jit import kernel
from fabricsim.kernels.queue import post

# Kinds of events.
OP_START = 0
OP_DONE = 1
ARRIVED = 2  # target: receiving lane; extra: inbox
RESUME = 3  # target: lane
SEND = 4  # target: lane whose send overhead is over
MESSAGE = 5  # target: external message whose send overhead is over
DELIVERED = 6  # target: external message

CLASSES = 32
"""Blocks of lanes come in powers of two; there is a free list for each."""


@kernel
def block_class(lanes):
    """Smallest ``c`` with ``2**c >= lanes``."""
    c = 0
    while (1 << c) < lanes:
        c += 1
    return c


@kernel
def lanes_fit(world, free_blocks, lane_count, wanted):
    """Whether a block for `wanted` lanes can be had without growing."""
    c = block_class(wanted)
    return free_blocks[c] >= 0 or world[0].next_lane + (1 << c) <= lane_count


@kernel
def shard_bytes(size, channels, channel, shards, chunk, turn, shard):
    """Bytes of one shard in one round of one channel.

    A call's buffer is cut into `channels` parts, each part into rounds of at most ``shards * chunk``
    bytes, each round into `shards`; every cut falls on whole bytes and none is lost.
    """
    part = size * (channel + 1) // channels - size * channel // channels
    in_round = min(part - turn * shards * chunk, shards * chunk)
    return in_round * (shard + 1) // shards - in_round * shard // shards


@kernel
def open_call(world, calls, communicators, templates, lanes, inboxes, free_blocks, call):
    """Take lanes for all members and channels of a call."""
    communicator = communicators[calls[call].communicator]
    template = templates[communicator.template]
    wanted = template.members * communicator.channels
    c = block_class(wanted)
    first = free_blocks[c]
    if first >= 0:
        free_blocks[c] = lanes[first].next_free
    else:
        first = world[0].next_lane
        world[0].next_lane = first + (1 << c)
    calls[call].first_lane = first
    calls[call].block = c
    largest = calls[call].bytes - calls[call].bytes * (communicator.channels - 1) // communicator.channels
    rounds = max(1, -(-largest // (template.shards * calls[call].chunk)))
    for channel in range(communicator.channels):
        for member in range(template.members):
            lane = first + channel * template.members + member
            lanes[lane].call = call
            lanes[lane].member = member
            lanes[lane].channel = channel
            lanes[lane].op = -1
            lanes[lane].open = communicator.channels
            lanes[lane].step = 0
            lanes[lane].turn = 0
            lanes[lane].turns = rounds
            lanes[lane].received = 0
            lanes[lane].sending = 0
            lanes[lane].blocked = 0
            for k in range(template.inboxes):
                inbox = lane * world[0].inboxes + k
                inboxes[inbox].sent = 0
                inboxes[inbox].arrived = 0
                inboxes[inbox].consumed = 0


@kernel
def _close_call(world, calls, lanes, free_blocks, call):
    c = calls[call].block
    first = calls[call].first_lane
    lanes[first].next_free = free_blocks[c]
    free_blocks[c] = first
    calls[call].first_lane = -1
    calls[call].ended = world[0].now


@kernel
def join(world, events, buckets, calls, communicators, templates, sources, lanes, op, call, member):
    """Let a member take part: its own lanes start, and so do senders that waited for it."""
    communicator = communicators[calls[call].communicator]
    template = templates[communicator.template]
    first = calls[call].first_lane
    now = world[0].now
    calls[call].joined += 1
    if calls[call].joined == template.members:
        calls[call].started = now
    lanes[first + member].op = op
    for channel in range(communicator.channels):
        base = first + channel * template.members
        post(world, events, buckets, now, RESUME, base + member, 0)
        for k in range(template.inboxes):
            source = sources[communicator.first_source + member * template.inboxes + k]
            if source >= 0 and lanes[base + source].blocked:
                lanes[base + source].blocked = 0
                post(world, events, buckets, now, RESUME, base + source, 0)


@kernel
def _finish_lane(world, events, buckets, calls, templates, communicators, lanes, free_blocks, lane):
    call = lanes[lane].call
    first = calls[call].first_lane
    home = first + lanes[lane].member
    lanes[home].open -= 1
    if lanes[home].open > 0:
        return
    post(world, events, buckets, world[0].now, OP_DONE, lanes[home].op, 0)
    calls[call].finished += 1
    if calls[call].finished == templates[communicators[calls[call].communicator].template].members:
        _close_call(world, calls, lanes, free_blocks, call)


@kernel
def _consume(world, events, buckets, communicators, templates, sources, calls, lanes, inboxes, lane, k):
    """Free one buffer of an inbox and wake its sender if it waited for that."""
    inboxes[lane * world[0].inboxes + k].consumed += 1
    communicator = communicators[calls[lanes[lane].call].communicator]
    template = templates[communicator.template]
    source = sources[communicator.first_source + lanes[lane].member * template.inboxes + k]
    sender = calls[lanes[lane].call].first_lane + lanes[lane].channel * template.members + source
    if lanes[sender].blocked:
        lanes[sender].blocked = 0
        post(world, events, buckets, world[0].now, RESUME, sender, 0)


@kernel
def run_lane(
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
    lane,
):
    """Go through a lane's script until it must wait; returns the connection to send on, or -1."""
    if lanes[lane].sending or lanes[lane].turn >= lanes[lane].turns:
        return -1
    call = lanes[lane].call
    communicator = communicators[calls[call].communicator]
    template = templates[communicator.template]
    member = lanes[lane].member
    base = calls[call].first_lane + lanes[lane].channel * template.members
    if lanes[calls[call].first_lane + member].op < 0:
        return -1
    script = scripts[template.first_script + (0 if template.symmetric else member)]
    while True:
        if lanes[lane].step == script.steps:
            lanes[lane].step = 0
            lanes[lane].turn += 1
            if lanes[lane].turn >= lanes[lane].turns:
                _finish_lane(world, events, buckets, calls, templates, communicators, lanes, free_blocks, lane)
                return -1
        step = steps[script.first_step + lanes[lane].step]
        if step.wait >= 0 and not lanes[lane].received:
            needed = lanes[lane].turn * step.per_turn + step.needed
            if inboxes[lane * world[0].inboxes + step.wait].arrived < needed:
                return -1
            lanes[lane].received = 1
            _consume(
                world, events, buckets, communicators, templates, sources, calls, lanes, inboxes, lane, step.wait
            )
        if step.send >= 0:
            place = (lanes[lane].channel * template.members + member) * template.connections + step.send
            connection = connections[communicator.first_connection + place]
            receiver = base + connection.member
            inbox = receiver * world[0].inboxes + connection.inbox
            joined = lanes[calls[call].first_lane + connection.member].op >= 0
            if not joined or inboxes[inbox].sent - inboxes[inbox].consumed >= world[0].window:
                lanes[lane].blocked = 1
                return -1
            inboxes[inbox].sent += 1
            lanes[lane].sending = 1
            return communicator.first_connection + place
        lanes[lane].step += 1
        lanes[lane].received = 0


@kernel
def message_bytes(calls, communicators, templates, scripts, steps, lanes, lane):
    """Size of what a lane sends in its present step, bytes."""
    call = calls[lanes[lane].call]
    communicator = communicators[call.communicator]
    template = templates[communicator.template]
    member = lanes[lane].member
    script = scripts[template.first_script + (0 if template.symmetric else member)]
    shard = steps[script.first_step + lanes[lane].step].shard
    if template.relative:
        shard = (shard + member) % template.members
    return shard_bytes(
        call.bytes, communicator.channels, lanes[lane].channel, template.shards, call.chunk, lanes[lane].turn, shard
    )
