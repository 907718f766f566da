"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel, rare
from fabricsim.packet.lanes import BLOCK, count_below
from fabricsim.tables import NEVER

_FEW = 128
"""Keys up to which the rank of each is counted."""


@kernel
def sort(keys, count):
    """Sort keys[:count], which all differ; returns where in `keys` the sorted ones begin.

    Each half of `keys` has room for `count` rounded up to whole blocks.
    """
    if count == 2:  # noqa: PLR2004  where few packets travel, the most frequent case
        keys[0], keys[1] = min(keys[0], keys[1]), max(keys[0], keys[1])
        return np.int64(0)
    if count > _FEW:
        return _merge_sort(keys, count)
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


@rare
def _merge_sort(keys, count):
    """Do the same for many keys."""
    half = len(keys) >> 1
    width = 1
    source, target = 0, half
    while width < count:
        low = 0
        while low < count:
            middle, high = min(low + width, count), min(low + 2 * width, count)
            a, b = source + low, source + middle
            end_a, end_b = source + middle, source + high
            for k in range(target + low, target + high):
                if a < end_a and (b >= end_b or keys[a] <= keys[b]):
                    keys[k] = keys[a]
                    a += 1
                else:
                    keys[k] = keys[b]
                    b += 1
            low = high
        source, target = target, source
        width *= 2
    return source
