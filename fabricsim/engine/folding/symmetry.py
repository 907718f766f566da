"""Colour refinement: which parts of a structure nothing can tell apart.

Nodes of several kinds (ranks, connections, resources, ...) are joined by relations. Two nodes keep one colour as long
as they have the same number of neighbours of each colour by each relation: the coarsest equitable partition (the
one-dimensional algorithm of Weisfeiler and Leman; Berkholz, Bonsma and Grohe, "Tight lower and upper bounds for the
complexity of canonical colour refinement", Theory of Computing Systems 60, 2017). Colours are 64-bit hashes, so that a
step over all nodes is a few array operations. Two different nodes get one colour by chance with a probability of
``n**2 / 2**65``: 3e-8 for a million nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers one to one (the finaliser of SplitMix64: Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def hashed(*columns: NDArray[np.generic] | float) -> NDArray[np.uint64]:
    """Hash rows of integers or floats (by their bits), columns of shape ``(n,)`` or numbers that all rows share."""
    total: NDArray[np.uint64] = np.zeros(1, np.uint64)
    for column in columns:
        row = np.atleast_1d(np.asarray(column))
        wide = (
            row.astype(np.float64)
            if row.dtype.kind == "f"
            else row.astype(np.int64 if row.dtype != np.uint64 else row.dtype)
        )
        total = mixed(total ^ wide.view(np.uint64))
    return total


class _Sums(NamedTuple):
    """How to add up what comes along the edges of a relation, by the node at their end."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @classmethod
    def by(cls, ends: NDArray[np.int64]) -> _Sums:
        order = np.argsort(ends, kind="stable")
        nodes, starts = np.unique(ends[order], return_index=True)
        return cls(order, starts, nodes)

    def add(self, values: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
        total = np.zeros(length, np.uint64)
        if len(self.nodes):
            total[self.nodes] = np.add.reduceat(values[self.order], self.starts)
        return total


@dataclass(frozen=True)
class _Relation:
    kinds: tuple[str, str]
    ends: tuple[NDArray[np.int64], NDArray[np.int64]]
    labels: NDArray[np.uint64]
    sums: tuple[_Sums, _Sums]


@dataclass
class Structure:
    """Coloured nodes of several kinds, and relations among them.

    `colours`: of the nodes of each kind, shape ``(n,)``.
    """

    colours: dict[str, NDArray[np.uint64]] = field(default_factory=dict)
    _relations: list[_Relation] = field(default_factory=list)

    def relate(
        self, one: tuple[str, NDArray[np.int64]], other: tuple[str, NDArray[np.int64]], labels: NDArray[np.uint64] | int
    ) -> None:
        """Add edges between nodes of two kinds.

        `one`, `other`: a kind, and the node of that kind that each edge joins, shape ``(edges,)``.
        `labels`: what tells edges apart, of each or of all.
        """
        ends = one[1], other[1]
        salted = hashed(len(self._relations), np.asarray(labels, np.uint64))
        sums = _Sums.by(ends[0]), _Sums.by(ends[1])
        labels = np.broadcast_to(salted, ends[0].shape)
        self._relations.append(_Relation((one[0], other[0]), ends, labels, sums))

    def refine(self) -> dict[str, NDArray[np.int64]]:
        """Refine all colours until no two nodes of one colour differ.

        Returns: the class of each node, by kind; shape ``(n,)``, classes in the order of their lowest nodes.
        """
        before = -1
        while (count := sum(len(np.unique(colours)) for colours in self.colours.values())) > before:
            before = count
            for relation in self._relations:
                self._pass_on(relation, 0)
            for relation in reversed(self._relations):
                self._pass_on(relation, 1)
        return {kind: numbered(colours) for kind, colours in self.colours.items()}

    def _pass_on(self, relation: _Relation, to: int) -> None:
        """Mix the colours at one end of a relation into those at the other."""
        there, here = relation.kinds[1 - to], relation.kinds[to]
        with np.errstate(over="ignore"):
            values = mixed(self.colours[there][relation.ends[1 - to]] ^ relation.labels)
            own = self.colours[here]
            self.colours[here] = mixed(mixed(own) + relation.sums[to].add(values, len(own)))


def numbered(colours: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Give colours numbers in the order in which they first appear."""
    _, first, which = np.unique(colours, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[which]
