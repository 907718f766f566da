"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from fabricsim.kernels._jit import kernel, rare
from fabricsim.tables import NEVER

BLOCK = 16
"""Keys that are compared with one at once."""
_FEW = 128
"""Keys up to which the rank of each is counted."""


def count_below(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401  as kernels take them
    """Count the keys below `key` among keys[first:first + BLOCK], all at once and without a branch."""
    return np.int64(np.count_nonzero(keys[first : first + BLOCK] < key))


@overload(count_below, inline="always")
def _count_below_any(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def count(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401
        return _count_below(keys, first, key)  # type: ignore[call-arg]  # numba passes the context

    return count


@intrinsic
def _count_below(_context: Any, keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  LLVM
        word = ir.IntType(64)
        block = ir.VectorType(word, BLOCK)
        data = make_array(keys)(context, builder, arguments[0]).data
        place = builder.gep(data, [context.cast(builder, arguments[1], first, types.intp)])
        compared = builder.load(builder.bitcast(place, block.as_pointer()), align=8)
        one = builder.insert_element(ir.Constant(block, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
        below = builder.icmp_signed("<", compared, builder.shuffle_vector(one, one, lanes))
        bits = builder.ctpop(builder.bitcast(below, ir.IntType(BLOCK)))
        return builder.zext(bits, word)

    return types.int64(keys, first, types.int64), generate


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
