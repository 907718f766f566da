"""A program: the DAG of compute and collective operations that a fabric replays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import SimulationError
from fabricsim.records.program import COLLECTIVE, NONE, OP

CollectiveName = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "send_recv", "ring_exchange"
]


@dataclass(frozen=True)
class Call:
    """One collective call.

    Parameters
    ----------
    collective
        What is done.
    ranks
        The group in ring order; ``ranks[0]`` is the root of a broadcast or reduction and the sender of a
        ``send_recv``. In a ``ring_exchange`` each rank sends to the next and receives from the one before.
    size
        Bytes as NCCL-tests counts them: the whole buffer of an all-reduce, broadcast or reduction, the total
        input of a reduce-scatter, the total output of an all-gather, what one rank hands in (its own
        part included) of an all-to-all, the message of a send and of each send of a ring exchange.
    dimension
        The parallel dimension it belongs to, as `fabricsim.workload.compile.JobPlan` lists them.
    """

    collective: CollectiveName
    ranks: tuple[int, ...]
    size: int
    dimension: str


@dataclass(frozen=True, eq=False)
class CallList:
    """Collective calls, of which many are equal.

    Attributes
    ----------
    kinds
        Those that differ, in order of their first appearance.
    kind
        Index into `kinds` of each call, shape ``(n_calls,)``.
    """

    kinds: tuple[Call, ...]
    kind: NDArray[np.int64]

    @classmethod
    def of(cls, calls: Iterable[Call]) -> CallList:
        """Find the kinds of calls."""
        numbers: dict[Call, int] = {}
        kind = [numbers.setdefault(call, len(numbers)) for call in calls]
        return cls(tuple(numbers), np.array(kind, np.int64))

    def take(self, calls: NDArray[np.integer]) -> CallList:
        """Leave some calls, by their indices."""
        kind = self.kind[calls]
        used, first = np.unique(kind, return_index=True)
        used = used[np.argsort(first)]
        number = np.zeros(len(self.kinds), np.int64)
        number[used] = np.arange(len(used))
        return CallList(tuple(self.kinds[each] for each in used.tolist()), number[kind])

    def __getitem__(self, index: int) -> Call:
        """Return one call."""
        return self.kinds[int(self.kind[index])]

    def __len__(self) -> int:
        """Count the calls."""
        return len(self.kind)

    def __iter__(self) -> Iterator[Call]:
        """Go through the calls in their order."""
        return map(self.kinds.__getitem__, self.kind.tolist())

    def __eq__(self, other: object) -> bool:
        """Whether the same is called in the same order."""
        if not isinstance(other, CallList):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


@dataclass(frozen=True, eq=False)
class Program:
    """A DAG over ranks.

    Attributes
    ----------
    ops
        ``OP`` records, shape ``(n_ops,)``.
    successors
        Indices into `ops`, shape ``(n_edges,)``; those of op ``i`` start at ``ops[i]["first_successor"]``.
    calls
        The collective calls that ops refer to.
    timers
        Names under which time is booked, such as ``"forward-compute"``.
    ranks
        How many ranks take part; ops name ranks ``0 .. ranks - 1``.
    representatives
        The ranks that have ops, in order, where they stand for others alike; None if all have.
    """

    ops: NDArray[np.void]
    successors: NDArray[np.int64]
    calls: CallList
    timers: tuple[str, ...]
    ranks: int
    representatives: tuple[int, ...] | None = None

    def placed(self, ranks: Sequence[int]) -> Program:
        """Put other ranks in the places of its ranks 0, 1, ...

        Raises
        ------
        SimulationError
            If there are more or fewer of them, or some of its ranks stand for others.
        """
        if len(ranks) != self.ranks:
            msg = f"a program of {self.ranks} ranks cannot be placed on {len(ranks)}: give as many as it has"
            raise SimulationError(msg)
        if self.representatives is not None:
            msg = "the program has operations of some ranks only, and runs on the ranks for which it was written"
            raise SimulationError(msg)
        ops = self.ops.copy()
        ops["rank"] = np.array(ranks)[ops["rank"]]
        kinds = [replace(call, ranks=tuple(ranks[rank] for rank in call.ranks)) for call in self.calls.kinds]
        calls = CallList(tuple(kinds), self.calls.kind)
        return Program(ops, self.successors, calls, self.timers, max(ranks) + 1)

    def of(self, ranks: Collection[int]) -> Program:
        """Leave the ops of some ranks; calls keep all their ranks.

        Raises
        ------
        SimulationError
            If an op of these ranks waits for one of another.
        """
        kept = np.isin(self.ops["rank"], list(ranks))
        number = np.cumsum(kept) - 1
        source = np.repeat(np.arange(len(self.ops)), self.ops["successors"])
        inside = kept[source]
        if np.any(inside != kept[self.successors]):
            msg = "an operation of one rank waits for one of another: ranks cannot be taken out of the program"
            raise SimulationError(msg)
        ops = self.ops[kept].copy()
        ops["first_successor"] = np.cumsum(ops["successors"]) - ops["successors"]
        used = np.unique(ops["call"][ops["kind"] == COLLECTIVE])
        ops["call"] = np.where(ops["call"] >= 0, np.searchsorted(used, ops["call"]), NONE)
        successors = number[self.successors[inside]]
        return Program(ops, successors, self.calls.take(used), self.timers, self.ranks, tuple(sorted(ranks)))


def together(programs: Mapping[str, Program]) -> Program:
    """Put programs behind one another, as those of jobs that run side by side; dimensions of calls get their names."""
    timers = tuple(dict.fromkeys(timer for program in programs.values() for timer in program.timers))
    ops, successors, kind = [], [], []
    kinds: list[Call] = []
    first_op = first_edge = first_call = 0
    for name, program in programs.items():
        mine = program.ops.copy()
        mine["timer"] = np.array([timers.index(timer) for timer in program.timers])[mine["timer"]]
        mine["call"] = np.where(mine["call"] == NONE, NONE, mine["call"] + first_call)
        mine["first_successor"] += first_edge
        ops.append(mine)
        successors.append(program.successors + first_op)
        kind.append(program.calls.kind + len(kinds))
        kinds += [replace(call, dimension=f"{name} {call.dimension}") for call in program.calls.kinds]
        first_op, first_edge = first_op + len(mine), first_edge + len(program.successors)
        first_call += len(program.calls)
    calls = CallList(tuple(kinds), np.concatenate(kind))
    ranks = max(program.ranks for program in programs.values())
    return Program(np.concatenate(ops), np.concatenate(successors), calls, timers, ranks)


@dataclass(frozen=True, eq=False)
class GroupSet:
    """Groups of one size that do the same.

    Parameters
    ----------
    collective
        What they do, as in `Call`.
    dimension
        As in `Call`.
    members
        The groups as `Call` has their ranks, in ring order; shape ``(groups, members)``.
    size
        As in `Call`.
    """

    collective: CollectiveName
    dimension: str
    members: NDArray[np.int32]
    size: int


class Plan(Protocol):
    """A program that is not written out yet: what is needed to see which ranks are alike."""

    @property
    def ranks(self) -> int:
        """How many ranks take part."""

    @property
    def colours(self) -> NDArray[np.int32]:
        """Ranks of one colour run the same ops but for the groups that they are in, shape ``(ranks,)``.

        For each of one that calls a group, the other calls one of the same set, with members of the same colours in
        the same places.
        """

    @property
    def groups(self) -> tuple[GroupSet, ...]:
        """All groups that any call is over."""

    def program(self, ranks: Sequence[int] | None) -> Program:
        """Write out the ops of `ranks`, or of all if it is None."""


COLUMNS = ("rank", "kind", "stream", "timer", "call", "member", "duration")
"""Those of an ``OP`` that do not depend on the other ops."""


def assemble(rows: NDArray[np.int64], edges: NDArray[np.int64]) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Make the ops of a program and their successors.

    Parameters
    ----------
    rows
        `COLUMNS` of each op, shape ``(n_ops, columns)``.
    edges
        Pairs of ops, the second of which waits for the first, shape ``(n_edges, 2)``.

    Returns
    -------
    ops, successors
        As of `Program`.
    """
    ops = np.zeros(len(rows), OP)
    for number, column in enumerate(COLUMNS):
        ops[column] = rows[:, number]
    # A stable sort keeps the edges from one op in the order in which they were given.
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    counts = np.bincount(edges[:, 0], minlength=len(ops))
    ops["successors"] = counts
    ops["first_successor"] = np.cumsum(counts) - counts
    ops["predecessors"] = np.bincount(edges[:, 1], minlength=len(ops))
    return ops, np.ascontiguousarray(edges[:, 1])
