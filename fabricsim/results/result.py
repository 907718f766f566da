"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.results.slowed import RateLeft, none_failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from fabricsim.results.capture import Capture, StepTime
    from fabricsim.results.packets import Packets
    from fabricsim.results.pairs import Pairs
    from fabricsim.results.throughput import IterationWork


class Rest(IntEnum):
    """What a call waits for while it does not use the resource that limits it."""

    LATENCY = 0
    TIMEOUTS = 1
    RETRANSMISSIONS = 2
    PAUSES = 3
    MARKS = 4
    FAILURE = 5


class CallRecord(NamedTuple):
    """One collective call as it ran.

    ``size`` is in bytes, as nccl-tests counts them. ``start`` is when its last rank was ready and ``end`` when its last
    rank was done, ps. ``bound`` is the bus bandwidth that the narrowest resource of its group allows, bytes/s.
    ``limit`` is the resource that it used most, an index into the links of the result, NONE without any; ``used``
    is its mean use in that time, 0 to 1, by all calls that cross it; ``rest`` says what the call waited for besides;
    ``failed`` is the link that was down, if that is a failure. ``beside`` is the part of ``used`` that is of traffic
    beside the calls. In folded runs ``copies`` is how many calls alike it stands for, itself included.
    """

    collective: str
    dimension: str
    ranks: int
    size: int
    start: int
    end: int
    bound: float
    limit: int = NONE
    used: float = 0.0
    rest: int = Rest.LATENCY
    failed: int = NONE
    beside: float = 0.0
    copies: int = 1


class CallKind(NamedTuple):
    """What calls that are equal have in common; fields as of `CallRecord`."""

    collective: str
    dimension: str
    ranks: int
    size: int
    bound: float


class Limits(NamedTuple):
    """What held each call; fields as of `CallRecord`, shape ``(n_calls,)`` each."""

    limit: NDArray[np.int64]
    used: NDArray[np.float64]
    rest: NDArray[np.int64]
    failed: NDArray[np.int64]
    beside: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CallRecords:
    """The collective calls of a run, in program order.

    `kinds`: those that differ.
    `kind`: index into `kinds` of each call, shape ``(n_calls,)``.
    `start`, `end`: as of `CallRecord`, ps; shape ``(n_calls,)`` each.
    `limits`: what held each.
    `copies`: as of `CallRecord`, shape ``(n_calls,)``; None if each stands for itself alone.
    """

    kinds: tuple[CallKind, ...]
    kind: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    limits: Limits
    copies: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, records: Iterable[CallRecord]) -> CallRecords:
        """Make a table of records."""
        numbers: dict[CallKind, int] = {}
        rows = [
            (numbers.setdefault(CallKind(*(getattr(each, name) for name in CallKind._fields)), len(numbers)), each)
            for each in records
        ]
        kind, start, end = np.array([(kind, each.start, each.end) for kind, each in rows], np.int64).reshape(-1, 3).T
        held = {name: [getattr(each, name) for _, each in rows] for name in Limits._fields}
        limit, rest, failed = (np.array(held[name], np.int64) for name in ("limit", "rest", "failed"))
        used, beside = (np.array(held[name], np.float64) for name in ("used", "beside"))
        limits = Limits(limit, used, rest, failed, beside)
        copies = np.array([each.copies for _, each in rows], np.int64)
        return cls(tuple(numbers), kind, start, end, limits, copies if (copies != 1).any() else None)

    def column(self, name: str) -> NDArray[Any]:
        """Give a field of `CallRecord` for each call, shape ``(n_calls,)``."""
        if name == "start":
            return self.start
        if name == "end":
            return self.end
        if name == "copies":
            return np.ones(len(self), np.int64) if self.copies is None else self.copies
        if name in Limits._fields:
            return cast("NDArray[Any]", getattr(self.limits, name))
        values = [getattr(kind, name) for kind in self.kinds]
        text = name in ("collective", "dimension")
        return np.array(values, object if text else None)[self.kind]

    @property
    def dimensions(self) -> list[str]:
        """Dimensions of the calls, in the order in which the program has them."""
        return list(dict.fromkeys(kind.dimension for kind in self.kinds))

    def __len__(self) -> int:
        """Count the calls."""
        return len(self.kind)

    def __getitem__(self, index: int) -> CallRecord:
        """Return one call."""
        kind = self.kinds[self.kind[index]]
        held = {name: column[index].item() for name, column in self.limits._asdict().items()}
        held["copies"] = 1 if self.copies is None else int(self.copies[index])
        return CallRecord(**kind._asdict(), start=int(self.start[index]), end=int(self.end[index]), **held)

    def __iter__(self) -> Iterator[CallRecord]:
        """Go through the calls in their order."""
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether the same calls ran at the same times."""
        if not isinstance(other, CallRecords):
            return NotImplemented
        return all(np.array_equal(self.column(name), other.column(name)) for name in CallRecord._fields)

    __hash__ = None  # type: ignore[assignment]  # as of a list


class JobRecord(NamedTuple):
    """One of several jobs of a run: its name, its part of ops and calls, and when it began and ended, ps.

    The dimension of its calls begins with its name.
    """

    name: str
    first_op: int
    ops: int
    first_call: int
    calls: int
    start: int
    end: int


class LinkRecord(NamedTuple):
    """One resource (a link direction, a PCIe direction, a proxy thread) over the run.

    ``capacity`` and ``load`` are in the resource's own unit: bytes on the wire for links (headers
    included), seconds of CPU for threads. The capacity is the mean of the run, in which failures may
    slow a link down. ``payload`` counts bytes without headers. In a folded run it stands for ``copies``
    resources alike, itself included; its figures are those of one.
    """

    name: str
    kind: str
    capacity: float
    load: float
    payload: float
    calls: tuple[str, ...]
    copies: int = 1


@dataclass(frozen=True)
class Series:
    """Payload rate of the tapped resources over time.

    `interval`: width of a bin, ps.
    `names`: the resources, ``n``.
    `rate`: bytes per second, shape ``(n, bins)``; bin ``i`` covers ``[i, i + 1) * interval``.
    `capacity`: payload bytes per second that each resource as built can carry, shape ``(n,)``.
    `left`: what failures left of that over time, by name; of others all.
    """

    interval: int
    names: tuple[str, ...]
    rate: NDArray[np.float64]
    capacity: NDArray[np.float64]
    left: Mapping[str, RateLeft] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """One run of one scenario.

    `source`: the scenario file as the user wrote it.
    `resolved`: the scenario with everything included, as TOML-like nested tables of strings and numbers.
    `ops`: ``OP`` records of the program, shape ``(n_ops,)``.
    `spans`: ``SPAN`` records, one per op.
    `timers`: names of the timers that ``ops["timer"]`` points at.
    `calls`: the collective calls, in program order.
    `links`: all resources of the fabric, wires first.
    `series`: payload rates over time of wires; of a packet run only those that were tapped.
    `slowdowns`: messages by how much longer their transfer took than alone on their route, shape ``(SLOWDOWN_BINS,)``;
        the bins are those of `fabricsim.records.program`.
    `counters`: what the engine counted: ``messages``, ``events``, ``dag_nodes``, and what else its engine counts.
    `iteration`: end of the last op, ps.
    `wall_seconds`: time the simulation itself took; never stored in tables.
    `packets`: what the packet engine recorded besides; None in a flow run.
    `ranks`: ranks of a folded run: those that `ops` have stand for all. None where `ops` have all ranks.
    `capture`: of a replayed trace what was captured; else None.
    `notes`: what a reader has to know about how the run was made, a sentence each.
    `work`: what an iteration does; None if that is not known.
    `jobs`: those of a run of several, or of one beside other traffic.
    `pairs`: bytes of an iteration between pairs of ranks, if they were asked for.
    `failures`: records of `fabricsim.results.columns.FAILURES`: links that failures slowed down or took down.
    `asked`: keys of the settings that were laid over the scenario.
    """

    name: str
    source: str
    resolved: dict[str, Any]
    transport: str
    engine: str
    seed: int
    version: str
    ops: NDArray[np.void]
    spans: NDArray[np.void]
    timers: tuple[str, ...]
    calls: CallRecords
    links: tuple[LinkRecord, ...]
    series: Series
    slowdowns: NDArray[np.int64]
    counters: dict[str, int]
    iteration: int
    wall_seconds: float
    packets: Packets | None = None
    ranks: int | None = None
    capture: Capture | None = None
    notes: tuple[str, ...] = ()
    work: IterationWork | None = None
    jobs: tuple[JobRecord, ...] = ()
    pairs: Pairs | None = None
    failures: NDArray[np.void] = field(default_factory=none_failed)
    asked: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[StepTime, ...]:
        """Iterations that a replayed trace has marked."""
        return () if self.capture is None else self.capture.steps
