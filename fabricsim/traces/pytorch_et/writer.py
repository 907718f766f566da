"""Calls of an execution trace without times, written as nodes: lanes, data dependencies, and what waits for what.

A node waits for those of other lanes that wrote the memory it reads. A communication waits for all kernels that were
launched before it, and what its thread launches after ``wait`` waits for it, as ``ProcessGroupNCCL`` of PyTorch has it.
Memory that is overwritten while it is read elsewhere is no dependency: PyTorch's allocator and ``wait`` see to that.
"""

from dataclasses import dataclass, field

from fabricsim.records.program import NONE
from fabricsim.traces.pytorch_et.calls import Calls, OperatorCall, ParamComms, innermost, parts_of_others
from fabricsim.traces.pytorch_et.messages import moved
from fabricsim.traces.pytorch_et.operators import device_of
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, HOST, ProcessGroup, RecordingBuilder


class _Order:
    """Lanes: what each has run and written last, and what it has waited for."""

    def __init__(self, builder: RecordingBuilder) -> None:
        self.builder = builder
        self.last: dict[int, int] = {}
        self.writers: dict[int, dict[int, int]] = {}
        self.waited: dict[tuple[int, int], int] = {}
        self.to_wait: dict[int, list[tuple[int, int]]] = {}

    def after(self, lane: int, node: int, storages: tuple[int, ...]) -> None:
        """Let a node wait for those of other lanes that wrote what it reads."""
        for storage in storages:
            for other, writer in self.writers.get(storage, {}).items():
                self.wait(lane, node, other, writer)

    def wait(self, lane: int, node: int, other: int, before: int) -> None:
        """Let a node wait for one of another lane, unless its lane has waited for that or a later one."""
        if lane != other and self.waited.get((lane, other), NONE) < before:
            self.waited[lane, other] = before
            self.builder.edge(before, node)

    def join(self, lane: int, node: int, launcher: int) -> None:
        """Let a node wait for all that another lane has run and waited for so far."""
        for other, before in self.to_wait.get(launcher, ()):
            self.wait(lane, node, other, before)
        if launcher in self.last:
            self.wait(lane, node, launcher, self.last[launcher])

    def ran(self, lane: int, node: int, storages: tuple[int, ...], makes: tuple[int, ...] = ()) -> None:
        """Note the latest node of a lane and what it has written; memory that it makes held nothing before."""
        for other, before in self.to_wait.pop(lane, ()):
            self.wait(lane, node, other, before)
        for storage in makes:
            self.writers.pop(storage, None)
        for storage in storages:
            self.writers.setdefault(storage, {})[lane] = node
        self.last[lane] = node


@dataclass
class _Writer:
    """Writes calls in the order of their ids, which is that in which they began."""

    builder: RecordingBuilder
    groups: dict[str, ProcessGroup]
    on_device: bool
    order: _Order
    begun: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def lane(self, device: str, thread: int) -> int:
        """Give what runs the kernels of a thread: on a device all threads share one stream unless told otherwise."""
        return self.builder.lane("stream", f"kernels of {device}") if device else self.host(thread)

    def host(self, thread: int) -> int:
        return self.builder.lane("thread", f"thread {thread}")

    def operator(self, call: OperatorCall) -> None:
        work = call.work
        kind = HOST if self.on_device and not work.device else COPY if work.copies else COMPUTE
        lane = self.lane(work.device, call.thread)
        node = self.builder.node(kind, lane, call.name, work=(work.flops, work.bytes))
        self.order.after(lane, node, work.reads)
        self.order.ran(lane, node, work.writes, work.makes)

    def message(self, message: ParamComms) -> None:
        record = message.record
        group = self.groups.get(record.note.group)
        moves = moved(self.builder, record, group)
        if record.name == "wait":
            self._wait(record.sequence)
        if moves is None or group is None:
            return
        launcher = self.lane(device_of((*record.reads, *record.writes)), message.thread)
        lane = self.builder.lane("stream", f"communications of group {group.name}")
        node = self.builder.node(COMMUNICATION, lane, record.name, communication=moves, sequence=record.sequence)
        self.order.join(lane, node, launcher)
        self.order.after(lane, node, tuple(tensor.storage for tensor in record.reads))
        self.order.ran(lane, node, tuple(tensor.storage for tensor in record.writes))
        self.begun.setdefault(record.sequence, []).append((launcher, lane, node))

    def _wait(self, sequence: int) -> None:
        """Let what comes next wait for a communication."""
        awaited = self.begun.pop(sequence, [])
        if len(awaited) > 1:
            self.builder.missing["of which group some waits are: two have a communication of that number"] = None
        elif awaited:
            launcher, lane, node = awaited[0]
            self.order.to_wait.setdefault(launcher, []).append((lane, node))


def write(builder: RecordingBuilder, calls: Calls, groups: dict[str, ProcessGroup]) -> None:
    """Write calls without times."""
    operators = {call.id: call for call in innermost(calls)}
    inner = parts_of_others(calls)
    messages = {message.id: message for message in calls.messages if message.id not in inner}
    writer = _Writer(builder, groups, any(call.work.device for call in operators.values()), _Order(builder))
    for number in sorted([*operators, *messages]):
        if number in operators:
            writer.operator(operators[number])
        else:
            writer.message(messages[number])
