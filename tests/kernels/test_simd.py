"""Comparisons of several numbers at once, compiled, against what they say uncompiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.engine.packet.kernels.fast.simd import BLOCK, count_below
from fabricsim.jit.compile import kernel

_KEYS = st.integers(0, 3) | st.just((1 << 31) - 1)


@kernel
def _count(keys: NDArray[np.int32], first: np.int64, key: np.int32) -> int:
    return int(count_below(keys, first, key))


@pytest.mark.slow
@given(st.lists(_KEYS, min_size=2 * BLOCK, max_size=2 * BLOCK), st.integers(0, BLOCK), _KEYS)
def test_lesser_keys_are_counted(drawn: list[int], first: int, key: int) -> None:
    keys = np.array(drawn, np.int32)
    expected = sum(other < key for other in drawn[first : first + BLOCK])
    assert _count(keys, np.int64(first), np.int32(key)) == count_below(keys, first, key) == expected
