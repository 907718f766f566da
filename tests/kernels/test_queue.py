from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.engine.program.queue import first_finisher, set_finish
from fabricsim.records.program import NEVER
from tests.reference import worlds

CAPACITY = 256
# A few instants that collide often, and far ones whose hashes collide: the hash folds time by 11, 23 and 37 bits.
TIMES = st.one_of(
    st.integers(0, 5),
    st.integers(0, 40).map(lambda i: i << 37),
    st.integers(0, 40).map(lambda i: i * CAPACITY),
    st.integers(0, NEVER - 1),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(first=st.lists(TIMES, max_size=80), later=st.lists(st.lists(TIMES, max_size=3), max_size=40))
def test_events_come_by_time_and_by_order_of_posting_within_an_instant(
    queue: Callable[[int], Any], first: list[int], later: list[list[int]]
) -> None:
    compiled = queue(CAPACITY)
    expected: list[tuple[int, int]] = []
    counter = 0

    def post(time: int) -> None:
        nonlocal counter
        compiled.post(time, counter)
        heapq.heappush(expected, (time, counter))
        counter += 1

    for time in first:
        post(time)
    delays = iter(later)
    while expected:
        now = expected[0][0]
        assert compiled.next_time() == now
        while compiled.has_event_at(now):
            due, number = heapq.heappop(expected)
            assert (due, number) == (now, compiled.take()[0])
            for delay in next(delays, []):
                post(min(now + delay, NEVER - 1))
        compiled.close(now)
    assert compiled.next_time() == NEVER
    assert compiled.free_events() == compiled.free_buckets() == CAPACITY


def test_a_thousand_events_of_one_instant_keep_their_order(queue: Callable[[int], Any]) -> None:
    compiled = queue(4096)
    for number in range(2000):
        compiled.post(7_000_000, number)
    compiled.post(6_999_999, -1)
    assert compiled.take()[0] == -1
    compiled.close(6_999_999)
    assert [compiled.take()[0] for _ in range(2000)] == list(range(2000))
    assert not compiled.has_event_at(7_000_000)


def test_an_event_carries_its_target_and_extra(queue: Callable[[int], Any]) -> None:
    compiled = queue(4)
    compiled.post(3, 1, 2, 9)
    assert compiled.take() == (1, 2, 9)


def test_an_event_posted_at_the_instant_being_emptied_still_belongs_to_it(queue: Callable[[int], Any]) -> None:
    compiled = queue(8)
    compiled.post(5, 1)
    compiled.post(6, 3)
    compiled.take()
    compiled.post(5, 2)
    assert compiled.has_event_at(5)
    assert compiled.take()[0] == 2
    compiled.close(5)
    assert compiled.next_time() == 6


@pytest.mark.slow
@settings(max_examples=30)
@given(times=st.lists(TIMES, min_size=1, max_size=64), after=st.lists(TIMES, max_size=64))
def test_growth_keeps_what_is_queued(queue: Callable[[int], Any], times: list[int], after: list[int]) -> None:
    compiled = queue(64)
    for number, time in enumerate(times):
        compiled.post(time, number)
    compiled.grow(512)
    for number, time in enumerate(after, start=len(times)):
        compiled.post(time, number)
    taken = []
    while compiled.next_time() != NEVER:
        now = compiled.next_time()
        while compiled.has_event_at(now):
            taken.append((now, compiled.take()[0]))
        compiled.close(now)
    assert taken == sorted((time, number) for number, time in enumerate([*times, *after]))
    assert compiled.free_events() == compiled.free_buckets() == 512


@pytest.mark.slow
@settings(max_examples=60)
@given(
    exponent=st.integers(0, 6),
    updates=st.lists(st.tuples(st.integers(0, 63), st.one_of(st.integers(0, 20), st.just(NEVER))), max_size=80),
)
def test_finish_tree_gives_the_earliest_and_among_equals_the_lowest_flow(
    exponent: int, updates: list[tuple[int, int]]
) -> None:
    slots = 1 << exponent
    tree = np.full(2 * slots, NEVER, np.int64)
    times = [NEVER] * slots
    for flow, time in updates:
        times[flow % slots] = time
        set_finish(tree, flow % slots, time)
        assert tree[1] == min(times)
        assert first_finisher(tree) == times.index(min(times))


def test_messages_posted_while_tables_grow_leave_at_their_times() -> None:
    bare = worlds.BareWorld([1e9] * 300)
    routes = [bare.route({resource: 1.0}) for resource in range(300)]
    starts = np.random.default_rng(3).integers(0, 50, 300) * 1_000_000
    messages = [bare.send(route, 1000, at=int(start)) for route, start in zip(routes, starts, strict=True)]
    bare.run()
    ends = [bare.finished[message] for message in messages]
    assert ends == pytest.approx(starts + 1_000_000, abs=1)
    assert list(bare.finished.values()) == sorted(ends)
