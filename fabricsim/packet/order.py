"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import inlined, kernel, rare
from fabricsim.packet.lanes import BLOCK, count_below
from fabricsim.tables import NEVER

_FEW = 128
"""Keys up to which the rank of each is counted."""


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


@kernel
def sort(net, keys, count):
    """Sort keys[:count], which all differ; returns where in `keys` the sorted ones begin.

    Each half of `keys` has room for `count` rounded up to whole blocks.
    """
    if count == 2:  # noqa: PLR2004  where few packets travel, the most frequent case
        keys[0], keys[1] = min(keys[0], keys[1]), max(keys[0], keys[1])
        return np.int64(0)
    if count > _FEW:
        return _merge_sort(net, keys, count)
    half = len(keys) >> 1
    end = (count + BLOCK - 1) // BLOCK * BLOCK
    for i in range(count, end):
        keys[i] = NEVER
    for i in range(count):
        key = keys[i]
        rank = np.int64(0)
        for first in range(0, end, BLOCK):
            rank += count_below(keys, first, key)
        keys[half + rank] = key
    return half
