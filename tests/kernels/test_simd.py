"""Comparisons of several numbers at once, compiled, against what they say uncompiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.engine.packet.kernels.fast.simd import BLOCK, GROUP, bits_before, count_below, earliest_from, lowest_bit
from fabricsim.jit.compile import kernel
from fabricsim.records.program import NEVER

_TIMES = st.integers(0, 3) | st.just(NEVER)
_KEYS = st.integers(0, 3) | st.just((1 << 31) - 1)


@kernel
def _look(times: NDArray[np.int64], first: np.int64, time: np.int64) -> tuple[int, int]:
    return int(bits_before(times, first, time)), int(earliest_from(times, first, time))


@kernel
def _count(keys: NDArray[np.int32], first: np.int64, key: np.int32) -> int:
    return int(count_below(keys, first, key))


@kernel
def _lowest(number: np.int64) -> int:
    return int(lowest_bit(number))


@pytest.mark.slow
@given(st.lists(_TIMES, min_size=2 * GROUP, max_size=2 * GROUP), st.integers(0, GROUP), _TIMES)
def test_times_are_parted(drawn: list[int], first: int, time: int) -> None:
    times = np.array(drawn, np.int64)
    before, later = _look(times, np.int64(first), np.int64(time))
    group = drawn[first : first + GROUP]
    assert before == bits_before(times, first, time) == sum(1 << i for i in range(GROUP) if group[i] < time)
    assert later == earliest_from(times, first, time) == min([NEVER, *(other for other in group if other >= time)])


@pytest.mark.slow
@given(st.lists(_KEYS, min_size=2 * BLOCK, max_size=2 * BLOCK), st.integers(0, BLOCK), _KEYS)
def test_lesser_keys_are_counted(drawn: list[int], first: int, key: int) -> None:
    keys = np.array(drawn, np.int32)
    expected = sum(other < key for other in drawn[first : first + BLOCK])
    assert _count(keys, np.int64(first), np.int32(key)) == count_below(keys, first, key) == expected


@pytest.mark.parametrize(("number", "place"), [(0, 64), (1, 0), (6, 1), (128, 7), (1 << 62, 62)])
def test_the_lowest_bit_is_found(number: int, place: int) -> None:
    assert _lowest(np.int64(number)) == lowest_bit(number) == place
