from __future__ import annotations

import numpy as np
import pytest

from fabricsim.records.program import SLOWDOWN_BINS
from fabricsim.results.slowdown import edges, percentile
from fabricsim.run.pipeline import load, simulate


def test_percentiles_are_upper_edges_of_the_bins_that_reach_them() -> None:
    counts = np.zeros(SLOWDOWN_BINS, np.int64)
    counts[0], counts[32], counts[64] = 50, 49, 1
    assert percentile(counts, 0.5) == 1.0
    assert percentile(counts, 0.51) == 2.0
    assert percentile(counts, 0.99) == 2.0
    assert percentile(counts, 1.0) == 4.0


def test_without_messages_there_is_no_slowdown() -> None:
    assert percentile(np.zeros(SLOWDOWN_BINS, np.int64), 0.5) is None


def test_two_channels_share_the_wire_and_are_twice_as_slow_as_alone() -> None:
    result = simulate(load("gpt2-medium-dp", ["transport=tcp-10g"]))
    assert int(result.slowdowns.sum()) == result.counters["messages"]
    assert percentile(result.slowdowns, 0.5) == pytest.approx(2.0, rel=0.03)


def test_one_channel_is_as_fast_as_alone() -> None:
    result = simulate(load("gpt2-medium-dp", ["collectives.max_channels=1"]))
    assert percentile(result.slowdowns, 0.99) == edges()[0]
