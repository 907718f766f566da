"""Use of resources by calls, and which resources have to be asked about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.uses import OtherLoad, RunCalls, candidates, crossing, use_of
from fabricsim.units import PS_PER_S

LONG, SHORT = 0, 1
S = PS_PER_S


def calls(*rows: tuple[int, float, float, float]) -> RunCalls:
    """Calls of a communicator, bytes, start and end in seconds."""
    communicator, size, start, end = zip(*rows, strict=True)
    return RunCalls(
        np.array(communicator, np.int64), np.array(size, float), *(np.array(t) * S for t in (start, end))
    )  # fmt: skip


def test_a_long_call_does_not_dilute_what_a_short_one_uses() -> None:
    # The spine carries 10 bytes/s: 1 of the long call's for 10 s, and 9 of the short one's for one.
    both = calls((LONG, 10, 0, 10), (SHORT, 9, 2, 3))

    use = use_of(both, {LONG: 1.0, SHORT: 1.0}, 10.0, None, None)

    assert dict(zip(use.calls.tolist(), use.share.tolist(), strict=True)) == pytest.approx({0: 0.19, 1: 1.0})


def test_other_traffic_counts_while_it_comes() -> None:
    use = use_of(
        calls((LONG, 10, 0, 10)), {LONG: 1.0}, 10.0, None, OtherLoad.of(20.0, [(5 * S, 9 * S), (7 * S, 10 * S)])
    )

    assert use.share == pytest.approx([0.1 + 0.2])
    assert use.others == pytest.approx([0.2])


def test_calls_that_take_no_time_use_nothing() -> None:
    assert use_of(calls((LONG, 10, 1, 1), (LONG, 10, 2, 3)), {LONG: 1.0}, 20.0, None, None).calls.tolist() == [1]


@pytest.mark.slow
@given(
    demands=st.dictionaries(
        st.integers(0, 3), st.dictionaries(st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 2.0])), min_size=1
    ),
    capacities=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=6, max_size=6),
    data=st.data(),
)
def test_what_is_left_out_is_used_no_more_than_a_candidate(
    demands: dict[int, dict[int, float]], capacities: list[float], data: st.DataObject
) -> None:
    time = st.integers(0, 9)
    rows = [
        (communicator, data.draw(st.integers(1, 99)), start := data.draw(time), start + 1 + data.draw(time))
        for communicator in demands
    ]
    every, crossed = calls(*rows), crossing(demands)
    uses = {each: use_of(every, some, capacities[each], None, None) for each, some in crossed.items()}
    kept = candidates(crossed, capacities, ())

    for number in range(len(rows)):
        most = {
            each: dict(zip(use.calls.tolist(), use.share, strict=True)).get(number, 0) for each, use in uses.items()
        }
        assert max((most[each] for each in kept), default=0) == pytest.approx(max(most.values(), default=0))
