"""Colour refinement against its definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.folding.symmetry import Structure, hashed, numbered


def classes(nodes: int, edges: list[tuple[int, int, int]], colours: list[int] | None = None) -> list[int]:
    """Classes of a graph whose edges lead from node to node with a label each."""
    structure = Structure({"node": hashed(np.array(colours or [0] * nodes))})
    here, there, label = np.array(edges, np.int64).reshape(-1, 3).T
    structure.relate(("node", here), ("node", there), hashed(label))
    return structure.refine()["node"].tolist()


def ring(first: int, length: int) -> list[tuple[int, int, int]]:
    return [(first + i, first + (i + 1) % length, 0) for i in range(length)]


def test_members_of_a_ring_are_alike() -> None:
    assert classes(5, ring(0, 5)) == [0] * 5


def test_members_of_a_chain_are_not() -> None:
    assert classes(5, ring(0, 5)[:-1]) == [0, 1, 2, 3, 4]


def test_one_node_apart_tells_all_apart_by_their_distance() -> None:
    assert classes(6, ring(0, 6), [0, 0, 1, 0, 0, 0]) == [0, 1, 2, 3, 4, 5]


def test_a_pattern_that_repeats_stays() -> None:
    assert classes(6, ring(0, 6), [7, 0, 0, 7, 0, 0]) == [0, 1, 2, 0, 1, 2]


def test_labels_tell_edges_apart() -> None:
    edges = ring(0, 4)
    assert classes(4, [(*edge[:2], number % 2) for number, edge in enumerate(edges)]) == [0, 1, 0, 1]


def test_the_number_of_neighbours_counts() -> None:
    assert classes(4, [(0, 1, 0), (2, 3, 0), (2, 3, 0)]) == [0, 1, 2, 3]


def test_classes_are_numbered_by_their_lowest_nodes() -> None:
    assert numbered(np.array([9, 4, 9, 1, 4], np.uint64)).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("column", [np.array([0.5, -0.5]), np.array([1, -1]), np.array([2**63, 1], np.uint64)])
def test_hashes_of_different_numbers_differ(column: np.ndarray) -> None:
    one, other = hashed(column, 3).tolist()

    assert one != other
    assert [one] == hashed(column[:1], 3).tolist()
    assert hashed(column, 4).tolist() != [one, other]


GRAPHS = st.integers(1, 8).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes),
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(0, 1)), max_size=16),
        st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes),
    )
)


def coarsest(nodes: int, edges: list[tuple[int, int, int]], colours: list[int]) -> list[object]:
    """Refine by the definition: signatures as nested tuples, one round for each node."""
    names: list[object] = list(colours)
    for _ in range(nodes):
        out = [Counter((label, names[there]) for here, there, label in edges if here == node) for node in range(nodes)]
        into = [Counter((label, names[here]) for here, there, label in edges if there == node) for node in range(nodes)]
        looks = [(names[n], frozenset(out[n].items()), frozenset(into[n].items())) for n in range(nodes)]
        order = {look: number for number, look in enumerate(dict.fromkeys(looks))}
        names = [order[look] for look in looks]
    return names


@given(GRAPHS)
def test_classes_are_those_of_the_definition(graph: tuple[int, list[tuple[int, int, int]], list[int]]) -> None:
    found, expected = classes(*graph), coarsest(*graph)

    assert len(set(zip(found, expected, strict=True))) == len(set(found)) == len(set(expected))
