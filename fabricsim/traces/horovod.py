"""Timelines of Horovod: when each tensor was negotiated, copied and communicated, as its coordinator saw it.

Keys after ``horovod/common/timeline.cc`` of github.com/horovod/horovod. A timeline is a list of events in Chrome's
form, a process for each tensor; the list has no end if the job was stopped. Below ``NEGOTIATE_...`` each rank that
is ready has an event of its number. Sizes are those of tensors, which some versions note at the end of an operation.
Tensors that were copied into the fusion buffer, and whose communications begin one after the other, are one
communication. A hierarchical all-reduce is several: `fabricsim.traces.horovod_parts` has what each moves.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from typing import Annotated, Any, Literal

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.json_objects import ObjectList, decoded
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.form import Form
from fabricsim.traces.groups import ONE_HOST
from fabricsim.traces.horovod_parts import Ran, fitting, parts
from fabricsim.traces.kineto.messages import ITEM, MOST_RANKS
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import COMMUNICATION, COPY, HOST, Communication, Operation, Recording, RecordingBuilder
from fabricsim.units import PS_PER_US

MOST_TENSORS = 1_000_000
"""Tensors of the largest timeline."""

_OPENING = re.compile(rb"\s*\[")
_KNOWN = re.compile(rb'"(?:start_time_since_epoch_in_micros|NEGOTIATE_[A-Z]+)"')
_ACTIVITY = re.compile(r"(NCCL|MPI|GLOO|CCL|DDL)_(CROSS_)?([A-Z]+)")
_OPERATIONS: dict[str, Operation] = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "ALLGATHERV": "all_gather",
    "BCAST": "broadcast",
    "BROADCAST": "broadcast",
    "ALLTOALL": "all_to_all",
    "ALLTOALLV": "all_to_all",
    "REDUCESCATTER": "reduce_scatter",
    "REDUCE": "reduce",
}
_NUMBERS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "uint16", "int8", "uint8")
_ITEM = {"bool": 1} | {name: ITEM[name] for name in _NUMBERS}
_NEGOTIATE, _INTO, _FUSED = "NEGOTIATE_", "MEMCPY_IN_FUSION_BUFFER", "FUSION_BUFFER"
_HOST_BUFFER = ("MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER")
_DEEPEST = 64
_NS_PER_US = 1000

Time = Annotated[int, msgspec.Meta(ge=0, lt=2**62 // 10**6)]


class _Event(msgspec.Struct):
    ph: str
    pid: int = 0
    name: str = ""
    ts: Time = 0
    args: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Event).decode


@dataclass
class _Activity:
    """A span of time of a tensor."""

    name: str
    start: int
    end: int = NONE


Place = Literal["job", "host", "hosts"]
"""Whose communication it is: of all ranks, of those of a host, or of those with the same place on all hosts."""


@dataclass(eq=False)
class _Exchange:
    """A communication, of one tensor or several that were fused; or a copy beside it, which has no operation."""

    operation: Operation | None
    name: str
    start: int
    fused: bool
    crossing: bool
    place: Place
    end: int = NONE
    size: int = 0
    datatypes: set[str] = field(default_factory=set)
    open_tensors: int = 0
    before: list[int] = field(default_factory=list)
    copies_out: list[_Activity] = field(default_factory=list)


@dataclass
class _Tensor:
    """What is open of a tensor."""

    name: str
    open: list[_Activity] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    exchanges: list[_Exchange] = field(default_factory=list)
    running: _Exchange | None = None
    fused: bool = False
    copies_out: list[_Activity] = field(default_factory=list)


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether a file is of this form."""
    return head.lstrip()[:1] == b"[" and _KNOWN.search(head) is not None


def read(source: Source, ranks_per_host: int = NONE) -> Iterator[Recording]:
    """Read the timeline of a job, which its rank 0 writes.

    `ranks_per_host`: of all hosts alike; if left out what fits the parts of hierarchical all-reduces, if that is one
        number.
    Raises TraceError if an event is damaged, spans of a tensor end that have not begun, or `ranks_per_host` does not
        fit.
    """
    timeline = _Timeline(source.label, ranks_per_host)
    events = ObjectList(source, _OPENING, may_end=True)
    for number, text in enumerate(events):
        timeline.take(decoded(_decode, text, source.label, f"event {number}"), number)
    yield from timeline.recordings(cut=events.cut)


class _Timeline:
    """Takes events one by one."""

    def __init__(self, label: str, ranks_per_host: int) -> None:
        self.label = label
        self.local = ranks_per_host
        self.builder = RecordingBuilder(label)
        self.tensors: dict[int, _Tensor] = {}
        self.ready: set[int] = set()
        self.epoch = 0
        self.latest: _Exchange | None = None
        self.done: list[_Exchange] = []
        self.negotiations: list[tuple[int, int]] = []  # start and node
        self.sizeless = 0
        self.ran: set[Ran] = set()
        self.hierarchical, self.unequal = False, False

    def take(self, event: _Event, number: int) -> None:
        if event.ph == "M":
            self._take_name(event)
        elif event.ph == "B":
            self._begin(event, number)
        elif event.ph == "E":
            self._end(event, number)
        elif event.ph == "X" and event.name.isdecimal() and len(event.name) <= len(str(MOST_RANKS)):
            self.ready.add(int(event.name))

    def _take_name(self, event: _Event) -> None:
        if event.name != "process_name":
            return
        epoch, name = event.args.get("start_time_since_epoch_in_micros"), event.args.get("name")
        if type(epoch) is int and 0 <= epoch < 2**62 // _NS_PER_US:
            self.epoch = epoch
        if isinstance(name, str):
            self._tensor(event.pid).name = name[:256]

    def _tensor(self, pid: int) -> _Tensor:
        if len(self.tensors) == MOST_TENSORS and pid not in self.tensors:
            raise TraceError(self.label, f"more than {MOST_TENSORS} tensors; record fewer steps")
        return self.tensors.setdefault(pid, _Tensor(f"tensor {pid}"))

    def _begin(self, event: _Event, number: int) -> None:
        tensor = self._tensor(event.pid)
        if len(tensor.open) == _DEEPEST:
            msg = f"event {number}: more than {_DEEPEST} spans of a tensor within each other; copy the file again"
            raise TraceError(self.label, msg)
        tensor.open.append(_Activity(event.name, event.ts))
        match = _ACTIVITY.fullmatch(event.name)
        operation = _OPERATIONS.get(match[3]) if match else None
        if operation is None and event.name not in _HOST_BUFFER:
            self.latest = None
            tensor.fused |= event.name == _INTO
            return
        latest = self.latest
        together = (
            latest is not None
            and tensor.fused
            and latest.fused
            and latest.name == event.name
            and latest.end == NONE
            and latest not in tensor.exchanges
        )
        if latest is None or not together:
            crossing = match is not None and bool(match[2])
            place = _place(tensor, operation)
            latest = _Exchange(operation, event.name, event.ts, tensor.fused, crossing, place)
        latest.open_tensors += 1
        latest.before += tensor.before
        tensor.before = []
        tensor.exchanges.append(latest)
        tensor.running = self.latest = latest

    def _end(self, event: _Event, number: int) -> None:
        tensor = self._tensor(event.pid)
        if not tensor.open:
            msg = f"event {number} ends a span of {tensor.name!r} that has not begun; copy the file again"
            raise TraceError(self.label, msg)
        activity = tensor.open.pop()
        activity.end = event.ts
        if activity.end < activity.start:
            msg = f"event {number} ends at {event.ts} us what began at {activity.start} us; copy the file again"
            raise TraceError(self.label, msg)
        if tensor.running is not None and tensor.running.name == activity.name:
            tensor.running.end = max(tensor.running.end, activity.end)
            tensor.running = None
        elif activity.name.startswith(_NEGOTIATE):
            node = self._node(HOST, "negotiation", activity)
            tensor.before.append(node)
            self.negotiations.append((activity.start, node))
        elif activity.name == _INTO:
            tensor.before.append(self._node(COPY, "fusion buffer", activity))
        elif activity.name.endswith(_FUSED):
            tensor.copies_out.append(activity)
        if not tensor.open and not activity.name.startswith(_NEGOTIATE):
            self._close(tensor, event.args)

    def _node(self, kind: int, lane: str, activity: _Activity) -> int:
        return self.builder.node(
            kind,
            self.builder.lane("any", lane),
            activity.name,
            start=activity.start * PS_PER_US,
            duration=(activity.end - activity.start) * PS_PER_US,
        )

    def _close(self, tensor: _Tensor, args: dict[str, Any]) -> None:
        """Take up the size of a tensor once its operation has ended."""
        size, datatype = _size(args)
        in_host = {exchange.operation for exchange in tensor.exchanges if exchange.place == "host"}
        if in_host:
            self.hierarchical = True
            shared, rest = "reduce_scatter" in in_host, "reduce" in in_host
            if tensor.fused:
                self.unequal |= rest or not shared
            elif size != NONE:
                self.ran.add(Ran(size // _ITEM[datatype], shared, rest))
        for exchange in tensor.exchanges:
            exchange.size = NONE if NONE in {size, exchange.size} else exchange.size + size
            exchange.datatypes.add(datatype)
            exchange.open_tensors -= 1
            if exchange is tensor.exchanges[-1]:
                exchange.copies_out += tensor.copies_out
            if not exchange.open_tensors:
                self.done.append(exchange)
        tensor.exchanges, tensor.copies_out, tensor.before = [], [], []
        tensor.running, tensor.fused = None, False

    def recordings(self, *, cut: bool) -> Iterator[Recording]:
        """Write all communications that have ended."""
        world = len(self.ready) if self.ready == set(range(len(self.ready))) and self.ready else NONE
        builder = self.builder
        builder.missing["what ranks compute: a timeline has communications only"] = None
        builder.missing["what was waited for: each negotiation is taken to wait for what had ended before it"] = None
        builder.missing[
            "how long communications waited for ranks, and connections that had carried little: left out"
        ] = None
        if self.hierarchical:
            self._find_hosts(world)
        exchanges = sorted((each for each in self.done if each.end != NONE), key=lambda exchange: exchange.start)
        self._wait([(each.end, self._write(each, world)) for each in exchanges])
        if not builder.count:
            return
        if self.sizeless:
            builder.missing[f"the size of {self.sizeless} communications: this version of Horovod notes none"] = None
        if cut or any(tensor.open for tensor in self.tensors.values()):
            builder.missing["its end: the job was stopped before the timeline was closed"] = None
        yield builder.build(0 if world != NONE else NONE, world, origin=self.epoch * _NS_PER_US)

    def _find_hosts(self, world: int) -> None:
        """Find how many ranks each host has, and say what that rests on."""
        given = self.local
        found = () if self.unequal or world == NONE else fitting(world, self.ran)
        fit = ", ".join(map(str, found)) or "none"
        if given != NONE and given not in found:
            msg = f"is not of hosts of {given} ranks: what ran of its hierarchical all-reduces fits {fit} to a host"
            raise TraceError(
                self.label, f"{msg}; leave out ranks_per_host (--ranks-per-host), or give a number that fits"
            )
        self.local = found[0] if given == NONE and len(found) == 1 else given
        why = "the one number that fits what ran of its all-reduces" if given == NONE else "as --ranks-per-host says"
        said = f"{self.local} that follow one another ({why})"
        if self.local == NONE:
            said = f"what ran of its hierarchical all-reduces fits {fit}"
        self.builder.missing[f"which ranks are on one host: {said}"] = None
        if self.local > 1 and any(one.rest for one in self.ran):
            rest = "what the last rank of a host sends beyond the share of others"
            self.builder.missing[f"{rest}: less than an element for each rank of the host, left out"] = None

    def _wait(self, exchanges: list[tuple[int, int]]) -> None:
        """Let each negotiation wait for the communication that had ended last when it began.

        `exchanges`: end and node of each.
        """
        exchanges.sort()
        for start, node in self.negotiations:
            before = bisect_right(exchanges, start, key=itemgetter(0))
            if before:
                self.builder.edge(exchanges[before - 1][1], node)

    def _write(self, exchange: _Exchange, world: int) -> int:
        builder, what = self.builder, self._communication(exchange, world)
        node = builder.node(
            COPY if what is None else COMMUNICATION,
            builder.lane("stream", "communications"),
            exchange.name,
            communication=what,
            start=exchange.start * PS_PER_US,
            duration=(exchange.end - exchange.start) * PS_PER_US,
        )
        if what is not None:
            self.sizeless += what.size == NONE
            library = exchange.name.partition("_")[0]
            if library != "NCCL":
                sentence = (
                    f"by which algorithm {library} communicates, and how fast it adds: replayed as the fabric's own"
                )
                builder.missing[sentence] = None
        for before in exchange.before:
            builder.edge(before, node)
        for activity in exchange.copies_out:
            builder.edge(node, self._node(COPY, "fusion buffer", activity))
        return node

    def _communication(self, exchange: _Exchange, world: int) -> Communication | None:
        """Give what an exchange communicates; None if it is a copy, as NCCL's parts are on a host of one rank."""
        builder, size, operation = self.builder, exchange.size, exchange.operation
        if operation is None or (exchange.place == "host" and self.local == 1):
            return None
        datatype = next(iter(exchange.datatypes)) if len(exchange.datatypes) == 1 else ""
        if exchange.place != "job":
            return self._part(operation, exchange, datatype, world)
        group = NONE
        if world != NONE and not exchange.crossing:
            group = builder.group("global", "", strided(world), world)
        if operation == "reduce_scatter" and size != NONE:  # what comes out is a rank's part
            size = NONE if world == NONE else size * world
        return Communication(operation, group, size, datatype)

    def _part(self, operation: Operation, exchange: _Exchange, datatype: str, world: int) -> Communication:
        """Give a part of a hierarchical all-reduce."""
        local, name = self.local, exchange.place
        if local == NONE:
            return Communication(operation, self.builder.group(name, ONE_HOST), NONE, datatype)
        count, stride = (local, 1) if name == "host" else (world // local, local)
        group = self.builder.group(name, "", strided(count, stride), count)
        if exchange.size == NONE or not datatype:
            return Communication(operation, group, NONE, datatype)
        item = _ITEM[datatype]
        shared, rest, across = parts(exchange.size // item, local, fused=exchange.fused)
        rooted = operation in {"reduce", "broadcast"}
        elements = across if name == "hosts" else rest if rooted else shared
        return Communication(operation, group, elements * item, datatype, local - 1 if rooted else NONE)


def _place(tensor: _Tensor, operation: Operation | None) -> Place:
    """Tell whose communication comes next of a tensor: an all-reduce with other parts is hierarchical."""
    if operation is None or tensor.open[0].name != "ALLREDUCE":
        return "job"
    if operation != "all_reduce":
        return "host"
    return "hosts" if any(exchange.place == "host" for exchange in tensor.exchanges) else "job"


def _size(args: dict[str, Any]) -> tuple[int, str]:
    """Read bytes and type of a tensor from ``{"dtype": "float32", "shape": "[2, 3]"}``; NONE if it is not there."""
    datatype, shape = args.get("dtype"), args.get("shape")
    if not isinstance(datatype, str) or not isinstance(shape, str) or datatype not in _ITEM:
        return NONE, ""
    if not re.fullmatch(r"\s*\[[\d,\s]{0,400}\]\s*", shape):
        return NONE, datatype
    size = prod(int(length) for length in re.findall(r"\d{1,15}", shape)) * _ITEM[datatype]
    return (size if size < 2**62 else NONE), datatype


FORM = Form("horovod", "Horovod timelines", recognises, read, per_host=True)
