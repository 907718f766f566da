"""Lanes: the members of live collective calls, each working through its script.

A lane is one member of a call on one channel, NCCL's thread block: in every round it goes through
the steps of its script, and in each step first receives, then sends. If an algorithm lets a member do
things side by side, such as to reduce a chunk while it passes on another, it has several lanes, its strands;
a switch that reduces or copies has a lane of its own, which nobody waits for. It has sent when the message is
in the connection's FIFO, which holds as many as the communicator's window, and goes on; messages of a
connection leave one after the other. (NCCL's kernel, protocol Simple: src/collectives/device/prims_simple.h
waits for a free slot, copies and posts; only sends from registered buffers wait for the proxy.)
Memory is taken when the first member of a call joins and given back when the last one is done.
"""

import math

import numpy as np

from fabricsim.engine.program.queue import post
from fabricsim.jit.compile import kernel

# Kinds of events; int64, for numba compiles a function anew for each plain integer that it is given.
OP_START = np.int64(0)
OP_DONE = np.int64(1)
ARRIVED = np.int64(2)  # target: receiving lane; extra: inbox
RESUME = np.int64(3)  # target: lane
SEND = np.int64(4)  # target: lane whose send overhead is over; extra: connection
MESSAGE = np.int64(5)  # target: external message whose send overhead is over; extra: whether it has waited for the wire
DELIVERED = np.int64(6)  # target: external message
ENTER = np.int64(7)  # target: lane whose message takes to the wire; extra: connection
REDUCED = np.int64(8)  # target: lane that has reduced what it received
NO_EXTRA = np.int64(0)

CLASSES = 32
"""Blocks of lanes and of inboxes come in powers of two; there is a free list for each, first those of lanes."""

LACKS_LANES = 1
LACKS_INBOXES = 2
_NO_OP = np.int32(2**31 - 1)  # op of a switch
_REDUCING = np.int8(2)
ALL = np.int64(0)


@kernel
def block_class(lanes):
    """Smallest ``c`` with ``2**c >= lanes``."""
    c = 0
    while (1 << c) < lanes:
        c += 1
    return c


@kernel
def lanes_per_channel(template):
    """Lanes of all members and switches on one channel."""
    return np.int64(template.members) * template.strands + template.switches


@kernel
def lanes_fit(sim, wanted, inboxes):
    """Whether blocks for `wanted` lanes and so many `inboxes` are free, or fit into the tables."""
    world = sim.world[0]
    free_blocks = sim.free_blocks
    c, k = block_class(wanted), block_class(inboxes)
    if free_blocks[c] < 0 and world.next_lane + (1 << c) > len(sim.lanes):
        world.lacks = LACKS_LANES
        return False
    if free_blocks[CLASSES + k] < 0 and world.next_inbox + (1 << k) > len(sim.inboxes):
        world.lacks = LACKS_INBOXES
        return False
    return True


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
def _before(size, parts, index):
    """Bytes of the parts before `index`, as `cut` cuts them."""
    share = size // parts
    return share * index + (size - share * parts) * index // parts


@kernel
def _in_a_row(size, parts, first, count):
    """Bytes of `count` parts from `first` on; after the last comes the first again."""
    end = first + count
    if end <= parts:
        return _before(size, parts, end) - _before(size, parts, first)
    return size - _before(size, parts, first) + _before(size, parts, end - parts)


@kernel
def shards_bytes(size, parts, first, count, run, every):
    """Bytes of `count` of the `parts` of a round, from `first` on: all in a row, or in rows of `run`."""
    if count == 1:
        return cut(size, parts, first)
    if run == ALL:
        return _in_a_row(size, parts, first, count)
    total = np.int64(0)
    while count > 0:
        total += _in_a_row(size, parts, first, min(run, count))
        first = (first + every) % parts
        count -= run
    return total


@kernel
def round_bytes(part, shards, chunk, turn):
    """Bytes of one round of one channel.

    A call's buffer is cut into one part per channel, each part into rounds of at most ``shards * chunk``
    bytes, each round into `shards`; every cut falls on whole bytes and none is lost.
    """
    return min(part - turn * shards * chunk, shards * chunk)


@kernel
def _take_lanes(sim, wanted):
    """Take a block for `wanted` lanes; returns its first lane and its class."""
    world = sim.world[0]
    free_blocks = sim.free_blocks
    c = block_class(wanted)
    first = np.int64(free_blocks[c])
    if first >= 0:
        free_blocks[c] = sim.lanes[first].call
    else:
        first = np.int64(world.next_lane)
        world.next_lane = first + (1 << c)
    return first, c


@kernel
def _take_inboxes(sim, wanted):
    """Take a block for `wanted` inboxes; returns the first."""
    world = sim.world[0]
    free_blocks = sim.free_blocks
    c = block_class(wanted)
    first = np.int64(free_blocks[CLASSES + c])
    if first >= 0:
        free_blocks[CLASSES + c] = sim.inboxes[first].sent
    else:
        first = np.int64(world.next_inbox)
        world.next_inbox = first + (1 << c)
    return first


@kernel
def open_call(sim, call):
    """Take lanes and inboxes for all members and channels of a call."""
    calls, lanes, inboxes = sim.calls, sim.lanes, sim.inboxes
    communicator = sim.communicators[calls[call].communicator]
    template = sim.templates[communicator.template]
    members = np.int64(template.members)
    per_channel = lanes_per_channel(template)
    of_members = members * template.strands
    total = per_channel * communicator.channels
    first, block = _take_lanes(sim, total)
    first_inbox = _take_inboxes(sim, total * template.inboxes)
    calls[call].first_lane = first
    calls[call].block = block
    size = calls[call].bytes
    in_turn = template.shards * calls[call].chunk
    largest = -(-size // communicator.channels)
    for channel in range(communicator.channels):
        for number in range(per_channel):
            place = channel * per_channel + number
            lane = first + place
            member = number % members
            script = sim.scripts[template.first_script + (0 if template.symmetric else number)]
            lanes[lane].call = call
            lanes[lane].member = member
            lanes[lane].peers = first + channel * per_channel
            lanes[lane].home = first + member
            lanes[lane].first_connection = communicator.first_connection + place * template.connections
            lanes[lane].first_inbox = first_inbox + place * template.inboxes
            lanes[lane].first_step = script.first_step
            lanes[lane].steps = script.steps
            lanes[lane].part = cut(size, np.int64(communicator.channels), np.int64(channel))
            lanes[lane].op = -1
            lanes[lane].open = communicator.channels * template.strands
            lanes[lane].step = 0
            lanes[lane].turn = 0
            lanes[lane].turns = max(1, -(-largest // in_turn))
            lanes[lane].received = 0
            lanes[lane].sending = 0
            lanes[lane].blocked = 0
            if number >= of_members:  # a switch, which has joined already
                lanes[lane].home = lane
                lanes[lane].op = _NO_OP
                lanes[lane].open = 1
    for inbox in range(first_inbox, first_inbox + total * template.inboxes):
        inboxes[inbox].sent = 0
        inboxes[inbox].arrived = 0
        inboxes[inbox].consumed = 0
        inboxes[inbox].moving = 0
        inboxes[inbox].waiting = 0
        inboxes[inbox].head = 0


@kernel
def _close_call(sim, call):
    calls, lanes, free_blocks = sim.calls, sim.lanes, sim.free_blocks
    communicator = sim.communicators[calls[call].communicator]
    template = sim.templates[communicator.template]
    c = calls[call].block
    first = calls[call].first_lane
    first_inbox = lanes[first].first_inbox
    lanes[first].call = free_blocks[c]
    free_blocks[c] = first
    k = CLASSES + block_class(lanes_per_channel(template) * communicator.channels * template.inboxes)
    sim.inboxes[first_inbox].sent = free_blocks[k]
    free_blocks[k] = first_inbox
    calls[call].first_lane = -1
    calls[call].ended = sim.world[0].now


@kernel
def join(sim, op, call, member):
    """Let a member take part: its own lanes start, and so do senders that waited for it."""
    calls, lanes = sim.calls, sim.lanes
    communicator = sim.communicators[calls[call].communicator]
    template = sim.templates[communicator.template]
    first = np.int64(calls[call].first_lane)
    per_channel = lanes_per_channel(template)
    now = sim.world[0].now
    calls[call].joined += 1
    if calls[call].joined == template.members:
        calls[call].started = now - communicator.start  # when the last rank began
    lanes[first + member].op = op
    for channel in range(communicator.channels):
        base = first + channel * per_channel
        for strand in range(template.strands):
            number = strand * template.members + member
            post(sim, now, RESUME, base + number, NO_EXTRA)
            for k in range(template.inboxes):
                source = sim.sources[communicator.first_source + number * template.inboxes + k]
                if source >= 0 and lanes[base + source].blocked:
                    lanes[base + source].blocked = 0
                    post(sim, now, RESUME, base + source, NO_EXTRA)


@kernel
def _finish_lane(sim, lane):
    calls, lanes = sim.calls, sim.lanes
    call = np.int64(lanes[lane].call)
    home = lanes[lane].home
    lanes[home].open -= 1
    if lanes[home].open > 0:
        return
    if lanes[home].op != _NO_OP:
        post(sim, sim.world[0].now, OP_DONE, np.int64(lanes[home].op), NO_EXTRA)
    calls[call].finished += 1
    communicator = sim.communicators[calls[call].communicator]
    template = sim.templates[communicator.template]
    if calls[call].finished == template.members + template.switches * communicator.channels:
        _close_call(sim, call)


@kernel
def _take(sim, lane, k):
    """Take a message out of an inbox; wakes its sender if it waited for a free buffer."""
    lanes = sim.lanes
    sim.inboxes[lanes[lane].first_inbox + k].consumed += 1
    lanes[lane].received = 1
    communicator = sim.communicators[sim.calls[lanes[lane].call].communicator]
    template = sim.templates[communicator.template]
    number = lane - lanes[lane].peers
    source = sim.sources[communicator.first_source + number * template.inboxes + k]
    sender = np.int64(lanes[lane].peers + source)
    if lanes[sender].blocked:
        lanes[sender].blocked = 0
        post(sim, sim.world[0].now, RESUME, sender, NO_EXTRA)


@kernel
def _work(sim, step, lane):
    """Time to reduce what a lane has received with its own, and to copy out what it does not pass on, ps."""
    lanes = sim.lanes
    call = sim.calls[lanes[lane].call]
    communicator = sim.communicators[call.communicator]
    per_byte = communicator.reduction if step.reduce > 0 else 0.0
    if step.send < 0:
        per_byte += communicator.copying
    if per_byte == 0.0 or lanes[lane].op == _NO_OP:
        return np.int64(0)
    shards = max(np.int64(step.reduce), np.int64(1))
    size = _present_bytes(sim, communicator, call.chunk, lane, step.into, shards, ALL, ALL)
    return np.int64(math.ceil(size * per_byte))


@kernel
def run_lane(sim, lane):
    """Go through a lane's script until it must wait; returns the connection to send on, or -1."""
    world = sim.world[0]
    connections, lanes, inboxes = sim.connections, sim.lanes, sim.inboxes
    if lanes[lane].sending or lanes[lane].turn >= lanes[lane].turns or lanes[lanes[lane].home].op < 0:
        return -1
    while True:
        while lanes[lane].step == lanes[lane].steps:
            lanes[lane].step = 0
            lanes[lane].turn += 1
            if lanes[lane].turn >= lanes[lane].turns:
                _finish_lane(sim, lane)
                return -1
        step = sim.steps[lanes[lane].first_step + lanes[lane].step]
        if step.wait >= 0 and lanes[lane].received != 1:
            if lanes[lane].received == 0:
                arrived = inboxes[lanes[lane].first_inbox + step.wait].arrived
                if arrived < lanes[lane].turn * step.per_turn + step.needed:
                    return -1
                if step.reduce > 0 or step.send < 0:
                    delay = _work(sim, step, lane)
                    if delay > 0:
                        lanes[lane].received = _REDUCING
                        lanes[lane].sending = 1
                        post(sim, world.now + delay, REDUCED, lane, NO_EXTRA)
                        return -1
            wait = np.int64(step.wait)
            _take(sim, lane, wait)
        if step.send >= 0:
            place = np.int64(lanes[lane].first_connection + step.send)
            receiver = np.int64(lanes[lane].peers + connections[place].member)
            inbox = lanes[receiver].first_inbox + connections[place].inbox
            joined = lanes[lanes[receiver].home].op >= 0
            window = sim.communicators[sim.calls[lanes[lane].call].communicator].window
            if not joined or inboxes[inbox].sent - inboxes[inbox].consumed >= window:
                lanes[lane].blocked = 1
                return -1
            inboxes[inbox].sent += 1
            if connections[place].route >= 0:
                lanes[lane].sending = 1
                return place
            post(sim, world.now, ARRIVED, receiver, np.int64(connections[place].inbox))
        lanes[lane].step += 1
        lanes[lane].received = 0


@kernel
def _present_bytes(sim, communicator, chunk, lane, shard, count, run, every):
    """Bytes of `count` shards from `shard` on in a lane's present round."""
    lanes = sim.lanes
    template = sim.templates[communicator.template]
    first, shards = np.int64(shard), np.int64(template.shards)
    if template.relative:
        first += lanes[lane].member
    if first >= shards:
        first %= shards
    size = round_bytes(lanes[lane].part, shards, chunk, lanes[lane].turn)
    return shards_bytes(size, shards, first, np.int64(count), run, every)


@kernel
def message_bytes(sim, lane, connection):
    """Size of what a lane sends in its present step on a connection, bytes."""
    lanes = sim.lanes
    call = sim.calls[lanes[lane].call]
    communicator = sim.communicators[call.communicator]
    step = sim.steps[lanes[lane].first_step + lanes[lane].step]
    run, every = np.int64(step.run), np.int64(step.every)
    payload = _present_bytes(sim, communicator, call.chunk, lane, step.shard, step.shards, run, every)
    if communicator.line == 1 or (communicator.within and sim.routes[sim.connections[connection].route].out_hops > 0):
        return payload
    return -(-payload // communicator.line_payload) * communicator.line


@kernel
def inbox_of(sim, lane, connection):
    """Find the inbox that a lane's connection leads to."""
    connections, lanes = sim.connections, sim.lanes
    receiver = np.int64(lanes[lane].peers + connections[connection].member)
    return np.int64(lanes[receiver].first_inbox + connections[connection].inbox)


@kernel
def sent(sim, lane, connection):
    """Step on after a lane has handed its message to a connection; returns the receiving lane."""
    lanes = sim.lanes
    lanes[lane].sending = 0
    lanes[lane].received = 0
    lanes[lane].step += 1
    return np.int64(lanes[lane].peers + sim.connections[connection].member)
