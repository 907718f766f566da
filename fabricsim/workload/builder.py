"""Programs built op by op, rank by rank."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import SimulationError
from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, HOST_STREAM, MAIN_STREAM, NONE, OVERLAPPED_STREAM
from fabricsim.workload.program import COLUMNS, Call, CallList, Program, assemble

_Pack = tuple[NDArray[np.int64], NDArray[np.int64]]

_RANK, _CALL, _MEMBER = map(COLUMNS.index, ("rank", "call", "member"))

_PACK = 2**16  # ops that a builder holds as Python integers


class RepeatedOps(NamedTuple):
    """Ops that a rank repeats.

    `rows`: columns of each op, shape ``(n_ops, columns)``.
    `edges`: pairs of ops counted from the first, shape ``(n_edges, 2)``.
    `heads`, `ends`: ops that wait for what was before, and those that what follows waits for.
    `calls`: of each sequence of calls (dimension and group) the ops that join one, and the kind of each call.
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    heads: tuple[int, ...]
    ends: tuple[int, ...]
    calls: Mapping[tuple[str, tuple[int, ...]], tuple[NDArray[np.int64], list[int]]]


class RankPattern(NamedTuple):
    """All ops of a rank, which others have that are like it.

    `rows`, `edges`: as of `RepeatedOps`.
    `joins`: ops that join a call, shape ``(n_joins,)``.
    `joined`: the call of each, an index into `calls`.
    `calls`: in the order in which they were registered, shape ``(n_calls,)``.
    `kinds`: indices into `calls` of those of each kind.
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    joins: NDArray[np.int64]
    joined: NDArray[np.int64]
    calls: NDArray[np.int64]
    kinds: list[tuple[int, NDArray[np.int64]]]


class ProgramBuilder:
    """Builds a `Program` op by op.

    Ops of one rank on the main stream run in the order in which they are added, each after the one
    before; ``after`` adds further predecessors. Those added by one `join_all` run at once.

    `timers`: names under which the ops book their time.
    `ranks`: how many take part; if left out, up to the highest that has an op.
    `representatives`: the only ranks that have ops, where these stand for others alike.
    """

    def __init__(
        self, timers: Sequence[str], ranks: int | None = None, representatives: Collection[int] | None = None
    ) -> None:
        self._timers = {name: number for number, name in enumerate(timers)}
        self._ranks = ranks
        self._representatives = None if representatives is None else frozenset(representatives)
        # Flat: `COLUMNS` of each op, and the two ops of each edge; packed away now and then.
        self._ops: list[int] = []
        self._edges: list[int] = []
        self._packed: list[_Pack] = []
        self._count = 0
        self._kinds: dict[Call, int] = {}
        self._known_calls: list[Call] = []  # of each kind
        self._calls: list[int] = []  # the kind of each
        self._places: list[Mapping[int, int]] = []  # of each rank in each kind of call
        self._groups: dict[tuple[int, ...], Mapping[int, int]] = {}
        self._last: dict[int, tuple[int, ...]] = {}
        self._sequences: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        self._made: dict[tuple[int, str, tuple[int, ...]], int] = {}  # calls of a sequence that a rank has found
        self._found: list[tuple[str, tuple[int, ...]]] | None = None  # sequences of the calls of a pattern
        # Calls of a group that are like those of a kind, in their order.
        self._images: dict[tuple[int, tuple[int, ...]], NDArray[np.int64]] = {}

    def compute_beside(self, rank: int, duration: int, timer: str, *, after: Iterable[int]) -> int:
        """Run a kernel beside the main stream for `duration` ps once `after` are done; returns the op's index."""
        return self._add((rank, COMPUTE, OVERLAPPED_STREAM, self._timers[timer], NONE, NONE, duration), set(after))

    def compute(self, rank: int, duration: int, timer: str, *, after: Iterable[int] = ()) -> int:
        """Keep `rank` busy for `duration` ps; returns the op's index."""
        row = (rank, COMPUTE, MAIN_STREAM, self._timers[timer], NONE, NONE, duration)
        index = self._add(row, self._before(rank, after))
        self._last[rank] = (index,)
        return index

    def issue(self, rank: int, duration: int, timer: str, *, after: Iterable[int]) -> int:
        """Let the host of `rank` issue kernels for `duration` ps once `after` are done; returns the op's index."""
        return self._add((rank, HOST, HOST_STREAM, self._timers[timer], NONE, NONE, duration), set(after))

    def next_call(self, rank: int, call: Call) -> int:
        """Register the next call of a group and dimension, or find it where another rank has.

        All ranks of a group make the same calls in the same order.
        """
        place = (rank, call.dimension, call.ranks)
        number = self._made.get(place, 0)
        self._made[place] = number + 1
        calls = self._sequences.setdefault(place[1:], [])
        if self._found is not None:
            self._found.append(place[1:])
        if number == len(calls):
            calls.append(self.call(call))
        return calls[number]

    def record(self, rank: int, add: Callable[[], None]) -> RepeatedOps:
        """Let `add` add ops of `rank` that can be repeated.

        They join calls by `next_call`, wait for one another and for what was last, and for nothing else. Passes of a
        chunk that has nothing to do add none.
        """
        self._pack()
        start, packs, self._found = self._count, len(self._packed), []
        add()
        self._pack()
        rows, edges = _joined(self._packed[packs:])
        inside = edges[:, 0] >= start
        sequences: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for row, sequence in zip(np.flatnonzero(rows[:, _CALL] >= 0).tolist(), self._found, strict=True):
            sequences.setdefault(sequence, []).append(row)
        calls = {
            sequence: (np.array(places), [self._calls[rows[place, _CALL]] for place in places])
            for sequence, places in sequences.items()
        }
        self._found = None
        heads = tuple(dict.fromkeys((edges[~inside, 1] - start).tolist()))
        ends = tuple(op - start for op in self.last(rank))
        return RepeatedOps(rows, edges[inside] - start, heads, ends, calls)

    def repeat(self, rank: int, pattern: RepeatedOps) -> None:
        """Add the ops of a pattern of `rank` once more."""
        if not len(pattern.rows):  # its ends are those of what was before
            return
        self._pack()
        rows, start = pattern.rows.copy(), self._count
        for sequence, (places, wanted) in pattern.calls.items():
            known, place = self._sequences[sequence], (rank, *sequence)
            first = self._made[place]
            new = wanted[max(len(known) - first, 0) :]
            known.extend(range(len(self._calls), len(self._calls) + len(new)))
            self._calls += new
            self._made[place] = first + len(wanted)
            rows[places, _CALL] = known[first : first + len(wanted)]
        before = [(op, start + head) for head in pattern.heads for op in self.last(rank)]
        edges = np.concatenate([np.array(before, np.int64).reshape(-1, 2), pattern.edges + start])
        self._packed.append((rows.ravel(), edges.ravel()))
        self._count += len(rows)
        self._last[rank] = tuple(start + end for end in pattern.ends)

    def record_rank(self, add: Callable[[], None]) -> RankPattern:
        """Let `add` add all ops of a rank, which wait for no others."""
        self._pack()
        start, packs = self._count, len(self._packed)
        add()
        self._pack()
        rows, edges = _joined(self._packed[packs:])
        joins = np.flatnonzero(rows[:, _CALL] >= 0)
        calls, joined = np.unique(rows[joins, _CALL], return_inverse=True)
        kinds = np.array(self._calls, np.int64)[calls]
        by_kind = [(kind, np.flatnonzero(kinds == kind)) for kind in dict.fromkeys(kinds.tolist())]
        return RankPattern(rows, edges - start, joins, joined, calls, by_kind)

    def repeat_rank(self, rank: int, pattern: RankPattern, group_of: Callable[[Call], tuple[int, ...]]) -> None:
        """Add all ops of a rank that is like another.

        `group_of`: gives the group of the rank that is like that of a call of the other.
        """
        self._pack()
        groups = {kind: group_of(self._known_calls[kind]) for kind, _ in pattern.kinds}
        self._add_images(pattern, groups)
        calls, members = np.empty((2, len(pattern.calls)), np.int64)
        for kind, places in pattern.kinds:
            group = groups[kind]
            calls[places], members[places] = self._images[kind, group], self._groups[group][rank]
        rows = pattern.rows.copy()
        rows[:, _RANK] = rank
        rows[pattern.joins, _CALL], rows[pattern.joins, _MEMBER] = calls[pattern.joined], members[pattern.joined]
        self._packed.append((rows.ravel(), (pattern.edges + self._count).ravel()))
        self._count += len(rows)

    def _add_images(self, pattern: RankPattern, groups: Mapping[int, tuple[int, ...]]) -> None:
        """Register the calls of `groups` that are like those of a pattern, in the same order, if that is not done yet.

        All ranks of a group join all its calls, so that those of a kind are known together.
        """
        new = []
        for kind, places in pattern.kinds:
            like, group = self._known_calls[kind], groups[kind]
            if like.ranks == group:
                self._images[kind, group] = pattern.calls[places]
            elif (kind, group) not in self._images:
                new.append((self._kind(replace(like, ranks=group)), kind, places))
        if not new:
            return
        places = np.sort(np.concatenate([places for *_, places in new]))
        kinds = np.empty(len(pattern.calls), np.int64)
        for other, kind, own in new:
            kinds[own] = other
            self._images[kind, groups[kind]] = len(self._calls) + np.searchsorted(places, own)
        self._calls += kinds[places].tolist()

    def call(self, call: Call) -> int:
        """Register a collective call; every one of its ranks must `join` it once, if it has ops at all."""
        self._calls.append(self._kind(call))
        return len(self._calls) - 1

    def _kind(self, call: Call) -> int:
        """Give the number of a kind of call."""
        kind = self._kinds.setdefault(call, len(self._kinds))
        if kind == len(self._known_calls):
            places = self._groups.get(call.ranks)
            if places is None:
                places = self._groups[call.ranks] = {rank: place for place, rank in enumerate(call.ranks)}
            self._places.append(places)
            self._known_calls.append(call)
        return kind

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
        if not calls:
            return []
        before = self._before(rank, after)
        ops = [self._add(self._part(call, rank, timer, MAIN_STREAM), before) for call in calls]
        self._last[rank] = tuple(ops)
        return ops

    def last(self, rank: int) -> tuple[int, ...]:
        """Return the ops that the next main-stream op of `rank` waits for."""
        return self._last.get(rank, ())

    def wait(self, rank: int, ops: Iterable[int]) -> None:
        """Let the next main-stream op of `rank` wait for further ops."""
        self._last[rank] = tuple(dict.fromkeys((*self.last(rank), *ops)))

    def _before(self, rank: int, after: Iterable[int]) -> Iterable[int]:
        last = self.last(rank)
        return {*after, *last} if after else last

    def _part(self, call: int, rank: int, timer: str, stream: int) -> tuple[int, ...]:
        return (rank, COLLECTIVE, stream, self._timers[timer], call, self._places[self._calls[call]][rank], 0)

    def _add(self, row: tuple[int, ...], before: Iterable[int]) -> int:
        index = self._count
        self._count += 1
        self._ops += row
        for op in before:
            self._edges += (op, index)
        if not self._count % _PACK:
            self._pack()
        return index

    def _pack(self) -> None:
        """Turn what has been added into arrays: a Python integer takes several times the space."""
        if not self._ops and self._packed:
            return
        self._packed.append((np.array(self._ops, np.int64), np.array(self._edges, np.int64)))
        self._ops.clear()
        self._edges.clear()

    def build(self) -> Program:
        """Freeze the program.

        Raises SimulationError if a rank of a call has not joined it exactly once, or one that another stands for has
            ops.
        """
        self._pack()
        rows, edges = _joined(self._packed)
        ops, successors = assemble(rows, edges)
        self._check_joined(ops)
        ranks = int(ops["rank"].max()) + 1 if self._ranks is None else self._ranks
        some = None if self._representatives is None else tuple(sorted(self._representatives))
        calls = CallList(tuple(self._kinds), np.array(self._calls, np.int64))
        return Program(ops, successors, calls, tuple(self._timers), ranks, some)

    def _check_joined(self, ops: NDArray[np.void]) -> None:
        some = self._representatives
        if some is not None and not some.issuperset(ops["rank"].tolist()):
            msg = f"rank {min(set(ops['rank'].tolist()) - some)} has operations, yet another rank stands for it"
            raise SimulationError(msg)
        joined = ops["call"][ops["kind"] == COLLECTIVE]
        counts = np.bincount(joined, minlength=len(self._calls))
        taking_part = {group: len(group) if some is None else len(some.intersection(group)) for group in self._groups}
        kinds = list(self._kinds)
        wanted = np.array([taking_part[call.ranks] for call in kinds], np.int64)[np.array(self._calls, np.int64)]
        for index in np.flatnonzero(counts != wanted).tolist():
            call = kinds[self._calls[index]]
            msg = f"{call.collective} over {len(call.ranks)} ranks was joined {counts[index]} times"
            raise SimulationError(msg if some is None else f"{msg}, not {wanted[index]}")


def _joined(packs: Sequence[_Pack]) -> _Pack:
    """Put packs one behind the other: columns of ops, shape ``(n_ops, columns)``, and edges, shape ``(n_edges, 2)``."""
    empty = np.empty(0, np.int64)
    rows, edges = (np.concatenate([empty, *(pack[part] for pack in packs)]) for part in (0, 1))
    return rows.reshape(-1, len(COLUMNS)), edges.reshape(-1, 2)
