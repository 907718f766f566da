"""How NCCL cuts a call: ``src/enqueue.cc``, ``computeColl`` of 2.5 and ``calcCollChunking`` after it."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from fabricsim.collectives.choice import FIFO_STEPS
from fabricsim.collectives.nccl.tuning import BUFFER, PAYLOAD

if TYPE_CHECKING:
    from fabricsim.collectives.nccl.choice import Pick
    from fabricsim.collectives.nccl.graph import GroupShape

RING_STEPS = 4
"""Steps of a ring's chunk by Simple: ALLREDUCE_CHUNKSTEPS, src/include/collectives.h."""
_TREE_SIMPLE = ((8, 2**17), (4, 2**16), (1, 2**15))
"""Chunks per channel and level of depth below which a chunk is halved, and how far."""
_TREE_LL128 = ((4, 2**15),)


def chunk(found: Pick, size: int, group: GroupShape) -> int:
    """Most bytes of data that a channel sends at once.

    `found`: what the call runs with.
    `size`: of the call, bytes.
    `group`: of the ranks; a tree cuts finer the deeper it is, so that its levels overlap.
    """
    step = BUFFER[found.protocol] // FIFO_STEPS
    if found.algorithm == "ring":
        return int(step * (RING_STEPS if found.protocol == "simple" else 1) * PAYLOAD[found.protocol])
    if found.protocol == "simple":
        depth = group.ranks // group.hosts - 1 + int(log2(group.hosts))
        step = _halved(step, size // found.channels, depth, _TREE_SIMPLE)
    elif found.protocol == "ll128":
        step = _halved(step, size // found.channels, 1 + int(log2(group.hosts)), _TREE_LL128)
    return int(step * PAYLOAD[found.protocol])


def send_channels(step: int, size: int, most: int, group: GroupShape) -> int:
    """Count the channels over which a send goes: ``addP2pToPlan`` and ``scheduleP2pTasksToPlan`` of ``src/enqueue.cc``.

    `step`: bytes of a step of the FIFO.
    `size`: of the send, bytes.
    `most`: channels between two ranks by their path: ``ncclTopoGetNchannels``, ``src/graph/paths.cc``.
    `group`: of the ranks. The fewer channels there are for each, the fewer has a send; a large one may have more.
    """
    every = _power_of_two(group.channels)
    most = min(_power_of_two(most), every)
    least = _for_each_rank(most, group.ranks, every)
    most = _for_each_rank(most, group.ranks, 4 * every)
    part, largest = (step // 2, step) if group.hosts > 1 else (step // 8, 32 * step)
    channels = max(1, min(least, -(-size // part)))
    while -(-size // channels) > largest and channels <= most // 2:
        channels *= 2
    return channels


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _for_each_rank(channels: int, ranks: int, every: int) -> int:
    while channels * ranks > every and channels > 1:
        channels //= 2
    return channels


def _halved(step: int, part: int, depth: int, rules: tuple[tuple[int, int], ...]) -> int:
    for chunks, least in rules:
        while part // step < depth * chunks and step > least:
            step //= 2
    return step
