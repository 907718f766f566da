"""Sorting of what arrives at a switch in a window."""

from __future__ import annotations

import numpy as np
import pytest

from fabricsim.packet.lanes import BLOCK
from fabricsim.packet.net import Net
from fabricsim.packet.order import sort


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 128, 129, 1000])
def test_keys_are_sorted(count: int) -> None:
    """Few keys by counting their ranks, many by merging; two, the most frequent case, in their places."""
    drawn = np.random.default_rng(count).permutation(10 * count)[:count]
    keys = np.zeros(2 * (count + BLOCK), np.int64)
    keys[:count] = drawn
    net = Net(**{name: np.zeros(1, dtype) for name, dtype in Net.TABLES.items()})
    first = sort(net, keys, count)
    assert keys[first : first + count].tolist() == sorted(drawn.tolist())
