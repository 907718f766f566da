"""Lanes: the members of live collective calls, each working through its script.

A lane is one member of a call on one channel, NCCL's thread block: in every round it goes through
the steps of its script, and in each step first receives, then sends. It has sent when the message is
in the connection's FIFO, which holds as many as the world's window, and goes on; messages of a
connection leave one after the other. (NCCL's kernel, protocol Simple: src/collectives/device/prims_simple.h
waits for a free slot, copies and posts; only sends from registered buffers wait for the proxy.)
Memory is taken when the first member of a call joins and given back when the last one is done.
"""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.kernels.queue import post

# Kinds of events; int64, for numba compiles a function anew for each plain integer that it is given.
OP_START = np.int64(0)
OP_DONE = np.int64(1)
ARRIVED = np.int64(2)  # target: receiving lane; extra: inbox
RESUME = np.int64(3)  # target: lane
SEND = np.int64(4)  # target: lane whose send overhead is over; extra: connection
MESSAGE = np.int64(5)  # target: external message whose send overhead is over; extra: whether it has waited for the wire
DELIVERED = np.int64(6)  # target: external message
ENTER = np.int64(7)  # target: lane whose message takes to the wire; extra: connection
NO_EXTRA = np.int64(0)

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
    """Whether a block for `wanted` lanes is free, or fits into a table of `lane_count`."""
    c = block_class(wanted)
    return free_blocks[c] >= 0 or world[0].next_lane + (1 << c) <= lane_count


@kernel
def cut(size, parts, index):
    """Bytes of part `index` where `size` is cut into `parts` on whole bytes; none is lost.

    ``size * (index + 1) // parts - size * index // parts``, in a form that cannot overflow.
    """
    share = size // parts
    rest = size - share * parts
    if rest == 0:
        return share
    return share + rest * (index + 1) // parts - rest * index // parts


@kernel
def shard_bytes(size, channels, channel, shards, chunk, turn, shard):
    """Bytes of one shard in one round of one channel.

    A call's buffer is cut into `channels` parts, each part into rounds of at most ``shards * chunk``
    bytes, each round into `shards`; every cut falls on whole bytes and none is lost.
    """
    return _piece(cut(size, channels, channel), shards, chunk, turn, shard)


@kernel
def _piece(part, shards, chunk, turn, shard):
    in_round = min(part - turn * shards * chunk, shards * chunk)
    return cut(in_round, shards, shard)


@kernel
def _take_lanes(world, lanes, free_blocks, wanted):
    """Take a block for `wanted` lanes; returns its first lane and its class."""
    c = block_class(wanted)
    first = np.int64(free_blocks[c])
    if first >= 0:
        free_blocks[c] = lanes[first].next_free
    else:
        first = np.int64(world[0].next_lane)
        world[0].next_lane = first + (1 << c)
    return first, c


@kernel
def open_call(world, calls, communicators, templates, scripts, lanes, inboxes, free_blocks, call):
    """Take lanes for all members and channels of a call."""
    communicator = communicators[calls[call].communicator]
    template = templates[communicator.template]
    members = np.int64(template.members)
    first, block = _take_lanes(world, lanes, free_blocks, members * communicator.channels)
    calls[call].first_lane = first
    calls[call].block = block
    size = calls[call].bytes
    round_bytes = template.shards * calls[call].chunk
    largest = -(-size // communicator.channels)
    for channel in range(communicator.channels):
        for member in range(members):
            place = channel * members + member
            lane = first + place
            script = scripts[template.first_script + (0 if template.symmetric else member)]
            lanes[lane].call = call
            lanes[lane].member = member
            lanes[lane].peers = first + channel * members
            lanes[lane].home = first + member
            lanes[lane].first_connection = communicator.first_connection + place * template.connections
            lanes[lane].first_step = script.first_step
            lanes[lane].steps = script.steps
            lanes[lane].part = cut(size, np.int64(communicator.channels), np.int64(channel))
            lanes[lane].op = -1
            lanes[lane].open = communicator.channels
            lanes[lane].step = 0
            lanes[lane].turn = 0
            lanes[lane].turns = max(1, -(-largest // round_bytes))
            lanes[lane].received = 0
            lanes[lane].sending = 0
            lanes[lane].blocked = 0
            for k in range(template.inboxes):
                inbox = lane * world[0].inboxes + k
                inboxes[inbox].sent = 0
                inboxes[inbox].arrived = 0
                inboxes[inbox].consumed = 0
                inboxes[inbox].moving = 0
                inboxes[inbox].queued = -1


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
    first = np.int64(calls[call].first_lane)
    now = world[0].now
    calls[call].joined += 1
    if calls[call].joined == template.members:
        calls[call].started = now
    lanes[first + member].op = op
    for channel in range(communicator.channels):
        base = first + channel * template.members
        post(world, events, buckets, now, RESUME, base + member, NO_EXTRA)
        for k in range(template.inboxes):
            source = sources[communicator.first_source + member * template.inboxes + k]
            if source >= 0 and lanes[base + source].blocked:
                lanes[base + source].blocked = 0
                post(world, events, buckets, now, RESUME, base + source, NO_EXTRA)


@kernel
def _finish_lane(world, events, buckets, calls, communicators, templates, lanes, free_blocks, lane):
    call = lanes[lane].call
    home = lanes[lane].home
    lanes[home].open -= 1
    if lanes[home].open > 0:
        return
    post(world, events, buckets, world[0].now, OP_DONE, np.int64(lanes[home].op), NO_EXTRA)
    calls[call].finished += 1
    if calls[call].finished == templates[communicators[calls[call].communicator].template].members:
        _close_call(world, calls, lanes, free_blocks, call)


@kernel
def _wake_sender(world, events, buckets, calls, communicators, templates, sources, lanes, lane, k):
    """Wake the sender of an inbox if it waited for a free buffer."""
    communicator = communicators[calls[lanes[lane].call].communicator]
    template = templates[communicator.template]
    source = sources[communicator.first_source + lanes[lane].member * template.inboxes + k]
    sender = np.int64(lanes[lane].peers + source)
    if lanes[sender].blocked:
        lanes[sender].blocked = 0
        post(world, events, buckets, world[0].now, RESUME, sender, NO_EXTRA)


@kernel
def run_lane(
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
):
    """Go through a lane's script until it must wait; returns the connection to send on, or -1."""
    if lanes[lane].sending or lanes[lane].turn >= lanes[lane].turns or lanes[lanes[lane].home].op < 0:
        return -1
    stride = world[0].inboxes
    while True:
        if lanes[lane].step == lanes[lane].steps:
            lanes[lane].step = 0
            lanes[lane].turn += 1
            if lanes[lane].turn >= lanes[lane].turns:
                _finish_lane(world, events, buckets, calls, communicators, templates, lanes, free_blocks, lane)
                return -1
        step = steps[lanes[lane].first_step + lanes[lane].step]
        if step.wait >= 0 and not lanes[lane].received:
            inbox = lane * stride + step.wait
            if inboxes[inbox].arrived < lanes[lane].turn * step.per_turn + step.needed:
                return -1
            lanes[lane].received = 1
            inboxes[inbox].consumed += 1
            _wake_sender(
                world, events, buckets, calls, communicators, templates, sources, lanes, lane, np.int64(step.wait)
            )
        if step.send >= 0:
            place = np.int64(lanes[lane].first_connection + step.send)
            member = connections[place].member
            inbox = (lanes[lane].peers + member) * stride + connections[place].inbox
            joined = lanes[lanes[lane].home - lanes[lane].member + member].op >= 0
            if not joined or inboxes[inbox].sent - inboxes[inbox].consumed >= world[0].window:
                lanes[lane].blocked = 1
                return -1
            inboxes[inbox].sent += 1
            lanes[lane].sending = 1
            return place
        lanes[lane].step += 1
        lanes[lane].received = 0


@kernel
def message_bytes(calls, communicators, templates, steps, lanes, lane):
    """Size of what a lane sends in its present step, bytes."""
    call = calls[lanes[lane].call]
    communicator = communicators[call.communicator]
    template = templates[communicator.template]
    shard = np.int64(steps[lanes[lane].first_step + lanes[lane].step].shard)
    if template.relative:
        shard += lanes[lane].member  # both are below the number of shards
        if shard >= template.shards:
            shard -= template.shards
    payload = _piece(lanes[lane].part, np.int64(template.shards), call.chunk, lanes[lane].turn, shard)
    if communicator.line == 1:
        return payload
    return -(-payload // communicator.line_payload) * communicator.line


@kernel
def inbox_of(world, connections, lanes, lane, connection):
    """Find the inbox that a lane's connection leads to."""
    receiver = np.int64(lanes[lane].peers + connections[connection].member)
    return receiver * world[0].inboxes + connections[connection].inbox


@kernel
def sent(connections, lanes, lane, connection):
    """Step on after a lane has handed its message to a connection; returns the receiving lane."""
    lanes[lane].sending = 0
    lanes[lane].received = 0
    lanes[lane].step += 1
    return np.int64(lanes[lane].peers + connections[connection].member)
