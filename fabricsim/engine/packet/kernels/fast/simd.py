"""Comparisons of several numbers at once, without a branch that could be foreseen wrongly."""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

BLOCK = 16
"""Keys that are compared with one at once."""
_LANES = 8  # keys of one comparison: a core that compares 512 bits lowers its frequency for all that it does
_WORD, _HALF = ir.IntType(64), ir.IntType(32)
_KEYS = ir.VectorType(_HALF, _LANES)


def count_below(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401  as kernels take them
    """Count the keys, of 32 bits, below `key` among keys[first:first + BLOCK]."""
    return np.int64(np.count_nonzero(keys[first : first + BLOCK] < key))


@overload(count_below, inline="always")
def _count_below_any(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def count(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401
        return _count_below(keys, first, key)  # type: ignore[call-arg]  # numba passes the context

    return count


@intrinsic
def _count_below(_context: Any, keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  LLVM
        one = builder.insert_element(ir.Constant(_KEYS, ir.Undefined), arguments[2], ir.Constant(_HALF, 0))
        same = builder.shuffle_vector(one, one, ir.Constant(_KEYS, [0] * _LANES))
        start = builder.gep(make_array(keys)(context, builder, arguments[0]).data, [arguments[1]])
        count = ir.Constant(_WORD, 0)
        for at in range(0, BLOCK, _LANES):
            place = builder.bitcast(builder.gep(start, [ir.Constant(_WORD, at)]), _KEYS.as_pointer())
            some = builder.load(place, align=_HALF.width // 8)
            below = builder.bitcast(builder.icmp_signed("<", some, same), ir.IntType(_LANES))
            count = builder.add(count, builder.zext(builder.ctpop(below), _WORD))
        return count

    return types.int64(keys, first, types.int32), generate
