"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim.engine.flow.state import table
from fabricsim.engine.packet.kernels.fast.order import INDEX_BITS, MOST_BUCKETS, sort
from fabricsim.engine.packet.kernels.fast.simd import BLOCK
from fabricsim.engine.packet.kernels.net import Net
from fabricsim.records.packet import BUCKET


@pytest.mark.slow
@pytest.mark.parametrize("window", [5, 1 << 24, 1 << 32], ids=["ties", "longest of short keys", "long"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 48, 49, 128, 1000, 40_000])
def test_keys_are_sorted(count: int, window: int) -> None:
    """Few keys by counting their ranks, many in buckets, those of a long window or of one time by merging."""
    times = np.random.default_rng(count).integers(0, window, count)
    times[: count // 2 : 7] = window - 1  # the largest short key must not count as one that fills up a block
    keys = np.zeros(2 * (count + 1), np.int64)
    keys[:count] = drawn = times << INDEX_BITS | np.arange(count)
    net = Net(**{name: table(1, dtype) for name, dtype in Net.TABLES.items()})
    net.short_keys, net.buckets = np.zeros(count + BLOCK, np.int32), table(MOST_BUCKETS, BUCKET)
    net.world["window"] = window
    first = sort(net, keys, count)
    assert keys[first : first + count].tolist() == sorted(drawn.tolist())
