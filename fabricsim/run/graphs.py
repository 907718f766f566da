"""Graphs of networkx as the lines of a file of cables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import InputError
from fabricsim.scenario import given
from fabricsim.scenario.suggest import show
from fabricsim.topology.cable_file import is_node, is_number
from fabricsim.units import DURATION, RATE, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    import networkx as nx

_WAY_OUT = "give each one such as rate='100Gbps', delay='500ns'"
_OF_EDGES = (("gbps", "rate", "Gbps", RATE), ("delay_ns", "delay", "ns", DURATION))
"""Key of a number as cable files have it, and of a quantity, of which an edge has one; its unit; what it is."""


def cables_of(graph: nx.Graph) -> list[str]:
    """Give a line for each cable; both directions of an edge are one.

    Raises InputError if `graph` is no fabric that `fabricsim.topology.cable_file` reads.
    """
    import networkx as nx  # noqa: PLC0415  0.13 s that no run needs

    given.require(graph, nx.Graph, "graph", "a networkx graph")
    nodes = [str(node) for node in graph]
    if wrong := [node for node in nodes if not is_node(node)]:
        raise InputError(f"node {show(wrong[0])}: a name has letters, digits, points and underscores; rename it")
    if len(set(map(is_number, nodes))) > 1:
        raise InputError("some nodes are numbers, others names; give all of them names")
    cables: dict[tuple[str, str], str] = {}
    for one, other, edge in graph.edges(data=True):
        if one == other or (str(one), str(other)) in cables:
            problem = "leads back to its node" if one == other else "is there several times; add up their rates"
            raise InputError(f"edge {one} - {other}: {problem}")
        cables[str(one), str(other)] = _quantities(f"edge {one} - {other}", edge)
    if not cables:
        raise InputError("the graph has no edges; a fabric has a cable for each host")
    if graph.is_directed():
        cables = _both_ways(cables)
    return [f"{one},{other},{quantities}" for (one, other), quantities in cables.items()]


def _quantities(name: str, edge: Mapping[str, object]) -> str:
    if twice := [(number, key) for number, key, *_ in _OF_EDGES if {number, key} <= edge.keys()]:
        raise InputError(f"{name} has both {' and '.join(twice[0])}; take one out")
    if lacking := [key for number, key, *_ in _OF_EDGES if not {number, key} & edge.keys()]:
        raise InputError(f"{name} has no {lacking[0]}; {_WAY_OUT}")
    texts = (f"{edge[number]}{unit}" if number in edge else str(edge[key]) for number, key, unit, _ in _OF_EDGES)
    try:
        rate, delay = (parse(text, kind) for text, (*_, kind) in zip(texts, _OF_EDGES, strict=True))
    except ValueError as error:
        raise InputError(f"{name}: {error}; {_WAY_OUT}") from error
    return f"{rate * 8 / 1e9:.12g},{delay / 1e3:.12g}"


def _both_ways(edges: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Take each edge and that back as one cable."""
    cables: dict[tuple[str, str], str] = {}
    for (one, other), quantities in edges.items():
        if edges.get((other, one)) != quantities:
            msg = f"edge {one} -> {other}: none like it leads back, and cables carry the same both ways; "
            raise InputError(msg + "add it, or give a graph without directions")
        if (other, one) not in cables:
            cables[one, other] = quantities
    return cables
