"""Kernels and times that Chakra's ``chakra_trace_link`` adds to an execution trace ("ET+").

Kernels and copies are nodes with ``cat``, under the operator that launched them; ``ts`` and ``inclusive_dur`` are us.
``sync_dep`` of an operator names operators whose kernels it has waited for, ``inter_thread_dep`` an operator of
another thread that had to end before (``src/trace_link/trace_linker.py`` of github.com/mlcommons/chakra).
"""

import re

from fabricsim.traces.kineto.messages import operation_of_kernel
from fabricsim.traces.pytorch_et.calls import Calls, ParamComms, Timed
from fabricsim.traces.pytorch_et.messages import moved
from fabricsim.traces.trace import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    LAUNCH,
    WAIT,
    Communication,
    ProcessGroup,
    RecordingBuilder,
)
from fabricsim.units import PS_PER_NS

_STEP = re.compile(r"ProfilerStep#(\d{1,15})")


def write(builder: RecordingBuilder, calls: Calls, groups: dict[str, ProcessGroup]) -> int:
    """Write kernels and the operators that launched or waited for them; gives the origin of times in ns."""
    origin = min(entry.start for entry in (*calls.device, *calls.host.values()))
    builder.steps.extend(
        (int(match[1]), (entry.start - origin) * PS_PER_NS, (entry.start + entry.duration - origin) * PS_PER_NS)
        for entry in calls.host.values()
        if (match := _STEP.fullmatch(entry.name))
    )
    kernels = _write_device(builder, calls, groups, origin)
    needed = {number for entry in calls.host.values() for number in entry.after}
    nodes: dict[int, int] = {}
    for entry in sorted(calls.host.values(), key=lambda entry: entry.start):
        if entry.id not in kernels and entry.id not in needed and not entry.kernels_of and not entry.after:
            continue
        kind = LAUNCH if entry.id in kernels else WAIT if entry.kernels_of else HOST
        lane = builder.lane("thread", f"thread {entry.thread}")
        nodes[entry.id] = _node(builder, kind, lane, entry, origin)
        for kernel in kernels.get(entry.id, ()):
            builder.edge(nodes[entry.id], kernel, on_start=True)
    for entry in calls.host.values():
        _write_waits(builder, entry, nodes, kernels)
    return origin


def _node(builder: RecordingBuilder, kind: int, lane: int, entry: Timed, origin: int) -> int:
    start = (entry.start - origin) * PS_PER_NS
    return builder.node(kind, lane, entry.name, start=start, duration=entry.duration * PS_PER_NS)


def _write_device(
    builder: RecordingBuilder, calls: Calls, groups: dict[str, ProcessGroup], origin: int
) -> dict[int, list[int]]:
    """Write what devices run; gives the nodes by the operator that launched them."""
    messages = {message.id: message for message in calls.messages if message.record.note.operation is not None}
    launched: dict[int, list[int]] = {}
    for entry in sorted(calls.device, key=lambda entry: entry.start):
        lane = builder.lane("stream", f"stream {entry.stream}")
        operation = operation_of_kernel(entry.name)
        if operation is None:
            node = _node(builder, COPY if entry.copies else COMPUTE, lane, entry, origin)
        else:
            message = _message(calls, entry, messages)
            moves = None
            if message is not None:
                moves = moved(builder, message.record, groups.get(message.record.note.group))
            if moves is None:
                builder.missing["what some kernels of collectives move: no record of them was there"] = None
            start = (entry.start - origin) * PS_PER_NS
            node = builder.node(
                COMMUNICATION,
                lane,
                entry.name,
                communication=moves or Communication(operation),
                sequence=message.record.sequence if message is not None and moves is not None else -1,
                start=start,
                duration=entry.duration * PS_PER_NS,
            )
        launched.setdefault(entry.above, []).append(node)
    return launched


def _message(calls: Calls, entry: Timed, messages: dict[int, ParamComms]) -> ParamComms | None:
    """Find the record of the communication that a kernel does."""
    return next((messages[caller] for caller in (entry.above, *calls.callers(entry.above)) if caller in messages), None)


def _write_waits(builder: RecordingBuilder, entry: Timed, nodes: dict[int, int], kernels: dict[int, list[int]]) -> None:
    for number in entry.kernels_of:
        for kernel in kernels.get(number, ()):
            builder.edge(kernel, nodes[entry.id])
    for number in entry.after:
        if number in nodes and number != entry.id:
            builder.edge(nodes[number], nodes[entry.id])
