"""Recordings of what ranks have called.

Meaning of counts and roots after ``src/collectives.cc`` and ``src/enqueue.cc`` of github.com/NVIDIA/nccl.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.kineto.messages import ITEM
from fabricsim.traces.nccl_log.ranks import Entity, Ranks
from fabricsim.traces.trace import BY_PLAIN_NAME, COMMUNICATION, COMPUTE, Communication, Recording, RecordingBuilder

DATATYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"),
    *("bfloat16", "float8e4m3", "float8e5m2"),
)
"""Names by number (``ncclDataType_t`` of ``nccl.h``)."""

_SHARES = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
"""Operations whose count is that of one rank's share: NCCL's sendcount or recvcount."""
_ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
_OPERATIONS = {plain: name for plain, name in BY_PLAIN_NAME.items() if name in {"all_reduce", *_SHARES, *_ROOTED}}
_POINT_TO_POINT = ("send", "recv")
_MOST_SIZE = 2**62
_PART = 2**16  # calls that are held as Python objects
_GROUP_END = "end of sends and receives"


class _Call(NamedTuple):
    """A row of ``CALL``."""

    communicator: int
    operation: int
    elements: int
    datatype: int
    root: int
    number: int
    stream: int


class Caller:
    """Makes the recording of one rank from its calls.

    Sends and receives of one NCCL group are called one after the other and run at once: they stand in a lane without
    order, between what their stream ran before and a node that takes no time.
    """

    def __init__(self, ranks: Ranks, entity: Entity, calls: NDArray[np.void]) -> None:
        self.ranks, self.entity, self.log = ranks, entity, ranks.log
        self.rank = ranks.ranks[entity]
        self.calls = calls
        self.operations = [_OPERATIONS.get(name.casefold(), "unknown") for name in self.log.operations]
        self.builder = RecordingBuilder(self.log.source)
        self.groups: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.numbered = self._numbered()
        self.last: dict[str, int] = {}  # node that each stream runs last
        self.parts: dict[str, tuple[int, list[int]]] = {}  # of the group that each stream runs

    def recording(self) -> Recording:
        """Give the recording."""
        self._miss("when anything ran, and all computation: a log of NCCL says only what was called")
        for call, together in zip(self._rows(), self._together(), strict=True):
            self._add(call, together)
        for stream in list(self.parts):
            self._join(stream)
        (host, _), _ = self.entity
        return self.builder.build(self.rank, self.ranks.world, host=host)

    def _rows(self) -> Iterator[_Call]:
        for begin in range(0, len(self.calls), _PART):
            yield from map(_Call._make, self.calls[begin : begin + _PART].tolist())

    def _numbered(self) -> set[int]:
        """Find communicators that count their calls: collectives, each launched by itself."""
        calls = self.calls
        single = np.array([operation in _POINT_TO_POINT for operation in self.operations], np.bool_)
        single = single[calls["operation"]]
        order = np.argsort(calls["communicator"], kind="stable")
        of, number = calls["communicator"][order], calls["number"][order]
        stays = (of[1:] == of[:-1]) & (number[1:] <= number[:-1])
        return set(of.tolist()) - set(of[1:][stays].tolist()) - set(calls["communicator"][single].tolist())

    def _together(self) -> list[int]:
        """Give groups of sends and receives that run at once a number each; NONE for what runs by itself."""
        numbers: list[int] = []
        open_groups: dict[int, tuple[int, int, int]] = {}  # by stream: communicator, number, group
        for place, call in enumerate(self._rows()):
            if self.operations[call.operation] not in _POINT_TO_POINT:
                open_groups.pop(call.stream, None)
                numbers.append(NONE)
                continue
            *key, group = open_groups.get(call.stream, (NONE, NONE, NONE))
            if key != [call.communicator, call.number]:
                group = place
            open_groups[call.stream] = call.communicator, call.number, group
            numbers.append(group)
        sizes = Counter(numbers)
        return [number if sizes[number] > 1 else NONE for number in numbers]

    def _add(self, call: _Call, together: int) -> None:
        stream = f"stream {call.stream:#x}"
        if stream in self.parts and self.parts[stream][0] != together:
            self._join(stream)
        lane = self.builder.lane("stream", stream) if together == NONE else self.builder.lane("any", stream)
        node = self.builder.node(
            COMMUNICATION,
            lane,
            self.log.operations[call.operation],
            communication=self._communication(call),
            sequence=call.number if call.communicator in self.numbered else NONE,
        )
        if together == NONE:
            self.last[stream] = node
            return
        if stream in self.last:
            self.builder.edge(self.last[stream], node)
        self.parts.setdefault(stream, (together, []))[1].append(node)

    def _join(self, stream: str) -> None:
        """End a group: what its stream runs next waits for all of it."""
        _, parts = self.parts.pop(stream)
        end = self.builder.node(COMPUTE, self.builder.lane("stream", stream), _GROUP_END, duration=0)
        for part in parts:
            self.builder.edge(part, end)
        self.last[stream] = end

    def _communication(self, call: _Call) -> Communication:
        operation = self.operations[call.operation]
        if operation == "unknown":
            self._miss(f"what {self.log.operations[call.operation]} does: no collective of NCCL has that name")
        group, members = self._group(call.communicator)
        peer, member = self._peer(call, members) if operation in _ROOTED else (NONE, NONE)
        datatype = DATATYPES[call.datatype] if call.datatype < len(DATATYPES) else ""
        size, item = NONE, ITEM.get(datatype, NONE)
        if item == NONE:
            self._miss(f"bytes of datatype {call.datatype}: it is none of NCCL's")
        elif operation != "unknown":
            size = (
                call.elements * item * (self.log.communicators[call.communicator].size if operation in _SHARES else 1)
            )
        if size > _MOST_SIZE:
            msg = f"a count of {call.elements} elements is more than any memory holds; the log is damaged"
            raise TraceError(self.log.source, msg)
        return Communication(operation, group, size, datatype, peer, member=member)

    def _group(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Give the number of a group of the recording, and its ranks."""
        if number not in self.groups:
            members, size = self.ranks.group(number), self.log.communicators[number].size
            if not members and size != self.ranks.world and not self.log.communicators[number].identity:
                self._miss(f"which ranks are in some communicators of {size} ranks (commId, of NCCL 2.18 and later)")
            self.groups[number] = self.builder.group(self.ranks.names[number], "", members, size), members
        return self.groups[number]

    def _peer(self, call: _Call, members: tuple[int, ...]) -> tuple[int, int]:
        """Give the global rank of a root or of the other end, or else its rank in the communicator."""
        each = self.log.communicators[call.communicator]
        if not 0 <= call.root < each.size:
            msg = f"{self.log.operations[call.operation]} with rank {call.root} of a communicator of {each.size} ranks"
            raise TraceError(self.log.source, f"{msg}; the log is damaged")
        if members:
            return members[call.root], NONE
        return (call.root, NONE) if each.size == self.ranks.world and each.rank == self.rank else (NONE, call.root)

    def _miss(self, what: str) -> None:
        self.builder.missing[what] = None
