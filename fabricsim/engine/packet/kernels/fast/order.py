"""Sorting of what arrives at a switch in a window."""

import numpy as np

from fabricsim.engine.packet.kernels.fast.simd import BLOCK, count_below
from fabricsim.jit.compile import inlined, kernel, rare

INDEX_BITS = 18
"""Of a sort key, for the place in the list of arrivals; the bits above hold the time since the window began."""
_FEW = 48  # keys up to which the rank of each among all is counted; beyond, that among those of about its time
_PER_BUCKET = 8
MOST_BUCKETS = 1 << 12
_SHORT_BITS = 7
"""Of a short key, of 31 bits, for the place among those that it is compared with; the bits above hold the time."""
_SHORT_WINDOW = np.int64(1) << (31 - _SHORT_BITS)  # ps, 16.8 us: times in a window of that length fit into a short key
_LAST = np.int32(np.iinfo(np.int32).max)
_FRACTION = 32  # bits of a quotient


def merge_sorting(comes_after):
    """Make a kernel that sorts items[:count] stably by ``comes_after(net, a, b)``: whether item `a` follows `b`.

    The second half of `items` is scratch; the kernel returns where the sorted ones begin.
    """

    def merge_sort(net, items, count):
        source, target = np.int64(0), np.int64(len(items) >> 1)
        width = 1
        while width < count:
            low = 0
            while low < count:
                middle, high = min(low + width, count), min(low + 2 * width, count)
                a, b = source + low, source + middle
                end_a, end_b = source + middle, source + high
                for k in range(target + low, target + high):
                    if a < end_a and (b >= end_b or not comes_after(net, items[a], items[b])):
                        items[k] = items[a]
                        a += 1
                    else:
                        items[k] = items[b]
                        b += 1
                low = high
            source, target = target, source
            width *= 2
        return source

    return merge_sort


@inlined
def _is_greater(_net, a, b):
    return a > b


_merge_sort = rare(merge_sorting(_is_greater))


@rare
def _sort_in_buckets(net, keys, count):
    """Part keys by time into buckets, and count the rank of each within its bucket; returns as `sort`."""
    buckets, short = net.buckets, net.short_keys
    parts = min(count // _PER_BUCKET, MOST_BUCKETS)
    factor = (parts << _FRACTION) // net.world[0].window
    for i in range(parts):
        buckets[i].end = 0
    for i in range(count):
        buckets[((keys[i] >> INDEX_BITS) * factor) >> _FRACTION].end += 1
    place, most = np.int64(0), np.int64(0)
    for i in range(parts):
        size = np.int64(buckets[i].end)
        buckets[i].first = buckets[i].end = place
        place += size
        most = max(most, size)
    if most > 1 << _SHORT_BITS:
        return _merge_sort(net, keys, count)
    half = len(keys) >> 1
    for i in range(count):
        time = keys[i] >> INDEX_BITS
        bucket = buckets[(time * factor) >> _FRACTION]
        at = np.int64(bucket.end)
        bucket.end = at + 1
        keys[half + at] = keys[i]
        short[at] = np.int32(time << _SHORT_BITS | (at - bucket.first))
    for i in range(count, count + BLOCK):
        short[i] = _LAST
    for part in range(parts):
        first, end = np.int64(buckets[part].first), np.int64(buckets[part].end)
        for i in range(first, end):
            rank, key = first, short[i]
            for block in range(first, end, BLOCK):  # where the next bucket begins all keys are greater
                rank += count_below(short, block, key)
            keys[rank] = keys[half + i]
    return np.int64(0)


@kernel
def sort(net, keys, count):
    """Sort keys[:count], each with its own place in its lowest bits; returns the place at which the sorted ones begin.

    Each half of `keys` has room for `count`.
    """
    if count == 2:  # noqa: PLR2004  where few packets travel, the most frequent case
        keys[0], keys[1] = min(keys[0], keys[1]), max(keys[0], keys[1])
        return np.int64(0)
    if net.world[0].window > _SHORT_WINDOW:
        return _merge_sort(net, keys, count)
    if count > _FEW:
        return _sort_in_buckets(net, keys, count)
    half = len(keys) >> 1
    short = net.short_keys
    for i in range(count):
        short[i] = np.int32((keys[i] >> INDEX_BITS) << _SHORT_BITS | i)
    end = (count + BLOCK - 1) // BLOCK * BLOCK
    for i in range(count, end):
        short[i] = _LAST
    for i in range(count):
        key = short[i]
        rank = half
        for first in range(0, end, BLOCK):
            rank += count_below(short, first, key)
        keys[rank] = keys[i]
    return half
