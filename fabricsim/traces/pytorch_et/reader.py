"""Execution traces of PyTorch's ExecutionTraceObserver, schemas 1.0.1 to 1.1.1, and Chakra's "ET+" with times.

A trace holds all calls of operators with their tensors, and no times. Of the calls those are kept that run a kernel:
the innermost operators with tensors that are neither views nor allocations, and operators of extensions that call no
other such. Chakra's ``chakra_trace_link`` adds kernels and times; where they are there, kernels are taken from them.
"""

import re
from collections.abc import Iterator

from fabricsim.errors import TraceError
from fabricsim.files.json_objects import ObjectList
from fabricsim.files.sources import Source
from fabricsim.records.program import NONE
from fabricsim.traces.form import Form
from fabricsim.traces.pytorch_et import timed as pytorch_et_timed
from fabricsim.traces.pytorch_et import writer as pytorch_et_writer
from fabricsim.traces.pytorch_et.calls import Calls, ParamComms
from fabricsim.traces.pytorch_et.messages import PEERLESS, Groups
from fabricsim.traces.pytorch_et.nodes import OperatorNode, node_of
from fabricsim.traces.trace import ProcessGroup, Recording, RecordingBuilder

_OPENING = re.compile(rb'\s*\{[^\[\]{}]*"schema"\s*:\s*"([^"]*)"[^\[\]{}]*"nodes"\s*:\s*\[')
_KNOWN = re.compile(rb"1\.(0|1)\.\d")
_OF_NAME = re.compile(r"(?:rank|worker|eg|et|trace|kineto|chakra_host)[_.-]?(\d{1,7})(?!\d)", re.IGNORECASE)


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether a file is of this form."""
    return _OPENING.match(head) is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the trace of a rank.

    Raises TraceError if the file is cut, damaged or of an unknown schema, or contradicts itself.
    """
    calls = Calls(source.label, Groups(source.label))
    for node in nodes_of(source):
        calls.take(node)
    builder = RecordingBuilder(source.label)
    rank = _rank(calls, source.name)
    groups = _groups(calls, rank, builder)
    if calls.groups.cut:
        builder.missing["the ranks of all process groups: PyTorch cuts their list at 4,096 letters"] = None
    origin = 0
    if calls.device:
        origin = pytorch_et_timed.write(builder, calls, groups)
    else:
        builder.missing["times: give the Kineto traces of the same run beside it"] = None
        pytorch_et_writer.write(builder, calls, groups)
    if builder.count:
        world = calls.groups.world
        if world == NONE and "0" in groups:
            world = groups["0"].size
        yield builder.build(rank, world, origin=origin)


def nodes_of(source: Source) -> Iterator[OperatorNode]:
    """Give the nodes of a file; errors as of `read`."""
    nodes = ObjectList(source, _OPENING)
    schema = _OPENING.match(nodes.head)
    if schema is None or not _KNOWN.match(schema[1]):
        shown = schema[1][:30].decode("utf-8", "replace") if schema else ""
        raise TraceError(source.label, f"is of schema {shown!r}; 1.0.1 to 1.1.1 can be read")
    for number, text in enumerate(nodes):
        yield node_of(text, source.label, number)


def _rank(calls: Calls, name: str) -> int:
    """Find the rank that wrote the file: as its communications say, else as its name does."""
    found: dict[int, ParamComms] = {}
    locally: set[int] = set()
    for message in calls.messages:
        note = message.record.note
        if note.operation not in PEERLESS or note.rank < 0:
            continue
        group = calls.groups.of(message.record)
        if group is None:
            locally.add(note.rank)
        elif note.rank < len(group.ranks):
            found.setdefault(group.ranks[note.rank], message)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        msg = f"node {first.id} says it is of rank {one}, node {second.id} of rank {other}; give one file per rank"
        raise TraceError(calls.label, msg)
    if found:
        return next(iter(found))
    if len(locally) == 1:
        return next(iter(locally))
    return rank_of_name(name)


def rank_of_name(name: str) -> int:
    """Find the rank in the name of a file; NONE if it has none."""
    match = _OF_NAME.search(name)
    return int(match[1]) if match else NONE


def _groups(calls: Calls, rank: int, builder: RecordingBuilder) -> dict[str, ProcessGroup]:
    """Name the group of each record, by what the record calls it."""
    groups: dict[str, ProcessGroup] = {}
    sizes: dict[str, int] = {}
    for message in calls.messages:
        note = message.record.note
        if note.operation is None:
            continue
        group = calls.groups.of(message.record)
        if group is not None:
            groups.setdefault(note.group, group)
        else:
            size = max(note.size, len(note.sent), len(note.received), sizes.get(note.group, NONE))
            sizes[note.group] = size or NONE
    if sizes:
        builder.missing["the ranks of its process groups, which this schema knows by addresses alone"] = None
    for number, (address, size) in enumerate(sizes.items()):
        # one group alone is the one that PyTorch makes first, and calls 0; several cannot be matched across ranks
        name = "0" if len(sizes) == 1 else f"group {number} of rank {rank}"
        groups[address] = ProcessGroup(name, "", (), size)
    return groups


FORM = Form("pytorch_et", "PyTorch ExecutionTraceObserver: JSON, one file per rank", recognises, read)
