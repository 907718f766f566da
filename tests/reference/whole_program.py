"""The plan of a program that is written out already: which of its ranks do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import COLLECTIVE
from fabricsim.workload.program import CollectiveName, GroupSet, Program

_COLUMNS = ("kind", "stream", "timer", "duration")


@dataclass(frozen=True)
class WholeProgram:
    """A `Plan` that has written out all ops. `whole`: the program of all ranks."""

    whole: Program

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return self.whole.ranks

    @cached_property
    def colours(self) -> NDArray[np.int32]:
        """One number for all ranks that have the same ops in the same order, shape ``(ranks,)``.

        If an op waits for one of another rank, beside all calls, no two ranks are alike.
        """
        whole, ops = self.whole, self.whole.ops
        if np.any(np.repeat(ops["rank"], ops["successors"]) != ops["rank"][whole.successors]):
            return np.arange(whole.ranks, dtype=np.int32)
        order = np.argsort(ops["rank"], kind="stable")
        begins = np.searchsorted(ops["rank"][order], np.arange(whole.ranks + 1))
        place = np.empty(len(ops), np.int64)  # of an op among those of its rank
        place[order] = np.arange(len(ops)) - begins[ops["rank"][order]]
        rows = list(zip(*(ops[column].tolist() for column in _COLUMNS), strict=True))
        ends = [(call.collective, call.dimension, call.size, len(call.ranks)) for call in whole.calls]
        first, calls = ops["first_successor"].tolist(), ops["call"].tolist()
        looks: dict[object, int] = {}
        colours = np.zeros(whole.ranks, np.int32)
        for rank in range(whole.ranks):
            look = []
            for op in order[begins[rank] : begins[rank + 1]].tolist():
                after = whole.successors[first[op] : first[op] + ops["successors"][op]]
                what = ends[calls[op]] if ops["kind"][op] == COLLECTIVE else None
                look.append((rows[op], what, *place[after].tolist()))
            colours[rank] = looks.setdefault(tuple(look), len(looks))
        return colours

    @cached_property
    def groups(self) -> tuple[GroupSet, ...]:
        """All groups that any call is over."""
        found: dict[tuple[CollectiveName, str, int, int], dict[tuple[int, ...], None]] = {}
        for call in self.whole.calls:
            found.setdefault((call.collective, call.dimension, call.size, len(call.ranks)), {})[call.ranks] = None
        return tuple(
            GroupSet(collective, dimension, np.array(list(groups), np.int32), size)
            for (collective, dimension, size, _), groups in found.items()
        )

    def program(self, ranks: Sequence[int] | None) -> Program:
        """Write out the ops of `ranks`, or of all if it is None."""
        return self.whole if ranks is None else self.whole.of(ranks)
