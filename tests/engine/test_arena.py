from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.flow.arena import Arena


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=80))
def test_extents_never_overlap_and_all_memory_comes_back(steps: list[tuple[bool, int]]) -> None:
    arena = Arena()
    held: list[tuple[int, int]] = []
    for give, number in steps:
        if give and held:
            arena.give_back(*held.pop(number % len(held)))
        else:
            held.append((arena.take(number), number))
        used = sorted(extent for extent in held if extent[1])
        assert all(start + length <= after for (start, length), (after, _) in pairwise(used))
        assert all(start + length <= arena.size for start, length in used)
    for extent in held:
        arena.give_back(*extent)
    assert arena.size == 0


def test_a_hole_is_used_before_the_end() -> None:
    arena = Arena()
    first, _ = arena.take(10), arena.take(10)
    arena.give_back(first, 10)
    assert arena.take(4) == 0
    assert arena.take(6) == 4
    assert arena.take(1) == 20
