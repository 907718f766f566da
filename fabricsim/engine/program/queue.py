"""Time order: a bucketed event queue, and a tournament tree of flow finish times.

Synchronised collectives make thousands of events fall on one picosecond, so the queue holds one
bucket per distinct time: a hash finds the bucket, a binary heap orders buckets, and within a bucket
events keep the order in which they were posted.
"""

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NEVER


@kernel
def _hash(sim, time):
    # Folded, not multiplied: the same source must run uncompiled, where a product would overflow.
    return (time ^ (time >> 11) ^ (time >> 23) ^ (time >> 37)) & (len(sim.buckets) - 1)


@kernel
def _find(sim, time):
    buckets = sim.buckets
    bucket = np.int64(buckets[_hash(sim, time)].hash)
    while bucket >= 0 and buckets[bucket].time != time:
        bucket = np.int64(buckets[bucket].chain)
    return bucket


@kernel
def _open_bucket(sim, time):
    world = sim.world[0]
    buckets = sim.buckets
    bucket = np.int64(world.free_bucket)
    world.free_bucket = buckets[bucket].chain
    place = _hash(sim, time)
    buckets[bucket].time = time
    buckets[bucket].head = -1
    buckets[bucket].chain = buckets[place].hash
    buckets[place].hash = bucket
    child = world.heap_size
    world.heap_size = child + 1
    while child > 0:
        parent = (child - 1) >> 1
        if buckets[buckets[parent].heap].time < time:
            break
        buckets[child].heap = buckets[parent].heap
        child = parent
    buckets[child].heap = bucket
    return bucket


@kernel
def post(sim, time, kind, target, extra):
    """Put an event at the end of the bucket of `time` (ps).

    `kind`, `target` and `extra` should be int64: numba compiles it once for each mix of widths.
    """
    world = sim.world[0]
    events, buckets = sim.events, sim.buckets
    event = world.free_event
    world.free_event = events[event].next
    events[event].kind = kind
    events[event].target = target
    events[event].extra = extra
    events[event].next = -1
    bucket = np.int64(world.recent_bucket) - 1  # synchronised senders post to one instant in a row
    if bucket < 0 or buckets[bucket].time != time:
        bucket = _find(sim, time)
        if bucket < 0:
            bucket = _open_bucket(sim, time)
        world.recent_bucket = bucket + 1
    if buckets[bucket].head < 0:
        buckets[bucket].head = event
    else:
        events[buckets[bucket].tail].next = event
    buckets[bucket].tail = event


@kernel
def next_time(sim):
    """Time of the earliest event, ps; NEVER if there is none."""
    buckets = sim.buckets
    if sim.world[0].heap_size == 0:
        return NEVER
    return buckets[buckets[0].heap].time


@kernel
def take(sim):
    """Remove the earliest event; returns its kind, target and extra.

    The emptied bucket stays until `close_bucket`, so that events posted at the same instant join it.
    """
    world = sim.world[0]
    events, buckets = sim.events, sim.buckets
    bucket = buckets[0].heap
    event = buckets[bucket].head
    buckets[bucket].head = events[event].next
    events[event].next = world.free_event
    world.free_event = event
    return np.int64(events[event].kind), np.int64(events[event].target), np.int64(events[event].extra)


@kernel
def has_event_at(sim, time):
    """Whether the earliest bucket is that of `time` and still holds an event."""
    buckets = sim.buckets
    if sim.world[0].heap_size == 0:
        return False
    bucket = buckets[0].heap
    return buckets[bucket].time == time and buckets[bucket].head >= 0


@kernel
def close_bucket(sim, time):
    """Remove the emptied bucket of `time`, if it is the earliest."""
    world = sim.world[0]
    buckets = sim.buckets
    if world.heap_size == 0 or buckets[buckets[0].heap].time != time:
        return
    bucket = buckets[0].heap
    if world.recent_bucket == bucket + 1:
        world.recent_bucket = 0
    place = _hash(sim, time)
    if buckets[place].hash == bucket:
        buckets[place].hash = buckets[bucket].chain
    else:
        before = buckets[place].hash
        while buckets[before].chain != bucket:
            before = buckets[before].chain
        buckets[before].chain = buckets[bucket].chain
    buckets[bucket].chain = world.free_bucket
    world.free_bucket = bucket
    size = world.heap_size - 1
    world.heap_size = size
    if size == 0:
        return
    last = buckets[size].heap
    key = buckets[last].time
    hole = 0
    child = 1
    while child < size:
        if child + 1 < size and buckets[buckets[child + 1].heap].time < buckets[buckets[child].heap].time:
            child += 1
        if buckets[buckets[child].heap].time >= key:
            break
        buckets[hole].heap = buckets[child].heap
        hole = child
        child = 2 * hole + 1
    buckets[hole].heap = last


@kernel
def set_finish(tree, flow, time):
    """Set the finish time of a flow; `tree` has two entries per flow slot, the winner at 1."""
    node = (len(tree) >> 1) + flow
    tree[node] = time
    node >>= 1
    while node > 0:
        winner = min(tree[2 * node], tree[2 * node + 1])
        if tree[node] == winner:
            break
        tree[node] = winner
        node >>= 1


@kernel
def first_finisher(tree):
    """Return the lowest-numbered flow that finishes at ``tree[1]``."""
    leaves = len(tree) >> 1
    node = 1
    while node < leaves:
        node *= 2
        if tree[node] != tree[node >> 1]:
            node += 1
    return node - leaves


@kernel
def rehash(sim):
    """Rebuild hash chains and free list after the table has grown."""
    world = sim.world[0]
    buckets = sim.buckets
    count = len(buckets)
    for i in range(count):
        buckets[i].hash = -1
        buckets[i].chain = -2
    for i in range(world.heap_size):
        bucket = buckets[i].heap
        place = _hash(sim, buckets[bucket].time)
        buckets[bucket].chain = buckets[place].hash
        buckets[place].hash = bucket
    world.free_bucket = -1
    for i in range(count - 1, -1, -1):
        if buckets[i].chain == -2:  # noqa: PLR2004  set above: not in the heap
            buckets[i].chain = world.free_bucket
            world.free_bucket = i
