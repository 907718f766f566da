"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from fabricsim.kernels._jit import kernel, rare
from fabricsim.tables import NEVER

BLOCK = 16
"""Keys that are compared with one at once."""
_LANES = 4
"""Keys of one comparison: a core that compares eight lowers its frequency for all that it does."""
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
        word, index = ir.IntType(64), ir.IntType(32)
        lanes = ir.VectorType(word, _LANES)
        data = make_array(keys)(context, builder, arguments[0]).data
        start = builder.gep(data, [context.cast(builder, arguments[1], first, types.intp)])
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[2], ir.Constant(index, 0))
        same = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(index, _LANES), [0] * _LANES))
        minus = ir.Constant(lanes, [0] * _LANES)
        for at in range(0, BLOCK, _LANES):
            place = builder.bitcast(builder.gep(start, [ir.Constant(word, at)]), lanes.as_pointer())
            below = builder.icmp_signed("<", builder.load(place, align=8), same)
            minus = builder.add(minus, builder.sext(below, lanes))
        kind = ir.FunctionType(word, [lanes])
        total = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.add.v{_LANES}i64")
        return builder.neg(builder.call(total, [minus]))

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
