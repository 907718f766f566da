"""What is kept of an execution trace while it is read: calls that may run kernels, messages, and who called whom."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fabricsim.errors import TraceError
from fabricsim.traces.pytorch_et.messages import GROUPS, RECORD, Groups, Record, record_of
from fabricsim.traces.pytorch_et.nodes import OperatorNode
from fabricsim.traces.pytorch_et.operators import KernelWork, work_of

MOST_NODES = 10_000_000
"""Calls of the largest trace of a rank."""


_COPIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
_KERNELS = frozenset({"kernel", "Kernel"})
_NS_PER_US = 1000


class Timed(NamedTuple):
    """A node with times.

    `id`, `above`, `thread`, `name`: as the node has them.
    `start`, `duration`: ns.
    `on_device`, `copies`: whether a device runs it, and whether it is a copy or fill.
    `stream`: number of the stream.
    `kernels_of`: ids of operators whose kernels it has waited for.
    `after`: ids of operators that had to end before.
    """

    id: int
    above: int
    thread: int
    name: str
    start: int
    duration: int
    on_device: bool
    copies: bool
    stream: int
    kernels_of: tuple[int, ...]
    after: tuple[int, ...]


def timed_of(node: OperatorNode, thread: int) -> Timed:
    """Keep what there is of a node with times."""
    copies = node.cat in _COPIES
    return Timed(
        node.id,
        node.above,
        thread,
        node.name,
        round((node.ts or 0) * _NS_PER_US),
        round((node.inclusive_dur or 0) * _NS_PER_US),
        copies or node.cat in _KERNELS,
        copies,
        node.stream or 0,
        tuple(node.sync_dep or ()),
        () if node.inter_thread_dep is None else (node.inter_thread_dep,),
    )


class OperatorCall(NamedTuple):
    """A call of an operator that may run a kernel."""

    id: int
    thread: int
    name: str
    work: KernelWork


class ParamComms(NamedTuple):
    """A node ``record_param_comms``."""

    id: int
    thread: int
    record: Record


@dataclass
class Calls:
    """What is kept of a file.

    `groups`: process groups.
    `above`: id of the caller of each node.
    `operators`, `messages`, `device`, `host`: nodes by what they are; those of `device` and `host` have times.
    """

    label: str
    groups: Groups
    above: dict[int, int] = field(default_factory=dict)
    operators: list[OperatorCall] = field(default_factory=list)
    messages: list[ParamComms] = field(default_factory=list)
    device: list[Timed] = field(default_factory=list)
    host: dict[int, Timed] = field(default_factory=dict)

    def take(self, node: OperatorNode) -> None:
        """Keep a node, or what there is of it to be kept."""
        if node.id in self.above:
            raise TraceError(self.label, f"two of its nodes have the id {node.id}; copy the file again")
        if len(self.above) == MOST_NODES:
            raise TraceError(self.label, f"more than {MOST_NODES} nodes; capture fewer iterations")
        self.above[node.id] = node.above
        attributes = node.attributes
        thread = node.tid or attributes.get("tid", 0)
        thread = thread if type(thread) is int else 0
        if node.ts is not None and node.inclusive_dur is not None:
            entry = timed_of(node, thread)
            if entry.on_device:
                self.device.append(entry)
                return
            self.host[node.id] = entry
        if node.name == GROUPS:
            self.groups.learn(node)
        elif node.name == RECORD:
            self.messages.append(ParamComms(node.id, thread, record_of(node, self.label)))
        else:
            schema, backend = attributes.get("op_schema", node.op_schema), attributes.get("kernel_backend", "")
            work = work_of(node, schema if isinstance(schema, str) else "", backend if isinstance(backend, str) else "")
            if work is not None:
                self.operators.append(OperatorCall(node.id, thread, node.name, work))

    def callers(self, number: int) -> Iterator[int]:
        """Give the ids of what called a node, innermost first; ends if a node would be its own caller."""
        seen = {number}
        while (number := self.above.get(number, 0)) and number not in seen:
            seen.add(number)
            yield number


def innermost(calls: Calls) -> list[OperatorCall]:
    """Leave out operators that only call others which run kernels."""
    busy: set[int] = set()
    custom: set[int] = set()
    for message in calls.messages:
        _mark(calls, message.id, busy)
    kept = []
    for call in sorted(calls.operators, key=lambda call: -call.id):  # a node's id is above that of its caller
        if call.id in (custom if call.work.custom else busy):
            continue
        kept.append(call)
        _mark(calls, call.id, busy)
        if call.work.custom:
            _mark(calls, call.id, custom)
    return kept[::-1]


def _mark(calls: Calls, number: int, marked: set[int]) -> None:
    for caller in calls.callers(number):
        if caller in marked:
            return
        marked.add(caller)


def parts_of_others(calls: Calls) -> set[int]:
    """Ids of records within a record, as of the all-reduce that makes a barrier."""
    moving = {message.id for message in calls.messages if message.record.note.operation is not None}
    return {number for number in moving if any(caller in moving for caller in calls.callers(number))}
