"""How NCCL cuts a call: ``src/enqueue.cc``, ``computeColl`` of 2.5 and ``calcCollChunking`` after it."""

from math import log2

from fabricsim.collectives.choice import FIFO_STEPS
from fabricsim.collectives.nccl.choice import Pick
from fabricsim.collectives.nccl.cost import CHAINS
from fabricsim.collectives.nccl.graph import GroupShape
from fabricsim.collectives.nccl.tuning import BUFFER, PAYLOAD

_RING_STEPS = 4  # by Simple, but of chains
_TREE_SIMPLE = ((8, 2**17), (4, 2**16), (1, 2**15))
"""Chunks per channel and level of depth below which a chunk is halved, and how far."""
_TREE_LL128 = ((4, 2**15),)
_NVLS_TREE = ((32, 2**18), (16, 2**17), (4, 2**16), (1, 2**15))
"""Chunks per channel and head below which a chunk is at most so long."""
_NVLS_CHUNK, _NVLS_CHUNK_SINCE = 2**17, (2, 20)  # NCCL_NVLS_CHUNKSIZE; versions are those of the constants
_NVLS_CHUNK_FAR, _FAR = 2**16, 4  # of that many hosts, NCCL_NVLSTREE_MAX_CHUNKSIZE
_NVLS_CHUNK_FAR_SINCE = (2, 19)


def steps(collective: str, found: Pick) -> int:
    """Count the steps of the FIFO that a chunk takes: ``BROADCAST_CHUNKSTEPS`` etc. of src/include/collectives.h."""
    rings = found.algorithm == "ring" and collective not in CHAINS
    return _RING_STEPS if rings and found.protocol == "simple" else 1


def chunk(collective: str, found: Pick, size: int, group: GroupShape) -> int:
    """Most bytes of data that a channel sends at once.

    `found`: what the call runs with.
    `size`: of the call, bytes.
    `group`: of the ranks; a tree cuts finer the deeper it is, so that its levels overlap.
    """
    step = BUFFER[found.protocol] // FIFO_STEPS
    if found.algorithm == "ring":
        return int(step * steps(collective, found) * PAYLOAD[found.protocol])
    if found.algorithm == "nvls-tree":
        return _nvls_tree(step, size, found, group)
    if found.protocol == "simple":
        depth = group.ranks // group.hosts - 1 + int(log2(group.hosts))
        step = _halved(step, size // found.channels, depth, _TREE_SIMPLE)
    elif found.protocol == "ll128":
        step = _halved(step, size // found.channels, 1 + int(log2(group.hosts)), _TREE_LL128)
    return int(step * PAYLOAD[found.protocol])


def _nvls_tree(step: int, size: int, found: Pick, group: GroupShape) -> int:
    """Cut by channels and heads, of which each GPU of a host is one."""
    version, heads = group.tuning.version, group.ranks // group.hosts
    if version >= _NVLS_CHUNK_SINCE:
        step = min(step, _NVLS_CHUNK)
    if version >= _NVLS_CHUNK_FAR_SINCE and group.hosts >= _FAR:
        step = min(step, _NVLS_CHUNK_FAR)
    for chunks, most in _NVLS_TREE:
        if size < chunks * found.channels * heads * step:
            step = min(step, most)
    return step


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
