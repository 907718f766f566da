"""A program: the DAG of compute and collective operations that a fabric replays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fabricsim.errors import SimulationError
from fabricsim.tables import COLLECTIVE, COMPUTE, MAIN_STREAM, NONE, OP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

CollectiveName = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_recv"]


@dataclass(frozen=True)
class Call:
    """One collective call.

    Parameters
    ----------
    collective
        What is done.
    ranks
        The group in ring order; ``ranks[0]`` is the root of a broadcast and the sender of a
        ``send_recv``.
    size
        Bytes as NCCL-tests counts them: the whole buffer of an all-reduce or broadcast, the total
        input of a reduce-scatter, the total output of an all-gather, the message of a send.
    dimension
        The parallel dimension it belongs to: ``"data"``, ``"pipeline"`` or ``"embedding"``.
    """

    collective: CollectiveName
    ranks: tuple[int, ...]
    size: int
    dimension: str


@dataclass(frozen=True)
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
    """

    ops: NDArray[np.void]
    successors: NDArray[np.int64]
    calls: tuple[Call, ...]
    timers: tuple[str, ...]
    ranks: int


class _Row(NamedTuple):
    """The columns of an ``OP`` that do not depend on the other ops."""

    rank: int
    kind: int
    stream: int
    timer: int
    call: int
    member: int
    duration: int


@dataclass
class ProgramBuilder:
    """Builds a `Program` op by op.

    Ops of one rank on the main stream run in the order in which they are added, each after the one
    before; ``after`` adds further predecessors. Those added by one `join_all` run at once.
    """

    timers: Sequence[str]
    _rows: list[_Row] = field(default_factory=list)
    _edges: list[tuple[int, int]] = field(default_factory=list)
    _calls: list[Call] = field(default_factory=list)
    _last: dict[int, list[int]] = field(default_factory=dict)

    def compute(self, rank: int, duration: int, timer: str, *, after: Iterable[int] = ()) -> int:
        """Keep `rank` busy for `duration` ps; returns the op's index."""
        row = _Row(rank, COMPUTE, MAIN_STREAM, self.timers.index(timer), NONE, NONE, duration)
        index = self._add(row, {*after, *self._last.get(rank, ())})
        self._last[rank] = [index]
        return index

    def call(self, call: Call) -> int:
        """Register a collective call; every one of its ranks must `join` it once."""
        self._calls.append(call)
        return len(self._calls) - 1

    def join(self, call: int, rank: int, timer: str, *, stream: int = MAIN_STREAM, after: Iterable[int] = ()) -> int:
        """Let `rank` take part in a registered call; returns the op's index."""
        if stream == MAIN_STREAM:
            return self.join_all([call], rank, timer, after=after)[0]
        return self._add(self._part(call, rank, timer, stream), set(after))

    def join_all(self, calls: Sequence[int], rank: int, timer: str, *, after: Iterable[int] = ()) -> list[int]:
        """Let `rank` take part in several calls at once on the main stream; returns the ops' indices.

        All start together and the next main-stream op waits for all of them, as in an NCCL group:
        the spans of the ops overlap, so the time to book is that of their union.
        """
        before = {*after, *self._last.get(rank, ())}
        ops = [self._add(self._part(call, rank, timer, MAIN_STREAM), before) for call in calls]
        if ops:
            self._last[rank] = list(ops)
        return ops

    def _part(self, call: int, rank: int, timer: str, stream: int) -> _Row:
        member = self._calls[call].ranks.index(rank)
        return _Row(rank, COLLECTIVE, stream, self.timers.index(timer), call, member, 0)

    def _add(self, row: _Row, before: set[int]) -> int:
        index = len(self._rows)
        self._rows.append(row)
        self._edges.extend((op, index) for op in before)
        return index

    def build(self) -> Program:
        """Freeze the program.

        Raises
        ------
        SimulationError
            Where a rank of a call has not joined it exactly once.
        """
        ops = np.zeros(len(self._rows), OP)
        for column, values in zip(
            ("rank", "kind", "stream", "timer", "call", "member", "duration"),
            zip(*self._rows, strict=True),
            strict=True,
        ):
            ops[column] = values
        edges = np.array(self._edges, np.int64).reshape(-1, 2)
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
        counts = np.bincount(edges[:, 0], minlength=len(ops))
        ops["successors"] = counts
        ops["first_successor"] = np.cumsum(counts) - counts
        ops["predecessors"] = np.bincount(edges[:, 1], minlength=len(ops))
        self._check_joined(ops)
        ranks = int(ops["rank"].max()) + 1
        return Program(ops, np.ascontiguousarray(edges[:, 1]), tuple(self._calls), tuple(self.timers), ranks)

    def _check_joined(self, ops: NDArray[np.void]) -> None:
        joined = ops[ops["kind"] == COLLECTIVE]
        counts = np.bincount(joined["call"], minlength=len(self._calls))
        for index, call in enumerate(self._calls):
            if counts[index] != len(call.ranks):
                msg = f"{call.collective} over {len(call.ranks)} ranks was joined {counts[index]} times"
                raise SimulationError(msg)
