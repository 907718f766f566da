"""FIFOs of packets: chunks of a common pool, so that a queue takes what it holds and no more.

A FIFO is any record with columns ``head``, ``tail`` (places of its first and last packet) and
``count``. An emptied one keeps its chunk and starts it anew, which keeps it in the cache.
"""

import numpy as np

from fabricsim.jit.compile import inlined, kernel
from fabricsim.records.packet import CHUNK

_LAST = CHUNK - 1
_SHIFT = CHUNK.bit_length() - 1


@kernel
def _take_chunk(net):
    world = net.world[0]
    chunk = np.int64(world.free_chunk)
    world.free_chunk = net.chunk_next[chunk]
    world.chunks -= 1
    return chunk


@inlined
def push(net, fifo):
    """Take a place at the end of a FIFO; the caller fills it."""
    count = fifo.count
    fifo.count = count + 1
    if count == 0:
        place = np.int64(fifo.head)
        place = _take_chunk(net) * CHUNK if place < 0 else place & ~_LAST
        fifo.head = place
    else:
        place = np.int64(fifo.tail) + 1
        if place & _LAST == 0:
            chunk = _take_chunk(net)
            net.chunk_next[(place - 1) >> _SHIFT] = chunk
            place = chunk * CHUNK
    fifo.tail = place
    return place


@inlined
def following(net, place):
    """Place after one of the same FIFO."""
    if place & _LAST != _LAST:
        return place + 1
    return np.int64(net.chunk_next[place >> _SHIFT]) << _SHIFT


@inlined
def leave(net, place):
    """As `following`, of a place that is left; a chunk left behind keeps its content until `free_left`."""
    if place & _LAST != _LAST:
        return place + 1
    chunk = place >> _SHIFT
    place = np.int64(net.chunk_next[chunk]) << _SHIFT
    world = net.world[0]
    if world.chunks_left == 0:
        world.last_left = chunk
    net.chunk_next[chunk] = world.first_left
    world.first_left = chunk
    world.chunks_left += 1
    return place


@inlined
def free_left(net):
    """Free all chunks left behind."""
    world = net.world[0]
    if world.chunks_left > 0:
        net.chunk_next[world.last_left] = world.free_chunk
        world.free_chunk = world.first_left
        world.chunks += world.chunks_left
        world.chunks_left = 0


@inlined
def pop(net, fifo):
    """Remove the first packet; a chunk left behind is free, and keeps its content until the next `push`."""
    fifo.count -= 1
    if fifo.count == 0:
        return
    place = np.int64(fifo.head)
    fifo.head = following(net, place)
    if place & _LAST == _LAST:
        chunk = place >> _SHIFT
        world = net.world[0]
        net.chunk_next[chunk] = world.free_chunk
        world.free_chunk = chunk
        world.chunks += 1
