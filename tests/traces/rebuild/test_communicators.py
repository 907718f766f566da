"""Collectives of one group take turns if a trace has dependencies alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.traces.rebuild.communicators import in_turn, numbered


def turn(ranks: list[int], calls: list[int], groups: list[int], edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    columns = (np.array(column, np.int64) for column in (ranks, calls, groups))
    pairs = in_turn(*columns, np.array(edges, np.int64).reshape(-1, 2))
    return [(int(before), int(after)) for before, after in pairs]


def test_each_rank_takes_calls_in_the_order_of_the_file() -> None:
    ranks, calls = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]

    assert turn(ranks, calls, [0] * 6, []) == [(0, 1), (1, 2), (3, 4), (4, 5)]


def test_other_groups_and_sends_do_not_wait() -> None:
    ranks, calls = [0, 0, 0, 0], [0, 1, 2, -1]

    assert turn(ranks, calls, [0, 1, 0, -1], []) == [(0, 2)]


def test_what_another_call_waits_for_goes_first_on_all_ranks() -> None:
    """On rank 1 call 0 waits for call 1, which stands behind it in the file of rank 0."""
    ranks, calls = [0, 0, 1, 1], [0, 1, 0, 1]

    assert turn(ranks, calls, [0] * 4, [(3, 2)]) == [(1, 0), (3, 2)]


def test_ops_in_a_circle_are_left_alone() -> None:
    assert turn([0, 0], [0, 1], [0, 0], [(0, 1), (1, 0)]) == []


def test_groups_are_numbered_as_they_come() -> None:
    assert numbered([("a", (0, 1)), None, ("b", (0, 1)), ("a", (0, 1))]).tolist() == [0, -1, 1, 0]


@pytest.mark.slow
@given(data=st.data())
def test_no_circle_comes_about(data: st.DataObject) -> None:
    ranks, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    orders = [data.draw(st.permutations(range(count))) for _ in range(ranks)]
    op_rank = [rank for rank in range(ranks) for _ in range(count)]
    op_call = [call for order in orders for call in order]
    groups = [data.draw(st.integers(0, 1)) for _ in range(count)]
    levels = [data.draw(st.integers(0, 2)) for _ in range(count)]
    # edges lead from calls of a lower level to those of a higher one: they close no circle themselves
    pairs = [
        (a, b) for a in range(len(op_call)) for b in range(len(op_call)) if levels[op_call[a]] < levels[op_call[b]]
    ]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []

    added = turn(op_rank, op_call, [groups[call] for call in op_call], edges)

    behind: dict[int, set[int]] = {call: set() for call in range(count)}
    for before, after in (*edges, *added):
        behind[op_call[after]].add(op_call[before])
    left = set(behind)
    while free := {call for call in left if not behind[call] & left}:
        left -= free
    assert not left
