"""Writes Chakra execution traces that ASTRA-sim's feeder reads, and `fabricsim.traces.chakra.reader` reads back equal.

Attributes are those that the feeders of Chakra and ASTRA-sim read, of the types that they expect
(github.com/mlcommons/chakra, src/feeder; github.com/astra-sim/astra-sim, astra-sim/workload/Workload.cc), and those of
`fabricsim.traces.chakra.own`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError
from fabricsim.files.atomic import beside
from fabricsim.records.program import NONE
from fabricsim.traces.chakra import own, schema
from fabricsim.traces.chakra.groups import Numbered, size_of
from fabricsim.traces.chakra.nodes import COLLECTIVES, GATHERING
from fabricsim.traces.chakra.schema import Attribute, ChakraNode, Metadata
from fabricsim.traces.dependencies import of_lanes
from fabricsim.traces.trace import COMMUNICATION, Communication, Recording, Trace

VERSION = "0.0.4"
"""Of the schema."""
_MICROSECOND = 10**6
_INT32 = 2**31


def files(trace: Trace, path: Path) -> list[Path]:
    """List the files that `write` makes: one per rank, and the ranks of groups.

    Raises InputError if the rank of a recording is not known.
    """
    for recording in trace.recordings:
        if recording.rank == NONE:
            msg = f"{recording.source}: does not say its rank, by which Chakra names files; name it <name>.0.<ending>"
            raise InputError(msg)
    per_rank = [path.with_name(f"{path.name}.{recording.rank}.et") for recording in trace.recordings]
    return [*per_rank, path.with_name(f"{path.name}.groups.json")]


def write(trace: Trace, path: Path | str) -> tuple[str, ...]:
    """Write a trace as ``<path>.<rank>.et`` and ``<path>.groups.json``.

    `trace`: its sends and receives say their other ends, its communications what they do and their bytes.
    `path`: beginning of the names of files; what was there is replaced once all are written.
    Returns: what of this trace Chakra has no room for, a sentence each, without a full stop.
    Raises InputError if Chakra cannot hold it, or a file cannot be written.
    """
    made = files(trace, Path(path))
    parts = [beside(file) for file in made]
    lost: dict[str, None] = {}
    groups = Numbered(trace)
    for name in groups.unlisted:
        lost[f"who is in group {name!r}: the trace does not say, and ASTRA-sim has to be told"] = None
    if groups.shared:
        lost["the names of groups that share one with others: they are numbered"] = None
    try:
        for recording, part in zip(trace.recordings, parts, strict=False):
            with part.open("wb") as stream:
                for message in _File(recording, groups, trace.world, lost).messages():
                    stream.write(schema.encode_file_message(message))
        parts[-1].write_text(json.dumps(groups.listed) + "\n", encoding="utf-8")
        for part, file in zip(parts, made, strict=True):
            part.replace(file)
    except OSError as error:
        msg = f"{error.filename or made[0]}: cannot be written: {error.strerror}; name another place"
        raise InputError(msg) from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return tuple(lost)


class _File:
    """What goes into the file of one rank."""

    def __init__(self, recording: Recording, groups: Numbered, world: int, lost: dict[str, None]) -> None:
        self.recording, self.groups, self.world, self.lost = recording, groups, world, lost
        self._taken = self._said = 0  # by all nodes so far: ps, and µs as written

    def messages(self) -> Iterator[bytes]:
        """Give metadata, then nodes in their order."""
        recording = self.recording
        if not len(recording.nodes):
            self._refuse("does nothing; Chakra needs an operation of each rank")
        if len(recording.steps):
            self.lost["the marks of iterations"] = None
        if recording.edges["on_start"].any():
            self.lost["dependencies on the start of an operation, which are written as on its end"] = None
        about = own.about(recording, self.world, self.groups.renamed(recording))
        yield schema.encode_metadata(Metadata(VERSION, tuple(about)))
        stated = _before(len(recording.nodes), recording.edges["before"], recording.edges["after"])
        lanes = of_lanes(recording.nodes["lane"], recording.lanes)
        in_lane = _before(len(recording.nodes), *lanes)
        for number, columns in enumerate(recording.nodes.tolist()):
            yield schema.encode_node(self._node(number, columns, in_lane[number], stated[number]))

    def _node(
        self, number: int, columns: tuple[int, ...], control: tuple[int, ...], data: tuple[int, ...]
    ) -> ChakraNode:
        kind, lane, name, what, sequence, start, duration, flops, bytes_ = columns
        title, type_ = self.recording.names[name], schema.COMP
        attributes = [*own.of_work(kind, title), *own.of_lane(kind, self.recording.lanes[lane])]
        if kind == COMMUNICATION:
            type_, more = self._communication(self.recording.communications[what])
            attributes += more
        for key, of, value in (("num_ops", "int64", flops), ("tensor_size", "uint64", bytes_)):
            if value != NONE:
                attributes.append(Attribute(key, of, value))
        if duration == NONE and kind != COMMUNICATION and flops <= 0:
            self.lost["that the times of some operations are not known: they take none"] = None
        micros = self._microseconds(max(duration, 0))
        silent = NONE if kind == COMMUNICATION or flops > 0 else 0  # what no duration at all says
        attributes += own.of_times(start, duration, sequence, said=micros * _MICROSECOND or silent)
        begun = 0 if start == NONE else (self.recording.origin * 1000 + start) // _MICROSECOND
        return ChakraNode(number, title, type_, control, data, begun, micros, attributes=tuple(attributes))

    def _microseconds(self, duration: int) -> int:
        """Round so that the sum over all nodes is right within half a microsecond."""
        self._taken += duration
        micros = (self._taken + _MICROSECOND // 2) // _MICROSECOND - self._said
        self._said += micros
        return micros

    def _communication(self, what: Communication) -> tuple[int, list[Attribute]]:
        """Say what a communication does; Chakra counts the bytes that a rank hands in."""
        type_, attributes, share = schema.COMM_COLL, self._group(what), what.size
        if what.operation in {"send", "recv"}:
            type_ = schema.COMM_SEND if what.operation == "send" else schema.COMM_RECV
            attributes += self._ends(what)
        elif what.operation in COLLECTIVES:
            attributes.append(Attribute("comm_type", "int64", COLLECTIVES.index(what.operation)))
            if what.peer != NONE:
                attributes.append(Attribute("comm_src", "int32", what.peer))
        else:
            msg = f"has a communication {what.operation!r}, for which Chakra has no name; only a trace that says what"
            self._refuse(f"{msg} it does can be written")
        said = share
        if what.operation in GATHERING:
            share, said = self._shared(what)
        if share != NONE:
            attributes.append(Attribute("comm_size", "int64", share))
        elif what.operation != "barrier":
            self._refuse(f"has a communication ({what.operation}) whose bytes are not known; Chakra needs them")
        return type_, [*attributes, *own.of_communication(what, said=said)]

    def _ends(self, what: Communication) -> list[Attribute]:
        if what.peer == NONE:
            self._refuse(f"has a {what.operation} whose other end is not known; Chakra needs it")
        if what.tag == NONE:
            self._refuse(f"has a {what.operation} with any tag; Chakra needs one, which its other end has, too")
        key = "comm_dst" if what.operation == "send" else "comm_src"
        kind = "int32" if what.tag < _INT32 else "int64"
        return [Attribute(key, "int32", what.peer), Attribute("comm_tag", kind, what.tag)]

    def _group(self, what: Communication) -> list[Attribute]:
        if what.group == NONE:
            return []
        return [Attribute("pg_name", "string", self.groups.number(self.recording.groups[what.group]))]

    def _shared(self, what: Communication) -> tuple[int, int]:
        """Give what each rank hands in, and the whole that a reader makes of it."""
        if what.size == NONE:
            return what.share, NONE
        group = None if what.group == NONE else self.recording.groups[what.group]
        members = size_of(group, self.world)
        if members <= 0:
            msg = f"has an {what.operation} over a group of unknown size, of which Chakra needs the bytes of one rank"
            self._refuse(f"{msg}; give the traces of all ranks")
        share = -(-what.size // members)
        return share, share * members

    def _refuse(self, problem: str) -> NoReturn:
        raise InputError(f"{self.recording.source}: rank {self.recording.rank} {problem}")


def _before(count: int, before: NDArray[np.int64], after: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """List for each node those that it waits for."""
    order = np.argsort(after, kind="stable")
    ends = np.cumsum(np.bincount(after, minlength=count))
    return [tuple(some.tolist()) for some in np.split(before[order], ends[:-1])]
