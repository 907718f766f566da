"""What ranks did, as slices of their streams and threads, with arrows from sends to receives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.jit.compile import kernel
from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, MAIN_STREAM, NONE
from fabricsim.report.trace_events.lines import MICROSECONDS, Lines, Number, Template, compact, lines
from fabricsim.results.places import places
from fabricsim.results.result import CallKind, RunRecord

STEPS, COMPUTE_STREAM, BESIDE_STREAM, HOST_THREAD, FIRST_STREAM = 0, 7, 100, 500, 1000
"""Threads of a rank: its steps, its kernels, those beside them, its host; and from the last on a thousand numbers for
the collectives of each dimension, as NCCL has a stream for each communicator. What overlaps has a thread each, up to
the next of these numbers; the host has one."""
_OF_RANKS = (COMPUTE_STREAM, BESIDE_STREAM, HOST_THREAD)
_MOST_RANKS = 2**24
_AT_ONCE = 2**15
"""Slices whose text is in memory at once."""

RANK, THREAD = Number(0), Number(1)
PLACE: Template = [b',"pid":', RANK, b',"tid":', THREAD]
_START, _TIME, _OP, _GROUP, _PEER = range(2, 7)
"""Columns of slices behind their rank and thread."""
_KINDS = max(COMPUTE, COLLECTIVE, HOST) + 1

_NAMES = {
    "all_reduce": ("AllReduce", "allreduce"),
    "reduce_scatter": ("ReduceScatter", "_reduce_scatter_base"),
    "all_gather": ("AllGather", "_allgather_base"),
    "broadcast": ("Broadcast", "broadcast"),
    "reduce": ("Reduce", "reduce"),
    "all_to_all": ("SendRecv", "all_to_all"),
}
"""Of NCCL's kernel, and PyTorch's of the collective."""


class DrawnOps(NamedTuple):
    """Ops that are drawn: their numbers, threads, and times at which their slices begin, ps; shape ``(n,)`` each."""

    ops: NDArray[np.int64]
    threads: NDArray[np.int64]
    starts: NDArray[np.int64]

    def some(self, chosen: slice | NDArray[np.bool_]) -> DrawnOps:
        """Take some of them."""
        return DrawnOps(*(column[chosen] for column in self))


@dataclass(frozen=True, eq=False)
class Slices:
    """What is drawn of a run, by rank.

    `result`: the run.
    `order`: ops that are drawn, by rank, shape ``(n,)``.
    `groups`: who takes part in which call.
    """

    result: RunRecord
    order: NDArray[np.int64]
    groups: CallGroups

    @classmethod
    def of(cls, result: RunRecord) -> Slices:
        """Choose what is drawn: what took time, and collectives in any case."""
        ops, spans = result.ops, result.spans
        # what lies between the ops of a device is no op of it
        between = (ops["kind"] == HOST) & (ops["stream"] == MAIN_STREAM)
        drawn = np.flatnonzero(((spans["end"] > spans["start"]) | (ops["kind"] == COLLECTIVE)) & ~between)
        return cls(result, drawn[np.argsort(ops["rank"][drawn], kind="stable")], CallGroups.of(result))

    @cached_property
    def places(self) -> list[tuple[str, int, int]]:
        """The dimensions of the job."""
        return places(self.result)

    def ranks(self, *, each: bool = False) -> Iterator[tuple[list[int], DrawnOps]]:
        """Give some ranks at a time, or `each` alone: their numbers, and what is drawn of them."""
        rank = self.result.ops["rank"][self.order]
        bounds = [*np.flatnonzero(np.diff(rank, prepend=-1)).tolist(), len(rank)]
        first = 0
        for place in range(1, len(bounds)):
            if each or place + 1 == len(bounds) or bounds[place + 1] - bounds[first] > _AT_ONCE:
                some = self.order[bounds[first] : bounds[place]]
                yield rank[bounds[first:place]].tolist(), drawn_of(self.result, some)
                first = place

    def text(self, drawn: DrawnOps) -> Iterator[Lines]:
        """Write ops, each ended by a comma."""
        for begin in range(0, len(drawn.ops), _AT_ONCE):
            here = drawn.some(slice(begin, begin + _AT_ONCE))
            yield self._slices(here)
            if len(self.result.calls):
                yield self._arrows(here)

    def _slices(self, drawn: DrawnOps) -> Lines:
        ops, ends, calls = self.result.ops.take(drawn.ops), self.result.spans["end"][drawn.ops], self.result.calls
        which, sends, known = ops["timer"].astype(np.int64), 0, 0
        group = peer = call = ops["call"]
        if len(calls):
            collective = ops["kind"] == COLLECTIVE
            paired, first = collective & self.groups.paired[call], ops["member"] == 0
            group, peer = self.groups.number[call], self.groups.ends[call, first.astype(np.int64)]
            which, sends, known = np.where(collective, calls.kind[call], which), paired & first, paired & (peer >= 0)
        alike = ((which * 2 + sends) * 2 + known) * _KINDS + ops["kind"]
        used = np.bincount(alike) > 0
        templates = [self._template(each) for each in np.flatnonzero(used).tolist()]
        times = (drawn.starts, ends - drawn.starts)
        columns = (ops["rank"], drawn.threads, *times, drawn.ops + 1, group, peer)
        return lines(templates, (np.cumsum(used) - 1)[alike], columns)

    def _template(self, alike: int) -> Template:
        """Say what ops have in common that differ in numbers alone; `alike` counts them as `_slices` does."""
        which, kind = divmod(alike, _KINDS)
        times: Template = [*PLACE, b',"ts":', Number(_START, MICROSECONDS), b',"dur":', Number(_TIME, MICROSECONDS)]
        if kind == HOST:
            return [_head("X", "cpu_op", self.result.timers[which // 4]), *times, b"},\n"]
        device: Template = [b',"args":{"device":', RANK, b',"stream":', THREAD, b',"correlation":', Number(_OP)]
        if kind == COMPUTE:
            return [_head("X", "kernel", self.result.timers[which // 4]), *times, *device, b"}},\n"]
        call = self.result.calls.kinds[which // 4]
        head = _head("X", "kernel", f"ncclDevKernel_{_NAMES.get(call.collective, ('SendRecv', ''))[0]}")
        return [head, *times, *device, *_message(call, sends=which & 2 > 0, known=which & 1 > 0), b"}},\n"]

    def _arrows(self, drawn: DrawnOps) -> Lines:
        """Lead from each send to its receive."""
        ops = self.result.ops.take(drawn.ops)
        joined = (ops["kind"] == COLLECTIVE) & self.groups.joined[ops["call"]] & (ops["member"] <= 1)
        ops, here = ops[joined], drawn.some(joined)
        moves = np.maximum(self.result.calls.start[ops["call"]], here.starts)
        within = (ops["member"] == 1) & (moves < self.result.spans["end"][here.ops])
        at = np.where(within, moves, here.starts)
        rest: Template = [*PLACE, b',"id":', Number(2), b',"ts":', Number(3, MICROSECONDS), b"},\n"]
        ends = [_head("s", *["send_recv"] * 2), _head("f", *["send_recv"] * 2) + b',"bp":"e"']
        return lines([[end, *rest] for end in ends], ops["member"], (ops["rank"], here.threads, ops["call"], at))


@dataclass(frozen=True, eq=False)
class CallGroups:
    """Who takes part in which call, as far as its ops tell.

    `number`: of its group, shape ``(calls,)``.
    `members`: of each group, empty if not all are simulated.
    `paired`: whether it is one message from its first member to its second, shape ``(calls,)``.
    `ends`: ranks of its first and second member, NONE if not simulated, shape ``(calls, 2)``.
    """

    number: NDArray[np.int64]
    members: list[tuple[int, ...]]
    paired: NDArray[np.bool_]
    ends: NDArray[np.int64]

    @cached_property
    def joined(self) -> NDArray[np.bool_]:
        """Whether it is a message whose ends are both known, shape ``(calls,)``."""
        first, second = self.ends.T
        joined: NDArray[np.bool_] = self.paired & (first >= 0) & (second >= 0) & (first != second)
        return joined

    @classmethod
    def of(cls, result: RunRecord) -> CallGroups:
        """Gather the groups of a run."""
        ops, calls = result.ops, result.calls
        taking = np.flatnonzero(ops["kind"] == COLLECTIVE)
        taking = taking[np.lexsort((ops["member"][taking], ops["call"][taking]))]
        call, rank, member = (ops[name][taking].astype(np.int64) for name in ("call", "rank", "member"))
        begins = np.searchsorted(call, np.arange(len(calls) + 1))
        ends = np.full((len(calls), 2), NONE, np.int64)
        outer = (member == 0) | (member == 1)
        ends[call[outer], member[outer]] = rank[outer]
        sizes = np.array([kind.ranks for kind in calls.kinds], np.int64)[calls.kind]
        pairs = np.array([kind.collective == "send_recv" and kind.ranks == 2 for kind in calls.kinds], bool)  # noqa: PLR2004  a sender and a receiver
        names = calls.dimensions
        dimension = np.array([names.index(kind.dimension) for kind in calls.kinds], np.int64)[calls.kind]
        # calls whose members have the same sum of random numbers have the same members
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(rank * _MOST_RANKS + member))])
        sums = sums[begins[1:]] - sums[begins[:-1]] + _mixed(dimension * _MOST_RANKS + sizes)
        _, first, number = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        chosen = first[order]
        bounds = zip(*(part.tolist() for part in (begins[chosen], begins[chosen + 1], sizes[chosen])), strict=True)
        whole = [tuple(rank[begin:end].tolist()) if end - begin == size else () for begin, end, size in bounds]
        number = np.argsort(order)[number]
        return cls(number, whole, pairs[calls.kind], ends)


def drawn_of(result: RunRecord, some: NDArray[np.int64]) -> DrawnOps:
    """Give each op the number of its stream or thread, and a start, so that no two slices of a thread overlap.

    An op of the host says what holds a kernel up, from the begin of the pass: what a host does for it begins when the
    op before is done. Of what finds no thread of its own any more, slices follow one another likewise.

    `some`: ops of whole ranks.
    Returns: all but ops of the host for which nothing is left to do.
    """
    ops, spans = result.ops.take(some), result.spans[some]
    places = {name: place for place, name in enumerate(result.calls.dimensions, len(_OF_RANKS))}
    bases = np.array([*_OF_RANKS, *range(FIRST_STREAM, FIRST_STREAM * (len(places) + 2), FIRST_STREAM)])
    most = np.diff(bases)
    most[_OF_RANKS.index(HOST_THREAD)] = 1
    of_kind = np.array([places[kind.dimension] for kind in result.calls.kinds], np.int64)
    place = np.where(ops["kind"] == HOST, _OF_RANKS.index(HOST_THREAD), ops["stream"] != MAIN_STREAM).astype(np.int64)
    collective = ops["kind"] == COLLECTIVE
    calls: NDArray[np.int64] = ops["call"][collective]
    place[collective] = of_kind[result.calls.kind[calls]]
    stream = (ops["rank"] - ops["rank"].min(initial=_MOST_RANKS)) * np.int64(len(bases)) + place
    order = _by_start(stream, spans["start"])
    group = np.cumsum(np.diff(stream[order], prepend=stream[order[:1]]) != 0)
    found = np.empty(len(some), np.int64)
    _first_fit(found, np.empty_like(found), group, spans["start"][order], spans["end"][order])
    lane = np.empty_like(found)
    lane[order] = found
    last = lane >= most[place] - 1
    starts = spans["start"].copy()
    starts[last] = _one_after_another(stream[last], starts[last], spans["end"][last])
    drawn = DrawnOps(some, bases[place] + np.minimum(lane, most[place] - 1), starts)
    return drawn.some((spans["end"] > starts) | (ops["kind"] != HOST))


def _one_after_another(
    stream: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Let each span of a stream begin no sooner than the one that ended before it; gives the starts."""
    order = np.lexsort((start, end, stream))
    same = np.diff(stream[order], prepend=NONE) == 0
    before = np.where(same, np.roll(end[order], 1), 0)
    starts = np.empty_like(start)
    starts[order] = np.maximum(start[order], before)
    return starts


def _by_start(stream: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order spans by stream and start; those of a stream mostly come in the order in which they start."""
    order = np.argsort(stream.astype(np.min_scalar_type(int(stream.max(initial=0)))), kind="stable")
    stream, start = stream[order], start[order]
    ordered = (np.diff(start) >= 0) | (np.diff(stream) > 0)
    return order if ordered.all() else order[np.lexsort((start, stream))]


@kernel
def _first_fit(
    lane: NDArray[np.int64],
    free: NDArray[np.int64],
    group: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> None:
    """Give each span the first `lane` of its group that is free; spans in order of their group and start.

    `free`: for when each lane is free, as long as there are spans.
    """
    lanes = 0
    for span in range(len(start)):
        if span > 0 and group[span] != group[span - 1]:
            lanes = 0
        place = 0
        while place < lanes and free[place] > start[span]:
            place += 1
        lanes = max(lanes, place + 1)
        free[place] = end[span]
        lane[span] = place


def _mixed(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Make random numbers of numbers (SplitMix64: Steele, Lea and Flood 2014)."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _message(kind: CallKind, *, sends: bool, known: bool) -> Template:
    """Say what a collective moves, as PyTorch's profiler does; elements are bytes."""
    paired = kind.collective == "send_recv" and kind.ranks == 2  # noqa: PLR2004  a sender and a receiver
    pair = ("send", "Dst Rank") if sends else ("recv", "Src Rank")
    name = pair[0] if paired else _NAMES.get(kind.collective, ("", kind.collective))[1]
    share = kind.size // kind.ranks
    into = share if kind.collective == "all_gather" else kind.size
    out = share if kind.collective == "reduce_scatter" else kind.size
    told = {"Collective name": name, "In msg nelems": into, "Out msg nelems": out, "dtype": "Byte"}
    told |= {"Group size": kind.ranks, "Process Group Description": kind.dimension}
    group: Template = [b",", compact(told)[1:-1], b',"Process Group Name":"', Number(_GROUP, 8), b'"']
    return [*group, f',"{pair[1]}":'.encode(), Number(_PEER)] if known else group


def _head(phase: str, category: str, name: str) -> bytes:
    return compact({"ph": phase, "cat": category, "name": name})[:-1]
