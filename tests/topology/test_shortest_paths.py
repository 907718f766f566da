from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.topology.shortest_paths import distances_to, flow_hash, mix, shortest_path


class Graph:
    """A graph in CSR form; link ``i`` leads from ``ends[i][0]`` to ``ends[i][1]``."""

    def __init__(self, graph: nx.Graph) -> None:
        self.nodes = len(graph)
        self.ends = [(node, other) for node in range(self.nodes) for other in sorted(graph[node])]
        counts = np.bincount([node for node, _ in self.ends], minlength=self.nodes)
        self.first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.neighbours = np.array([other for _, other in self.ends], np.int64)
        self.cost, self.rank = np.ones(len(self.ends), np.int32), np.zeros(len(self.ends), np.int32)

    def distances(self, target: int) -> NDArray[np.int32]:
        distances = np.empty(self.nodes, np.int32)
        scratch = np.empty(self.nodes, np.int64), np.zeros(self.nodes, np.uint8)
        distances_to(self.first, self.neighbours, self.cost, np.array([target]), distances, *scratch)
        return distances

    def path(self, source: int, target: int, label: int, *, by_destination: bool = False) -> list[tuple[int, int]]:
        path = np.full(self.nodes, -1, np.int64)
        graph = self.first, self.neighbours, self.cost, self.rank
        count = shortest_path(graph, self.distances(target), source, label, by_destination, 0, path, 0)
        return [self.ends[link] for link in path[:count]]


@st.composite
def _graphs(draw: st.DrawFn) -> nx.Graph:
    nodes = draw(st.integers(2, 9))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda p: p[0] != p[1])
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(draw(st.lists(pair, min_size=1, max_size=20)))
    return graph


@pytest.mark.slow
@settings(max_examples=60)
@given(graph=_graphs(), key=st.integers(0, 2**32 - 1), data=st.data())
def test_paths_are_shortest_and_joined_and_repeat(graph: nx.Graph, key: int, data: st.DataObject) -> None:
    frozen = Graph(graph)
    target = data.draw(st.integers(0, frozen.nodes - 1))
    lengths: dict[int, int] = nx.single_source_shortest_path_length(graph, target)
    distances = frozen.distances(target)
    assert [int(d) for d in distances] == [lengths.get(node, -1) for node in range(frozen.nodes)]
    for source, length in lengths.items():
        path = frozen.path(source, target, key)
        assert len(path) == length
        stops = [source, *(end for _, end in path)]
        assert [start for start, _ in path] == stops[:-1]
        assert stops[-1] == target
        assert frozen.path(source, target, key) == path


def test_equal_paths_are_drawn_equally_often() -> None:
    spines = 4
    graph = nx.Graph([(0, 1), *((1, 2 + s) for s in range(spines)), *((2 + s, 6) for s in range(spines)), (6, 7)])
    frozen = Graph(graph)
    draws = Counter(frozen.path(0, 7, int(flow_hash(0, 7, port, 0)))[1][1] for port in range(2000))
    assert sorted(draws) == [2, 3, 4, 5]
    # 500 each is expected, with a standard deviation of sqrt(2000 * 1/4 * 3/4) = 19.4
    assert all(abs(count - 500) < 5 * 19.4 for count in draws.values())


def test_choices_of_two_stages_are_independent() -> None:
    # two stages of two: a hash that did not mix in the node would use two of the four ways only
    edges: list[Any] = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]
    frozen = Graph(nx.Graph(edges))
    ways = Counter((path[0][1], path[2][1]) for path in (frozen.path(0, 6, int(mix(key))) for key in range(1000)))
    assert len(ways) == 4
    assert all(abs(count - 250) < 5 * 13.7 for count in ways.values())


@pytest.mark.parametrize("host", [0, 1, 2, 3, 4, 5, 6, 23, 2**40 + 5])
def test_d_mod_k_takes_the_digits_of_the_destination_host(host: int) -> None:
    # three choices, of 3, of 1 and of 2: digits host mod 3 and host // 3 mod 2
    edges: list[Any] = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7)]
    path = Graph(nx.Graph(edges)).path(0, 7, host, by_destination=True)
    assert [end for _, end in path] == [1 + host % 3, 4, 5 + host // 3 % 2, 7]


def test_d_mod_k_stays_exact_over_many_choices() -> None:
    # 80 choices of two: the product of all would not fit into 64 bits
    stages = 80
    edges: list[Any] = [
        edge for s in range(0, 3 * stages, 3) for edge in ((s, s + 1), (s, s + 2), (s + 1, s + 3), (s + 2, s + 3))
    ]
    host = 2**40 + 2**3
    path = Graph(nx.Graph(edges)).path(0, 3 * stages, host, by_destination=True)
    assert [end - start - 1 for start, end in path[::2]] == [host >> stage & 1 for stage in range(stages)]


@pytest.mark.parametrize("changed", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_every_part_of_a_flow_counts_in_its_hash(changed: tuple[int, int, int, int]) -> None:
    assert flow_hash(*changed) != flow_hash(0, 0, 0, 0)


@given(value=st.integers(0, 2**32 - 1))
def test_hashes_have_32_bits(value: int) -> None:
    assert 0 <= mix(value) < 2**32
