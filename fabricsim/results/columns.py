"""Layout of a result file: every group, its dimension, and its columns with unit and meaning."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

FORMAT = "fabricsim result"
"""Value of the root attribute ``format``."""
TRAFFIC_FORMAT = "fabricsim traffic"
"""The same of a run of `fabricsim traffic`, which has no job."""
FORMAT_VERSION = 1
"""Value of the root attribute ``format_version``; raised when a reader of the old one would err."""

TEXT_ATTRIBUTES = ("name", "source", "transport", "engine", "version")
"""Attributes of the root that are texts, as the fields of a result are called."""
PAIRS_NUMBERS = ("ranks", "domain", "in_network")
"""Attributes of the group of pairs."""
LOG_NUMBERS = ("payload", "overhead", "ecn")
"""Attributes of the group of a packet log."""


@dataclass(frozen=True)
class Column:
    """One dataset.

    `name`: name of the dataset, and of the record's field unless the writer says otherwise.
    `kind`: NumPy type of an entry; ``"text"`` for UTF-8 strings.
    `units`: value of the attribute ``units``; ``"1"`` for numbers and names without a unit.
    `meaning`: value of the attribute ``long_name``.
    `flags`: meanings of the values 0, 1, ..., written as the CF attributes ``flag_values`` and ``flag_meanings``.
    """

    name: str
    kind: Literal["i1", "i2", "i4", "i8", "f8", "text"]
    units: str
    meaning: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnGroup:
    """A group whose columns share one dimension, whose index dataset has the dimension's name."""

    group: str
    index: Column
    columns: tuple[Column, ...]

    @property
    def record(self) -> np.dtype[np.void]:
        """Type of a row of numbers."""
        return np.dtype([(column.name, column.kind) for column in self.columns], align=True)


OPS = ColumnGroup(
    "ops",
    Column("op", "i8", "1", "index of the op"),
    (
        Column("rank", "i4", "1", "rank that runs the op"),
        Column("kind", "i1", "1", "kind of op", ("compute", "collective", "host")),
        Column("stream", "i1", "1", "stream of the rank", ("main", "overlapped", "host")),
        Column("timer", "i2", "1", "index into timer_name"),
        Column("call", "i4", "1", "index into group calls, -1 if it is no collective"),
        Column("member", "i4", "1", "place of the rank in the call's group, -1 if there is none"),
        Column("duration", "i8", "ps", "given time of a compute or host op, 0 for a collective"),
        Column("predecessors", "i4", "1", "ops that must be done before this one starts"),
        Column("first_successor", "i8", "1", "index of the op's first edge in the program's edge list"),
        Column("successors", "i4", "1", "number of edges that leave the op"),
    ),
)
"""The columns of ``tables.OP``."""

SPANS = (
    Column("start", "i8", "ps", "when the op started: its predecessors were done"),
    Column("end", "i8", "ps", "when the op ended"),
)
"""The columns of ``tables.SPAN``, in group ``ops`` too."""

TIMER_NAME = Column("timer_name", "text", "1", "name under which time is booked")
"""In group ``ops``, a dimension of its own."""

CALLS = ColumnGroup(
    "calls",
    Column("call", "i8", "1", "index of the collective call"),
    (
        Column("collective", "text", "1", "what is done"),
        Column("dimension", "text", "1", "parallel dimension of the group"),
        Column("ranks", "i4", "1", "ranks in the group"),
        Column("size", "i8", "B", "bytes as nccl-tests counts them"),
        Column("start", "i8", "ps", "when the last rank was ready"),
        Column("end", "i8", "ps", "when the last rank was done"),
        Column("bound", "f8", "B/s", "bus bandwidth that the narrowest resource of the group allows"),
        Column("limit", "i4", "1", "index of the link that it used most, -1 if there is none"),
        Column("used", "f8", "1", "mean use of that link while it ran, 0 to 1"),
        Column(
            "rest",
            "i1",
            "1",
            "what it waited for besides",
            ("latency", "timeouts", "retransmissions", "pauses", "marks"),
        ),
    ),
)
"""The fields of `CallRecord` but ``failed``, ``beside`` and ``copies``."""

_REST = CALLS.columns[-1]
FAILED = Column("failed", "i4", "1", "index of the link that was down, if that is a failure, else -1")
CALLS_OF_FAILURES = replace(
    CALLS, columns=(*CALLS.columns[:-1], replace(_REST, flags=(*_REST.flags, "failure")), FAILED)
)
"""The same of runs in which a call waited for a link that was down."""
BESIDE = Column("beside", "f8", "1", "part of used that is of traffic beside the calls")
"""A column more of runs in which traffic beside the calls used a link that limits one."""

CALL_COPIES = Column("copies", "i8", "1", "calls alike that it stands for, itself included")
"""A column more in folded runs."""

LINKS = ColumnGroup(
    "links",
    Column("link", "text", "1", "name of the resource"),
    (
        Column("kind", "text", "1", "kind of resource"),
        Column("capacity", "f8", "own unit/s", "bytes on the wire per second; seconds of CPU per second for threads"),
        Column("load", "f8", "own unit", "bytes on the wire with headers; seconds of CPU for threads"),
        Column("payload", "f8", "B", "bytes without headers"),
        Column("crossing_calls", "i4", "1", "how many entries of crossing_call are this resource's, in order"),
    ),
)
"""The fields of `LinkRecord`; its ``calls`` are `CROSSING`, cut by ``crossing_calls``."""

COPIES = Column("copies", "i8", "1", "resources alike that it stands for, itself included")
"""A column more of `LINKS` in folded runs."""

CROSSING = ColumnGroup(
    "links",
    Column("crossing", "i8", "1", "index of the crossing"),
    (Column("crossing_call", "text", "1", "a collective that crosses the resource"),),
)
"""What crosses the resources, those of the first resource first."""

CROSSED = Column("flows", "i8", "1", "flows that crossed the resource")
"""A column more of `LINKS` in traffic runs."""

ASKED = (
    Column("id", "i8", "1", "id in the matrix"),
    Column("source", "i8", "1", "rank that sends"),
    Column("target", "i8", "1", "rank that receives"),
    Column("bytes", "i8", "B", "bytes that are sent"),
    Column("start", "i8", "ps", "when the flow may begin"),
)
"""The columns of `fabricsim.results.traffic.DEMAND`."""

DEMAND = ColumnGroup(
    "demand",
    Column("flow", "i8", "1", "index of the flow"),
    (
        *ASKED,
        Column("completion", "i8", "ps", "from its start until its last byte is handed over"),
        Column("alone", "i8", "ps", "time that it takes at least, on the idle fabric"),
    ),
)
"""What was asked for and what came of each flow; there in traffic runs."""

FLOWS = ColumnGroup(
    "flows",
    Column("slowdown", "f8", "1", "transfer time over that alone on the route: upper edge of the bin"),
    (Column("messages", "i8", "1", "messages in the bin"),),
)
"""Histogram of message slowdowns."""

WIRES = ColumnGroup(
    "packets",
    Column("link", "text", "1", "name of the wire"),
    (
        Column("packets", "i8", "1", "packets sent, retransmissions and acknowledgements included"),
        Column("bytes", "i8", "B", "their bytes on the wire"),
        Column("deepest", "i8", "B", "most bytes that waited, the packet being sent included"),
        Column("marks", "i8", "1", "packets that ECN marked"),
        Column("drops", "i8", "1", "packets that a full queue did not take"),
        Column("errors", "i8", "1", "packets lost by bit errors or a failed link"),
        Column("trims", "i8", "1", "packets whose payload a full queue cut off"),
        Column("pauses", "i8", "1", "PAUSE frames that stopped the wire"),
        Column("paused", "i8", "ps", "time that some class was stopped"),
    ),
)
"""The columns of `fabricsim.results.packets.WIRE`; there in packet runs."""

FAILURES = ColumnGroup(
    "failures",
    Column("part", "i8", "1", "index of the failed part"),
    (
        Column("failure", "i4", "1", "index into fabric.failures of the scenario"),
        Column("link", "i4", "1", "index of the link"),
        Column("start", "i8", "ps", "when it began"),
        Column("end", "i8", "ps", "when it ended, or the run did"),
        Column("share", "f8", "1", "share of the rate as built that was left, 0 if the link was down"),
    ),
)
"""What failures of the scenario did to links; there if one slowed a link down or took it down while the run lasted."""

STEPS = ColumnGroup(
    "steps",
    Column("step", "i8", "1", "index of the step of a rank"),
    (
        Column("rank", "i8", "1", "rank that was captured"),
        Column("number", "i8", "1", "number that the job gives the step"),
        Column("captured", "i8", "ps", "how long it took"),
        Column("replayed", "i8", "ps", "how long it took in the replay"),
        Column("start", "i8", "ps", "when it began in the replay"),
    ),
)
"""The fields of `StepTime`; there if a trace was replayed."""

TRANSFERS = ColumnGroup(
    "transfers",
    Column("transfer", "i8", "1", "index of the communication"),
    (
        Column("operation", "text", "1", "what is done"),
        Column("group", "text", "1", "name of the group"),
        Column("ranks", "i8", "1", "ranks in the group"),
        Column("size", "i8", "B", "bytes as nccl-tests counts them, -1 if not captured"),
        Column("captured", "i8", "ps", "from when the last rank was ready until the last was done, -1 if unknown"),
        Column("replayed", "i8", "ps", "the same in the replay"),
        Column("captured_ranks", "i8", "1", "ranks that were captured; if not all, captured is an upper bound"),
    ),
)
"""The fields of `Transfer`; there if a trace was replayed."""

PAIRS = ColumnGroup(
    "pairs",
    Column("pair", "i8", "1", "index of the pair of ranks, once for each dimension in which it exchanges data"),
    (
        Column("source", "i4", "1", "rank that sends"),
        Column("target", "i4", "1", "rank that receives"),
        Column("dimension", "i1", "1", "index into dimension_name"),
        Column("bytes", "i8", "B", "payload of one iteration"),
    ),
)
"""The fields of `fabricsim.results.pairs.Pairs`; there if the byte matrix was asked for."""

DIMENSION_NAME = Column("dimension_name", "text", "1", "parallel dimension")
"""In group ``pairs``, a dimension of its own."""

LOG = ColumnGroup(
    "packet_log",
    Column("entry", "i8", "1", "index of the entry"),
    (
        Column("time", "i8", "ps", "when its first bit left, or it was lost"),
        Column("wire", "i4", "1", "index into wire_name"),
        Column("flow", "i4", "1", "index into source and target"),
        Column("number", "i4", "1", "number of a data packet in its flow; on others the next number awaited"),
        Column("echo", "i4", "1", "number of the packet that is answered"),
        Column("bytes", "i4", "B", "bytes on the wire"),
        Column("kind", "i1", "1", "kind of packet", ("data", "ack", "nack", "cnp")),
        Column("state", "i1", "1", "bits: 1 marked, 2 trimmed, 4 sent again; above: class"),
        Column("fate", "i1", "1", "what became of it", ("sent", "dropped", "lost")),
    ),
)
"""The columns of `fabricsim.results.packets.ENTRY`; there if packets were logged."""

LOG_WIRE = Column("wire_name", "text", "1", "name of the wire")
LOG_FLOWS = ColumnGroup(
    "packet_log",
    Column("logged_flow", "i8", "1", "index of the flow"),
    (
        Column("source", "i4", "1", "endpoint that sends the data"),
        Column("target", "i4", "1", "endpoint that receives it"),
    ),
)

TAP_TIME = Column("time", "i8", "ps", "when the value was reached")
"""In a group ``series/tapN`` each."""
TAP_VALUES = {
    "queue": Column("value", "f8", "B", "waiting, with the packet being sent; falls evenly to the next"),
    "window": Column("value", "f8", "packets", "congestion window"),
    "pace": Column("value", "f8", "B/s", "rate at which the flow may send"),
}
"""By what is recorded."""

SERIES_TIME = Column("time", "i8", "ps", "start of the bin")
SERIES_LINK = Column("link", "text", "1", "name of the resource")
SERIES_RATE = Column("rate", "f8", "B/s", "mean payload rate in the bin")
SERIES_CAPACITY = Column("capacity", "f8", "B/s", "payload rate that the resource can carry")
