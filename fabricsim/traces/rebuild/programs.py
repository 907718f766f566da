"""A trace made into a program: the DAG of all ranks, and what was captured of each part of it.

::

    Trace ── assign ──► Cast ─────────┐
      └── order ──► Ordered, per rank ┴─ match ──► Matched ──┬─ strand ──► Strand, per rank ──► Rebuilt
                        └────────────────────── delays ──────┘
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError, TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import shown
from fabricsim.traces.rebuild.cast import Cast, assign
from fabricsim.traces.rebuild.clocks import ENDS_TOGETHER, delays
from fabricsim.traces.rebuild.communicators import circle, in_turn, numbered
from fabricsim.traces.rebuild.dependencies import Ordered, delayed, order
from fabricsim.traces.rebuild.matching import Matched, match
from fabricsim.traces.rebuild.sizes import resized
from fabricsim.traces.rebuild.strand import TIMERS, Strand, strand
from fabricsim.traces.rebuild.wildcards import settled
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, Recording, Trace
from fabricsim.workload.acyclic import first_in_cycle
from fabricsim.workload.program import COLUMNS, Program, assemble

_SLOWEST = 1e-6  # of kernels, and how many times faster they may be
_CALL = COLUMNS.index("call")
_STAY = (*ENDS_TOGETHER, "recv")
"""Operations whose ranks are not through before the data of all others have come to them."""
MOST_OPERATIONS = 2**23
"""Of all ranks; one takes half a kilobyte while it is rebuilt."""
MOST_UNASKED = 2**21
"""The same if there are ranks that were not captured, and nobody but the file says so: damage may have made them up."""
MOST_UNASKED_RANKS = 2**16
"""Ranks, as above; each takes a quarter of a millisecond to rebuild, whatever it does."""
MOST_UNASKED_PAIRS = 2**17
"""Pairs of ranks between which all-to-alls send, as above; the fabric keeps a few kilobytes for each."""


@dataclass(frozen=True)
class Rebuilt:
    """A captured job as a program.

    `program`: of all ranks.
    `matches`: for each op that communicates the number of its communication, which those of other ranks share; NONE for
        other ops, shape ``(n_ops,)``.
    `names`: operation, group, ranks and bytes of each communication.
    `captured_transfers`: from when the last rank was ready until the last was done, as captured, ps, shape
        ``(n_communications,)``; NONE if not all of its ranks were captured.
    `step_numbers`: as the job numbers its steps.
    `steps`: ops with which each step of each captured rank begins and ends, shape ``(ranks, n_steps, 2)``.
    `captured_steps`: how long each took, ps, shape ``(ranks, n_steps)``.
    `captured_span`: from the first start to the last end of all that was captured, ps; NONE if that is not known.
    `assumptions`: what was assumed, a sentence each.
    `flops_per_rank`: of an iteration, as the trace says them of its kernels: mean of the captured ranks; 0 if it does
        not.
    `source`: file of the trace, of several the first.
    """

    program: Program
    matches: NDArray[np.int64]
    names: tuple[tuple[str, str, int, int], ...]
    captured_transfers: NDArray[np.int64]
    captured_parts: NDArray[np.int64]
    captured_ranks: tuple[int, ...]
    step_numbers: tuple[int, ...]
    steps: NDArray[np.int64]
    captured_steps: NDArray[np.int64]
    captured_span: int
    assumptions: tuple[str, ...]
    flops_per_rank: float
    source: str

    def refuse_circle(self) -> None:
        """Raise TraceError if ranks wait for one another in a circle of messages, so that none goes on."""
        stuck = np.unique(self.program.ops["rank"][circle(self.program.ops, self.program.successors)]).tolist()
        if stuck:
            msg = f"ranks {shown(stuck, 8)} wait for one another: what their messages depend on forms a circle; have a "
            raise TraceError(self.source, f"{msg}rank send before what it receives, or take out a dependency")

    @property
    def timed(self) -> bool:
        """Whether the trace says when its operations ran."""
        return self.captured_span != NONE


def rebuild(
    trace: Trace,
    *,
    gpu_speed: float = 1.0,
    message_size: float = 1.0,
    scale_to: int | None = None,
    ranks: int | None = None,
) -> Rebuilt:
    """Make a program of a trace.

    `gpu_speed`: how many times faster kernels and copies run than they were captured.
    `message_size`: how many times as many bytes each communication moves as it did.
    `scale_to`: ranks of the job to replay, where these are to be more than were captured.
    `ranks`: ranks of the captured job, if the trace does not say that.
    Raises TraceError if something that the program needs is not in the trace and cannot be assumed; InputError if
        kernels cannot run as many times faster.
    """
    if not _SLOWEST <= gpu_speed <= 1 / _SLOWEST:
        msg = f"gpu_speed (--gpu-speed) {gpu_speed}: kernels cannot run that many times faster; give a number from "
        msg += f"{_SLOWEST:g} to {1 / _SLOWEST:g}, such as 1.3"
        raise InputError(msg)
    trace = resized(trace, message_size)
    cast = assign(trace, scale_to, ranks)
    count = cast.replicas * sum(len(trace.recordings[index].nodes) for index in cast.of)
    if count > MOST_OPERATIONS:
        msg = f"makes {count} operations on {cast.ranks} ranks; at most {MOST_OPERATIONS} can be replayed"
        way_out = "give fewer iterations" + ", or scale to fewer ranks" * (scale_to is not None)
        raise TraceError(trace.recordings[0].source, f"{msg}; {way_out}")
    unasked = cast.ranks > len(trace.recordings) and scale_to is None and ranks is None
    if unasked and (count > MOST_UNASKED or cast.ranks > MOST_UNASKED_RANKS):
        raise _too_many(trace, cast, f"{count} operations")
    trace = settled(trace)
    ordered = [order(recording) for recording in trace.recordings]
    matched = match(cast, trace.recordings, ordered)
    groups = {call.ranks for call in matched.calls.kinds if call.collective == "all_to_all"}
    pairs = sum(len(group) ** 2 for group in groups)
    if unasked and pairs > MOST_UNASKED_PAIRS:
        raise _too_many(trace, cast, f"all-to-alls between {pairs} pairs")
    later = delays(trace.recordings, ordered, matched)
    ordered = [delayed(some, int(delay)) for some, delay in zip(ordered, later, strict=True)]
    strands = [
        strand(trace.recordings[index], ordered[index], matched.parts[rank], gpu_speed=gpu_speed)
        for rank, index in _ranks(cast)
    ]
    return _Weaver(trace, cast, ordered=ordered, matched=matched, later=later, strands=strands).rebuilt()


def _too_many(trace: Trace, cast: Cast, what: str) -> TraceError:
    msg = f"makes {what} on {cast.ranks} ranks, of which {len(trace.recordings)} were captured"
    return TraceError(
        trace.recordings[0].source, f"{msg}; if the job has so many, say so by ranks (--ranks {cast.ranks})"
    )


def _ranks(cast: Cast) -> list[tuple[int, int]]:
    """Each rank of the replayed job, and the recording that it repeats."""
    return [(rank, cast.of[rank % cast.captured]) for rank in range(cast.ranks)]


def _flops(recording: Recording) -> float:
    """FLOPs of an iteration of a rank: the mean of the steps that it marks, else all."""
    nodes = recording.nodes[(recording.nodes["kind"] == COMPUTE) & (recording.nodes["flops"] > 0)]
    steps = recording.steps
    if not len(steps):
        return float(nodes["flops"].sum(dtype=float))
    nodes = nodes[np.argsort(nodes["start"], kind="stable")]
    done = np.concatenate([[0.0], np.cumsum(nodes["flops"], dtype=float)])
    begun, ended = (done[np.searchsorted(nodes["start"], steps[column])] for column in ("start", "end"))
    return float(np.mean(ended - begun))


class _Weaver:
    """Puts the strands of all ranks together."""

    def __init__(  # noqa: PLR0913  what the steps before have found
        self,
        trace: Trace,
        cast: Cast,
        *,
        ordered: Sequence[Ordered],
        matched: Matched,
        later: NDArray[np.int64],
        strands: Sequence[Strand],
    ) -> None:
        self.trace, self.cast, self.ordered, self.matched = trace, cast, ordered, matched
        self.later, self.strands = later, strands
        self.cut: tuple[int, ...] = ()  # steps that are left aside
        counts = [len(some.rows) for some in strands]
        self.first = np.cumsum([0, *counts])[:-1]

    def rebuilt(self) -> Rebuilt:
        """Make the program, and collect what was captured."""
        program = self._program()
        captured = {recording.rank: index for index, recording in enumerate(self.trace.recordings)}
        numbers, steps, times = self._steps(captured)
        return Rebuilt(
            program,
            self._matches(),
            tuple(self._name(number) for number in range(len(self.matched.matches))),
            *self._transfers(),
            tuple(max(rank, 0) for rank in sorted(captured)),
            numbers,
            steps,
            times,
            self._span(),
            self._assumptions(),
            float(np.mean([_flops(recording) for recording in self.trace.recordings])),
            str(self.trace.recordings[0].source),
        )

    def _program(self) -> Program:
        rows = np.concatenate([some.rows for some in self.strands])
        rows[:, 0] = np.repeat(np.arange(len(self.strands)), [len(some.rows) for some in self.strands])
        edges = np.concatenate([some.edges + first for some, first in zip(self.strands, self.first, strict=True)])
        if not len(rows):
            raise TraceError(self.trace.recordings[0].source, "holds no operations; capture at least one iteration")
        ops, successors = assemble(rows, np.concatenate([edges, self._in_turn(rows, edges)]))
        columns = ("first_successor", "successors", "predecessors")
        first, count, waiting = (ops[column].astype(np.int64) for column in columns)
        stuck = first_in_cycle(first, count, successors, waiting, np.empty(len(ops), np.int64))
        if stuck != NONE:
            source = self.trace.recordings[self.cast.of[int(ops[stuck]["rank"]) % self.cast.captured]].source
            msg = "its operations wait for one another in a circle; the file is damaged, or its writer is wrong"
            raise TraceError(source, msg)
        return Program(ops, successors, self.matched.calls, TIMERS, len(self.strands))

    def _in_turn(self, rows: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Keep collectives of a group from running at once, if the trace has no order but its dependencies."""
        calls = self.matched.calls
        if not self._unordered() or not len(calls):
            return np.zeros((0, 2), np.int64)
        groups = numbered(
            [None if one.collective == "send_recv" else (one.dimension, one.ranks) for one in calls.kinds]
        )
        called = rows[:, _CALL]
        of_op = np.where(called >= 0, groups[calls.kind[called]], NONE)
        return in_turn(rows[:, 0], called, of_op, edges)

    def _unordered(self) -> bool:
        return all(kind == "any" for recording in self.trace.recordings for kind, _ in recording.lanes)

    def _matches(self) -> NDArray[np.int64]:
        moved = {
            number
            for mine, parts in zip(self.matched.numbers, self.matched.parts, strict=True)
            for number, some in zip(mine, parts, strict=True)
            if some
        }
        numbers = []
        for some, mine in zip(self.strands, self.matched.numbers, strict=True):
            # what moves nothing is no transfer; NONE is the last
            of_rank = np.array([*(number if number in moved else NONE for number in mine), NONE], np.int64)
            numbers.append(of_rank[some.communications])
        return np.concatenate(numbers)

    def _name(self, number: int) -> tuple[str, str, int, int]:
        found = self.matched.matches[number]
        recording, what, _ = next(iter(found.nodes.values()))
        group = "" if what.group == NONE else recording.groups[what.group].description
        if what.group != NONE and not group:
            group = recording.groups[what.group].name
        return what.operation, group, len(found.ranks), what.size if found.size == NONE else found.size

    def _transfers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Latest end less latest start of each communication, and how many of its ranks were captured."""
        count = len(self.matched.matches)
        start, end = np.full(count, NONE), np.full(count, NONE)
        seen, bounding = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for index, recording in enumerate(self.trace.recordings):
            nodes = self.ordered[index].nodes
            nodes = nodes[nodes["kind"] == COMMUNICATION]
            mine = np.array(self.matched.numbers[max(recording.rank, 0)], np.int64)
            begun = nodes["start"] + int(self.later[index])
            known = self.ordered[index].zero != NONE
            np.maximum.at(start, mine, begun if known else NONE)
            np.maximum.at(end, mine, begun + nodes["duration"] if known else NONE)
            np.add.at(seen, mine, known)
            stays = np.array([what.operation in _STAY for what in recording.communications], bool)
            np.add.at(bounding, mine, known and stays[nodes["communication"]])
        matches, took = self.matched.matches, np.maximum(end - start, 0)
        wanted = np.array([len(found.ranks) for found in matches], np.int64)
        as_captured = np.array([max(found.ranks) < self.cast.captured for found in matches], bool)
        bounded = as_captured & (bounding > 0) & (bounding == seen) & (took > 0)
        return np.where((seen == wanted) | bounded, took, NONE), seen

    def _steps(self, captured: dict[int, int]) -> tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int64]]:
        """Give the numbers of the steps that all have marked, their ops and their times."""
        # steps of which it is not known where they begin have no ops
        marked = [
            recording.steps["number"].tolist() if len(some.steps) else []
            for recording, some in zip(self.trace.recordings, self.ordered, strict=True)
        ]
        numbers = self._whole([number for number in marked[0] if all(number in some for some in marked)])
        ops = np.zeros((len(captured), len(numbers), 2), np.int64)
        times = np.zeros((len(captured), len(numbers)), np.int64)
        for place, (rank, index) in enumerate(sorted(captured.items())):
            chosen = [marked[index].index(number) for number in numbers]
            ops[place] = self.first[max(rank, 0)] + self.strands[max(rank, 0)].steps[chosen]
            times[place] = np.diff(self.ordered[index].marked[chosen])[:, 0]
        return numbers, ops, times

    def _whole(self, numbers: list[int]) -> tuple[int, ...]:
        """Leave aside steps in which communications are left out, if others remain."""
        cut: set[int] = set()
        for recording, ordered in zip(self.trace.recordings, self.ordered, strict=True):
            steps, nodes = recording.steps, ordered.nodes[ordered.nodes["kind"] == COMMUNICATION]
            if not len(steps) or not ordered.timed:
                continue
            mine = self.matched.numbers[max(recording.rank, 0)]
            gone = np.array([self.matched.matches[number].left_out for number in mine], bool)
            starts = nodes["start"][gone] + ordered.zero
            of = np.searchsorted(steps["start"], starts, "right") - 1
            cut.update(steps["number"][of[(of >= 0) & (starts < steps["end"][of])]].tolist())
        whole = tuple(number for number in numbers if number not in cut)
        self.cut = tuple(number for number in numbers if number in cut) if whole else ()
        return whole or tuple(numbers)

    def _span(self) -> int:
        if not all(some.timed for some in self.ordered):
            return NONE
        ends = [
            int((recording.nodes["start"] + np.maximum(recording.nodes["duration"], 0)).max(initial=some.zero))
            - some.zero
            for recording, some in zip(self.trace.recordings, self.ordered, strict=True)
        ]
        return max(end + int(delay) for end, delay in zip(ends, self.later.tolist(), strict=True))

    def _assumptions(self) -> tuple[str, ...]:
        notes = [*self.cast.assumptions, *self.matched.assumed]
        if self.cast.ranks > 1 and not self.matched.matches:
            what = f"its {self.cast.ranks} ranks send nothing, as no communication of known size was recognised"
            notes.insert(0, f"{what}. Warning: it takes the same time on any fabric, and no fabric can be judged by it")
        if self.matched.left_out:
            notes.append(f"{self.matched.left_out} communications that not all of their ranks captured are left out")
        if self.cut:
            notes.append(f"steps in which communications are left out are not compared: {shown(self.cut, 8)}")
        inferred = sum(some.inferred for some in self.ordered)
        if inferred:
            notes.append(f"{inferred} dependencies between streams are inferred from when operations began and ended")
        unknown = sum(some.unknown for some in self.ordered)
        if unknown:
            notes.append(f"{unknown} operations whose duration was not captured take no time")
        if self._unordered():
            notes.append("collectives of a group run one after the other, as NCCL has it on one communicator")
        missing = dict.fromkeys(line for recording in self.trace.recordings for line in recording.missing)
        return (*notes, *(f"the trace does not say {line}" for line in missing))
