"""Logs of NCCL's inspector plugin: each operation of a process with its size and the time it took, as JSON lines.

Keys after ``plugins/profiler/inspector`` of github.com/NVIDIA/nccl. Up to version 4.2 each line has the ``header`` of
its communicator; from 4.3 on a line ``dump_stats`` has it for the lines that follow. ``coll_msg_size_bytes`` counts
what one rank hands in to an all-gather, or gets of a reduce-scatter: the plugin multiplies it by the ranks for its
bandwidths.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.json_objects import decoded
from fabricsim.files.lines import MOST_BLANK
from fabricsim.files.sources import Source
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.form import Form
from fabricsim.traces.group_calls import GroupCalls
from fabricsim.traces.kineto.messages import MOST_RANKS, operation_of_name
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import MOST_SIZE, Communication, Operation, Recording, RecordingBuilder
from fabricsim.units import PS_PER_US

MOST_LINE = 16 * 2**20
"""Bytes of the longest line."""

_PARTS = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Operations of which the plugin counts the part of one rank."""
_US_PER_S, _NS_PER_US = 1e6, 1000
_LAST = CLOCK_END // PS_PER_US

Number = Annotated[int, msgspec.Meta(ge=0, le=MOST_SIZE)]
Time = Annotated[float, msgspec.Meta(ge=0, le=_LAST)]


class _Header(msgspec.Struct):
    rank: Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
    n_ranks: Annotated[int, msgspec.Meta(gt=0, le=MOST_RANKS)]
    id: str | int = ""
    comm_name: str = ""
    nnodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)] = 0


class _Metadata(msgspec.Struct):
    hostname: str = ""
    pid: int = 0


class _Channel(msgspec.Struct):
    kernel_start_ts: Number = 0


class _Events(msgspec.Struct):
    kernel_events: list[_Channel] = []


class _Operation(msgspec.Struct):
    coll: str = ""
    p2p: str = ""
    coll_msg_size_bytes: Number = 0
    p2p_msg_size_bytes: Number = 0
    coll_exec_time_us: Time = 0.0
    p2p_exec_time_us: Time = 0.0
    p2p_peer: int = NONE
    event_trace_ts: _Events | None = None


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Operation | None = None
    p2p_perf: _Operation | None = None
    dump_stats: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Line).decode


class InspectedOp(NamedTuple):
    """An operation of a rank.

    `name`: as NCCL calls it.
    `ranks`, `nodes`: of its communicator; `nodes` is 0 if the log does not say.
    `size`: bytes as of `fabricsim.traces.trace.Communication.size`.
    `rank`: in its communicator.
    `peer`: the other end of a send or receive in its communicator; else NONE.
    `group`, `description`: id and name of the communicator.
    `start`: us since the epoch, when the first channel's kernel began; NONE unless NCCL_INSPECTOR_DUMP_VERBOSE was set.
    """

    operation: Operation
    name: str
    ranks: int
    nodes: int
    size: int
    seconds: float
    rank: int
    peer: int
    group: str
    description: str
    start: int
    host: str
    process: int


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether a file is of this form."""
    return head.lstrip()[:1] == b"{" and b'"inspector_output_format_version"' in head.split(b"\n", 1)[0]


def rows(source: Source) -> Iterator[InspectedOp]:
    """Give the operations of a log in its order; a last line that is cut is left out.

    Raises TraceError if another line is damaged, or an operation has no header.
    """
    header, metadata = None, _Metadata()
    for number, line in _lines(source):
        if line.dump_stats is not None or line.header is not None:
            header, metadata = line.header, line.metadata or _Metadata()
        for operation in (line.coll_perf, line.p2p_perf):
            if operation is None:
                continue
            if header is None:
                raise TraceError(source.label, "has no header, and none came before it; give the whole log", number)
            row = _row(operation, header, metadata)
            if row.size > MOST_SIZE:
                msg = f"has an operation of {row.size} bytes in all; at most {MOST_SIZE} can be read"
                raise TraceError(source.label, f"{msg}; copy the file again", number)
            yield row


def _lines(source: Source) -> Iterator[tuple[int, _Line]]:
    """Give the lines that are not empty, with their numbers from 1, up to a last one that is cut."""
    number = idle = 0
    while text := source.stream.readline(MOST_LINE):
        number, idle = number + 1, idle + 1
        ended = text.endswith(b"\n")
        if len(text) == MOST_LINE and not ended:
            msg = f"is of more than {MOST_LINE // 2**20} MiB: no line of the inspector is"
            raise TraceError(source.label, msg, number)
        if idle > MOST_BLANK:
            msg = f"more than {MOST_BLANK:,} lines in a row without an operation: nobody writes them"
            raise TraceError(source.label, f"{msg}; copy the file again", number)
        if not text.strip():
            continue
        try:
            line = decoded(_decode, text, source.label, f"line {number}")
        except TraceError:
            if not ended:
                return
            raise
        idle = 0 if line.coll_perf or line.p2p_perf else idle
        yield number, line


def _row(operation: _Operation, header: _Header, metadata: _Metadata) -> InspectedOp:
    one_sided = bool(operation.p2p)
    name = operation.p2p or operation.coll
    what: Operation = "send_recv" if name.lower() == "sendrecv" else operation_of_name(name) or "unknown"
    size = operation.p2p_msg_size_bytes if one_sided else operation.coll_msg_size_bytes
    took = operation.p2p_exec_time_us if one_sided else operation.coll_exec_time_us
    events = operation.event_trace_ts.kernel_events if operation.event_trace_ts else []
    return InspectedOp(
        what,
        name,
        header.n_ranks,
        header.nnodes,
        size * header.n_ranks if what in _PARTS else size,
        took / _US_PER_S,
        header.rank,
        operation.p2p_peer if 0 <= operation.p2p_peer < header.n_ranks else NONE,
        str(header.id),
        header.comm_name,
        min((channel.kernel_start_ts for channel in events if channel.kernel_start_ts), default=NONE),
        metadata.hostname,
        metadata.pid,
    )


@dataclass
class _Process:
    """The operations of a process."""

    builder: RecordingBuilder
    host: str
    largest: InspectedOp | None = None
    rows: list[InspectedOp] = field(default_factory=list)


def read(source: Source) -> Iterator[Recording]:
    """Read a log: a recording for each process in it.

    The rank of a process is that within its largest communicator: the inspector knows no other.

    Raises TraceError: as of `rows`.
    """
    processes: dict[tuple[str, int], _Process] = {}
    for row in rows(source):
        process = processes.setdefault((row.host, row.process), _Process(RecordingBuilder(source.label), row.host))
        process.rows.append(row)
        if process.largest is None or row.ranks > process.largest.ranks:
            process.largest = row
    for process in processes.values():
        if process.largest is not None:
            yield _recording(process, process.largest)


def _recording(process: _Process, largest: InspectedOp) -> Recording:
    builder = process.builder
    starts = [row.start for row in process.rows if row.start != NONE]
    origin = min(starts, default=0)
    if max(starts, default=0) - origin > _LAST:
        msg = f"kernels begin at {origin} and at {max(starts)} us: more than the 92 days of the simulated clock apart"
        raise TraceError(builder.source, f"{msg}; give the log of one job")
    groups: dict[tuple[str, str, int], int] = {}
    lanes = GroupCalls(builder)
    for row in process.rows:
        whole = row.ranks == largest.ranks and row.group == largest.group
        named = (row.group, row.description, row.ranks)
        if named not in groups:
            groups[named] = builder.group(*named[:2], strided(row.ranks) if whole else (), row.ranks)
        group = groups[named]
        peer = row.peer if whole else NONE
        # of messages without a time it is not known which were given together: all between two collectives
        lanes.node(
            row.group,
            row.name,
            Communication(row.operation, group, row.size, peer=peer),
            start=NONE if row.start == NONE else (row.start - origin) * PS_PER_US,
            duration=round(row.seconds * _US_PER_S) * PS_PER_US,
            sequence=NONE,
            together=row.start == NONE and row.operation in {"send", "recv"},
        )
    builder.missing["what the rank computes: only operations of NCCL are recorded"] = None
    builder.missing["ranks in the job: taken as those in the largest communicator"] = None
    if len(starts) < len(process.rows):
        builder.missing["when operations began: set NCCL_INSPECTOR_DUMP_VERBOSE=1"] = None
    return builder.build(largest.rank, largest.ranks, origin=origin * _NS_PER_US, host=process.host)


FORM = Form("inspector", "JSON lines of NCCL's inspector plugin", recognises, read)
