"""What ranks did, as slices of their streams and threads, with arrows from sends to receives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, MAIN_STREAM, NONE
from fabricsim.report.trace_events.digits import integers, lines, microseconds, padded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fabricsim.report.trace_events.digits import Part
    from fabricsim.results.result import CallKind, RunRecord

STEPS, COMPUTE_STREAM, BESIDE_STREAM, HOST_THREAD, FIRST_STREAM = 0, 7, 100, 500, 1000
"""Threads of a rank: its steps, its kernels, those beside them, its host; and from the last on a thousand numbers for
the collectives of each dimension, as NCCL has a stream for each communicator."""
_MOST_RANKS = 2**24
_LARGEST = 2**63
_FEW = 32
_AT_ONCE = 2**15
"""Slices whose text is in memory at once."""

_NAMES = {
    "all_reduce": ("AllReduce", "allreduce"),
    "reduce_scatter": ("ReduceScatter", "_reduce_scatter_base"),
    "all_gather": ("AllGather", "_allgather_base"),
    "broadcast": ("Broadcast", "broadcast"),
    "reduce": ("Reduce", "reduce"),
    "all_to_all": ("SendRecv", "all_to_all"),
}
"""Of NCCL's kernel, and PyTorch's of the collective."""


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

    def ranks(self, *, each: bool = False) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.int64]]]:
        """Give some ranks at a time, or `each` alone: their numbers, and op and thread of what is drawn of them."""
        rank = self.result.ops["rank"][self.order]
        bounds = [*np.flatnonzero(np.diff(rank, prepend=-1)).tolist(), len(rank)]
        first = 0
        for place in range(1, len(bounds)):
            if each or bounds[place] - bounds[first] >= _AT_ONCE or place + 1 == len(bounds):
                some = self.order[bounds[first] : bounds[place]]
                yield rank[bounds[first:place]].tolist(), some, threads_of(self.result, some)
                first = place

    def text(self, some: NDArray[np.int64], threads: NDArray[np.int64]) -> Iterator[bytes | memoryview]:
        """Write ops, each ended by a comma; `threads` as of `threads_of`."""
        for begin in range(0, len(some), _AT_ONCE):
            yield from self._text(some[begin : begin + _AT_ONCE], threads[begin : begin + _AT_ONCE])

    def _text(self, some: NDArray[np.int64], threads: NDArray[np.int64]) -> Iterator[bytes | memoryview]:
        ops, calls = self.result.ops[some], self.result.calls
        collective = ops["kind"] == COLLECTIVE
        kind = np.where(collective, calls.kind[ops["call"]] if len(calls) else 0, NONE)
        sends = collective & self.groups.paired[ops["call"]] & (ops["member"] == 0) if len(calls) else collective
        which = np.where(collective, kind, ops["timer"])
        labels = (ops["kind"] * np.int64(2**40) + which) * 2 + sends
        order = np.argsort(labels, kind="stable")
        bounds = np.flatnonzero(np.diff(labels[order])) + 1
        for here in np.split(order, bounds):
            first = here[0]
            yield self._alike(ops[first], int(which[first]), bool(sends[first]), some[here], threads[here])
        yield from self._arrows(some, threads)

    def _alike(
        self,
        op: np.void,
        which: int,
        sends: bool,  # noqa: FBT001  private
        some: NDArray[np.int64],
        threads: NDArray[np.int64],
    ) -> memoryview:
        """Write ops like `op`; `which` is their kind of call or their timer."""
        kind = op["kind"]
        spans, result = self.result.spans[some], self.result
        rank, stream = integers(result.ops["rank"][some].astype(np.int64)), integers(threads)
        times: list[Part] = [*_place(rank, stream), b',"ts":', *microseconds(spans["start"])]
        times += [b',"dur":', *microseconds(spans["end"] - spans["start"])]
        if kind == HOST:
            head = _head("X", "cpu_op", result.timers[which])
            return lines(len(some), [head, *times, b"},\n"])
        number = integers(some + 1)
        on_device: list[Part] = [b',"args":{"device":', rank, b',"stream":', stream, b',"correlation":', number]
        if kind == COMPUTE:
            head = _head("X", "kernel", result.timers[which])
            return lines(len(some), [head, *times, *on_device, b"}},\n"])
        call = result.calls.kinds[which]
        head = _head("X", "kernel", f"ncclDevKernel_{_NAMES.get(call.collective, ('SendRecv', ''))[0]}")
        return lines(len(some), [head, *times, *on_device, *self._message(call, sends, some), b"}},\n"])

    def _message(self, kind: CallKind, sends: bool, some: NDArray[np.int64]) -> list[Part]:  # noqa: FBT001  private
        """Say what a collective moves, as PyTorch's profiler does; elements are bytes."""
        paired = kind.collective == "send_recv" and kind.ranks == 2  # noqa: PLR2004  a sender and a receiver
        pair = ("send", "Dst Rank") if sends else ("recv", "Src Rank")
        name = pair[0] if paired else _NAMES.get(kind.collective, ("", kind.collective))[1]
        share = kind.size // kind.ranks
        into = share if kind.collective == "all_gather" else kind.size
        out = share if kind.collective == "reduce_scatter" else kind.size
        told = {"Collective name": name, "In msg nelems": into, "Out msg nelems": out, "dtype": "Byte"}
        told |= {"Group size": kind.ranks, "Process Group Description": kind.dimension}
        call = self.result.ops["call"][some]
        group = padded(self.groups.number[call])
        parts: list[Part] = [b",", json.dumps(told)[1:-1].encode(), b',"Process Group Name":"', group, b'"']
        peer = self.groups.ends[call, int(sends)] if paired else np.array([NONE])
        return [*parts, f',"{pair[1]}":'.encode(), integers(peer)] if (peer >= 0).all() else parts

    def _arrows(self, some: NDArray[np.int64], threads: NDArray[np.int64]) -> Iterator[bytes | memoryview]:
        """Lead from each send to its receive."""
        ops, spans = self.result.ops[some], self.result.spans[some]
        if not len(self.result.calls):
            return
        joined = (ops["kind"] == COLLECTIVE) & self.groups.joined[ops["call"]]
        for phase, member in ((b'"s"', 0), (b'"f","bp":"e"', 1)):
            here = np.flatnonzero(joined & (ops["member"] == member))
            if not len(here):
                continue
            call, span = ops["call"][here].astype(np.int64), spans[here]
            moves = np.maximum(self.result.calls.start[call], span["start"])
            at = np.where(moves < span["end"], moves, span["start"]) if member else span["start"]
            place = _place(integers(ops["rank"][here].astype(np.int64)), integers(threads[here]))
            head = b'{"ph":' + phase + b',"cat":"send_recv","name":"send_recv"'
            yield lines(len(here), [head, *place, b',"id":', integers(call), b',"ts":', *microseconds(at), b"},\n"])


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
        names = dimensions(result)
        dimension = np.array([names.index(kind.dimension) for kind in calls.kinds], np.int64)[calls.kind]
        # calls whose members have the same sum of random numbers have the same members
        sums = np.concatenate([[0], np.cumsum(_mixed(rank * _MOST_RANKS + member))]).astype(np.uint64)
        sums = sums[begins[1:]] - sums[begins[:-1]] + _mixed(dimension * _MOST_RANKS + sizes)
        _, first, number = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        members = [tuple(rank[begins[each] : begins[each + 1]].tolist()) for each in first[order].tolist()]
        whole = [some if len(some) == sizes[each] else () for some, each in zip(members, first[order], strict=True)]
        number = np.argsort(order)[number]
        return cls(number, whole, pairs[calls.kind], ends)


def threads_of(result: RunRecord, some: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each op the number of its stream or thread; those of one thread do not overlap.

    `some`: ops of whole ranks.
    """
    ops, spans = result.ops[some], result.spans[some]
    names = {name: place for place, name in enumerate(dimensions(result))}
    of_kind = np.array([names[kind.dimension] for kind in result.calls.kinds], np.int64)
    base = np.where(ops["stream"] == MAIN_STREAM, COMPUTE_STREAM, BESIDE_STREAM)
    base[ops["kind"] == HOST] = HOST_THREAD
    collective = ops["kind"] == COLLECTIVE
    base[collective] = FIRST_STREAM * (1 + of_kind[result.calls.kind[ops["call"][collective]]])
    key = ops["rank"] * np.int64(len(names) + 2) * FIRST_STREAM + base
    order = np.lexsort((-spans["end"], spans["start"], key))
    key, start, end = key[order], spans["start"][order], spans["end"][order]
    lane = _lanes(np.cumsum(np.diff(key, prepend=key[:1]) != 0), start, end)
    threads = np.empty(len(some), np.int64)
    threads[order] = base[order] + lane
    return threads


def dimensions(result: RunRecord) -> list[str]:
    """Name the dimensions of the calls in the order in which the program has them."""
    return list(dict.fromkeys(kind.dimension for kind in result.calls.kinds))


def _lanes(group: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each span the first lane of its group that is free; spans in order of their group and start."""
    lane = np.zeros(len(start), np.int64)
    if not len(start):
        return lane
    if (int(group[-1]) + 1) * (int(end.max()) + 1) >= _LARGEST:  # their order will do
        start, end = np.unique(np.concatenate([start, end]), return_inverse=True)[1].reshape(2, -1)
    offset = group * (int(end.max()) + 1)
    begin, until = start + offset, np.maximum.accumulate(end + offset)
    # spans that overlap lie in one bunch; bunches of few spans are gone through side by side
    fresh = np.flatnonzero(np.concatenate([[True], begin[1:] >= until[:-1]]))
    sizes = np.diff(fresh, append=len(start))
    few = (sizes > 1) & (sizes <= _FEW)
    lane += _side_by_side(fresh[few], sizes[few], start, end)
    for first, size in zip(fresh[sizes > _FEW].tolist(), sizes[sizes > _FEW].tolist(), strict=True):
        some = slice(first, first + size)
        lane[some] = _first_fit(start[some].tolist(), end[some].tolist())
    return lane


def _side_by_side(
    fresh: NDArray[np.int64], sizes: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Lanes of the spans of some bunches, which begin at `fresh`: of each bunch the first span, then the second, ..."""
    lane = np.zeros(len(start), np.int64)
    free = np.zeros((len(fresh), int(sizes.max(initial=0))), np.int64)
    for place in range(free.shape[1]):
        bunch = np.flatnonzero(sizes > place)
        span = fresh[bunch] + place
        chosen = (free[bunch] <= start[span, None]).argmax(axis=1)
        free[bunch, chosen] = end[span]
        lane[span] = chosen
    return lane


def _first_fit(starts: list[int], ends: list[int]) -> list[int]:
    free: list[int] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = 0
        while lane < len(free) and free[lane] > start:
            lane += 1
        if lane == len(free):
            free.append(end)
        free[lane] = end
        lanes.append(min(lane, FIRST_STREAM - 1))
    return lanes


def _mixed(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Make random numbers of numbers (SplitMix64: Steele, Lea and Flood 2014)."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _place(rank: Part, thread: Part) -> list[Part]:
    return [b',"pid":', rank, b',"tid":', thread]


def _head(phase: str, category: str, name: str) -> bytes:
    return json.dumps({"ph": phase, "cat": category, "name": name})[:-1].encode()
