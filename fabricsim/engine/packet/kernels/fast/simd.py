"""Comparisons of several numbers at once, without a branch that could be foreseen wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from fabricsim.records.program import NEVER

BLOCK = 16
"""Keys that are compared with one at once."""
GROUP = 8
"""Times that are looked through at once."""
_LANES = 4  # times of one comparison: a core that compares 512 bits lowers its frequency for all that it does
_WORD, _HALF = ir.IntType(64), ir.IntType(32)
_VECTOR, _KEYS = ir.VectorType(_WORD, _LANES), ir.VectorType(_HALF, 2 * _LANES)


def count_below(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401  as kernels take them
    """Count the keys, of 32 bits, below `key` among keys[first:first + BLOCK]."""
    return np.int64(np.count_nonzero(keys[first : first + BLOCK] < key))


def bits_before(times: Any, first: Any, end: Any) -> Any:  # noqa: ANN401  as above
    """Tell which of times[first:first + GROUP] are before `end`: bit 0 stands for the first."""
    return np.int64(sum(1 << i for i in range(GROUP) if times[first + i] < end))


def earliest_from(times: Any, first: Any, begin: Any) -> Any:  # noqa: ANN401  as above
    """Least of times[first:first + GROUP] that are not before `begin`; NEVER if all are."""
    return min(NEVER if times[first + i] < begin else times[first + i] for i in range(GROUP))


def lowest_bit(number: Any) -> Any:  # noqa: ANN401  as above
    """Place of the lowest bit that is set; 64 if none is."""
    return np.int64((int(number) & -int(number)).bit_length() - 1 if number else 64)


@overload(count_below, inline="always")
def _count_below_any(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def count(keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401
        return _count_below(keys, first, key)  # type: ignore[call-arg]  # numba passes the context

    return count


@overload(bits_before, inline="always")
def _bits_before_any(times: Any, first: Any, end: Any) -> Any:  # noqa: ANN401, ARG001  as above
    def find(times: Any, first: Any, end: Any) -> Any:  # noqa: ANN401
        return _bits_before(times, first, end)  # type: ignore[call-arg]  # as above

    return find


@overload(earliest_from, inline="always")
def _earliest_from_any(times: Any, first: Any, begin: Any) -> Any:  # noqa: ANN401, ARG001  as above
    def find(times: Any, first: Any, begin: Any) -> Any:  # noqa: ANN401
        return _earliest_from(times, first, begin)  # type: ignore[call-arg]  # as above

    return find


@overload(lowest_bit, inline="always")
def _lowest_bit_any(number: Any) -> Any:  # noqa: ANN401, ARG001  as above
    def find(number: Any) -> Any:  # noqa: ANN401
        return _lowest_bit(number)  # type: ignore[call-arg]  # as above

    return find


@intrinsic
def _count_below(_context: Any, keys: Any, first: Any, key: Any) -> Any:  # noqa: ANN401, ARG001  numba types
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  LLVM
        same = _everywhere(builder, arguments[2], _KEYS)
        count = ir.Constant(_WORD, 0)
        for some in _load(context, builder, keys, arguments, _KEYS, BLOCK):
            below = builder.bitcast(builder.icmp_signed("<", some, same), ir.IntType(_KEYS.count))
            count = builder.add(count, builder.zext(builder.ctpop(below), _WORD))
        return count

    return types.int64(keys, first, types.int32), generate


@intrinsic
def _bits_before(_context: Any, times: Any, first: Any, end: Any) -> Any:  # noqa: ANN401, ARG001  as above
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  as above
        same = _everywhere(builder, arguments[2], _VECTOR)
        found = ir.Constant(_WORD, 0)
        for at, some in enumerate(_load(context, builder, times, arguments, _VECTOR, GROUP)):
            bits = builder.bitcast(builder.icmp_signed("<", some, same), ir.IntType(_LANES))
            found = builder.or_(found, builder.shl(builder.zext(bits, _WORD), ir.Constant(_WORD, at * _LANES)))
        return found

    return types.int64(times, first, types.int64), generate


@intrinsic
def _earliest_from(_context: Any, times: Any, first: Any, begin: Any) -> Any:  # noqa: ANN401, ARG001  as above
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  as above
        same, never = _everywhere(builder, arguments[2], _VECTOR), ir.Constant(_VECTOR, [int(NEVER)] * _LANES)
        least = never
        for some in _load(context, builder, times, arguments, _VECTOR, GROUP):
            later = builder.select(builder.icmp_signed("<", some, same), never, some)
            least = builder.select(builder.icmp_signed("<", later, least), later, least)
        return _least(builder, least)

    return types.int64(times, first, types.int64), generate


@intrinsic
def _lowest_bit(_context: Any, number: Any) -> Any:  # noqa: ANN401  as above
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401  as above
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(number), generate


def _everywhere(builder: Any, value: Any, kind: Any) -> Any:  # noqa: ANN401  as above
    """Make a vector of one value."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_HALF, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_HALF, kind.count), [0] * kind.count))


def _load(
    context: Any,  # noqa: ANN401
    builder: Any,  # noqa: ANN401
    table: Any,  # noqa: ANN401
    arguments: Any,  # noqa: ANN401
    kind: Any,  # noqa: ANN401
    count: int,
) -> Iterator[Any]:
    """Load `count` numbers of a table, as vectors of a kind."""
    start = builder.gep(make_array(table)(context, builder, arguments[0]).data, [arguments[1]])
    for at in range(0, count, kind.count):
        place = builder.bitcast(builder.gep(start, [ir.Constant(_WORD, at)]), kind.as_pointer())
        yield builder.load(place, align=kind.element.width // 8)


def _least(builder: Any, vector: Any) -> Any:  # noqa: ANN401  as above
    kind = ir.FunctionType(_WORD, [_VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.smin.v{_LANES}i64")
    return builder.call(function, [vector])
