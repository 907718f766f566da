"""Use over time of what is not recorded, against a count picosecond by picosecond."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.results import use_over_time as module
from fabricsim.results.result import Limits, Series
from fabricsim.results.use_over_time import use_over_time

if TYPE_CHECKING:
    from fabricsim.results.result import RunRecord

END, LINKS = 12, 3
CALL = st.tuples(st.integers(0, LINKS), st.integers(0, END - 1), st.integers(0, END), st.sampled_from([0.25, 0.5, 1.0]))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [2**53, 3 * END, 1])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALL, min_size=1, max_size=20))
def test_of_calls_that_overlap_the_one_that_uses_most_counts(
    two_ranks: RunRecord, whole: int, calls: list[tuple[int, int, int, float]]
) -> None:
    first = len(two_ranks.links)
    by_number = [two_ranks.links[0]._replace(name=f"host{n}/proxy", kind="proxy thread") for n in range(LINKS)]
    link, start, length, used = (np.array(column) for column in zip(*calls, strict=True))
    end = np.minimum(start + length, END)
    limiting = np.where(link == LINKS, -1, first + link)
    limits = Limits(limiting, used, np.zeros_like(link), np.full_like(link, -1), np.zeros(len(link)))
    records = dataclasses.replace(two_ranks.calls, kind=np.zeros_like(link), start=start, end=end, limits=limits)
    series = Series(1, (), np.zeros((0, END)), np.zeros(0))
    links = (*two_ranks.links, *by_number)
    run = dataclasses.replace(two_ranks, links=links, calls=records, series=series, iteration=END)

    with patch.object(module, "_WHOLE", whole):
        held = [use for use in use_over_time(run, END)[1] if use.held]

    use = np.array(
        [
            [used[(link == n) & (start <= time) & (time < end)].max(initial=0) for time in range(END)]
            for n in range(LINKS)
        ]
    )
    assert len(held) == use.any()
    for each in held:
        assert each.most == pytest.approx(use.max(axis=0))
        assert each.busiest in {f"host{n}/proxy" for n in range(LINKS) if use[n].sum() == use.sum(axis=1).max()}
