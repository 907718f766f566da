"""What the nodes ``record_param_comms`` and ``## process_group:init ##`` of an execution trace say.

``record_param_comms`` has the arguments ``[tensors, sequence, group, rank, name, splits in, splits out, (first rank,
stride,) size]``, without the tensors if nothing is moved (``torch/csrc/distributed/c10d/ParamCommsUtils.hpp`` of
github.com/pytorch/pytorch). `rank` counts within the group: the root, the other end, or this rank itself.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.kineto.messages import MOST_RANKS, Note, communication, note_of
from fabricsim.traces.pytorch_et.nodes import OperatorNode, Tensor, tensors
from fabricsim.traces.rank_groups import MOST_LISTED, strided
from fabricsim.traces.trace import Communication, ProcessGroup, RecordingBuilder

RECORD = "record_param_comms"
GROUPS = "## process_group:init ##"
PEERLESS = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"})
"""Operations whose `rank` is the one that has recorded them."""

_BRACE = re.compile(r"[{}]")
_LONGEST_LIST = 2**24
_NUMBERED = re.compile(r"([{,]\s*)(\d+)\s*:")
_TENSOR_TYPE = re.compile(r"Tensor\(([\w: ]{1,60})\)")
_PASSED = (  # what schema 1.1.0 adds, and how Kineto calls it; lists of splits are cut in it, but not in the arguments
    ("dtype", "dtype"),
    ("in_msg_nelems", "In msg nelems"),
    ("out_msg_nelems", "Out msg nelems"),
    ("pg_name", "Process Group Name"),
    ("pg_desc", "Process Group Description"),
)


class Record(NamedTuple):
    """A record of a communication, or of a wait for one.

    `name`: as PyTorch calls it, such as ``"allreduce"`` or ``"wait"``.
    `note`: what it says of the communication.
    `sequence`: number of the communication within its group; NONE if not captured.
    `named`: whether its group has a name that is the same on all ranks; else `note.group` is an address in this
        process.
    """

    name: str
    note: Note
    sequence: int
    named: bool
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]


def record_of(node: OperatorNode, label: str) -> Record:
    """Read the arguments of a node ``record_param_comms``.

    Raises TraceError if they are not of the form above.
    """
    values = node.arguments
    # a name may stand first among a node's arguments but never before a sequence number, a group and a rank
    place = next((place for place, value in enumerate(values[:8]) if isinstance(value, str) and place > 2), NONE)  # noqa: PLR2004
    if place not in {3, 4} or type(values[place - 1]) is not int:
        msg = f"node {node.id} ({RECORD}) has arguments of an unknown form; give the file as PyTorch wrote it"
        raise TraceError(label, msg)
    reads = tuple(tensors(values[0])) if place > 3 else ()  # noqa: PLR2004  after the tensors
    writes = tuple(tensors(node.results))
    group, numbered = values[place - 2], values[place - 3]
    named = isinstance(group, list) and len(group) > 0 and isinstance(group[0], str)
    arguments: dict[str, Any] = {
        "Collective name": values[place],
        "Rank": values[place - 1],
        "dtype": _datatype(node.types),
        "In msg nelems": _elements(reads),
        "Out msg nelems": _elements(writes),
        "In split size": values[place + 1] if len(values) > place + 1 else [],
        "Out split size": values[place + 2] if len(values) > place + 2 else [],
        "Process Group Name": group[0] if named else group,
        "Process Group Description": group[1] if named and len(group) > 1 else "",
        **_layout([value for value in values[place + 3 : place + 6] if type(value) is int]),
    }
    attributes = node.attributes
    arguments |= {ours: attributes[theirs] for theirs, ours in _PASSED if theirs in attributes}
    sequence = numbered[0] if isinstance(numbered, list) and numbered else numbered
    known = type(sequence) is int and 0 <= sequence < 2**62
    return Record(values[place], note_of(arguments), sequence if known else NONE, named, reads, writes)


def _elements(found: tuple[Tensor, ...]) -> int:
    return sum(tensor.elements for tensor in found) if found else NONE


def _datatype(types: list[str]) -> str:
    match = _TENSOR_TYPE.search(types[0][:200]) if types else None
    return match[1] if match else ""


def _layout(numbers: list[int]) -> dict[str, int]:
    """First rank, stride and size, or size alone."""
    if len(numbers) < 3:  # noqa: PLR2004  as above
        return {"Group size": numbers[0]} if numbers else {}
    return dict(zip(("Global rank start", "Global rank stride", "Group size"), numbers, strict=True))


class Groups:
    """The process groups of a rank, by name and by address."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.cut = False
        self._room = MOST_LISTED
        self._listed: dict[str, ProcessGroup] = {}
        self._addresses: dict[str, ProcessGroup] = {}

    @property
    def world(self) -> int:
        """Ranks of the job: those of the group that PyTorch makes first and calls 0; NONE if it is not listed."""
        whole = self._listed.get("0")
        return whole.size if whole else NONE

    def learn(self, node: OperatorNode) -> None:
        """Take up what a node ``## process_group:init ##`` lists; PyTorch cuts long lists at 4,096 letters."""
        text = next((value for value in node.arguments if isinstance(value, str)), "")
        self.cut |= bool(text) and not text.rstrip().endswith("]")
        for item in _items(text[:_LONGEST_LIST]):
            listed = _decoded(item)
            if listed is not None:
                self._take(listed)

    def _take(self, listed: dict[str, Any]) -> None:
        name, size, ranks = listed.get("pg_name"), listed.get("group_size"), listed.get("ranks")
        members = [int(rank) if str(rank).isdecimal() else rank for rank in ranks or ()] if _is_list(ranks) else []
        if not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in members) or len(set(members)) < len(
            members
        ):
            msg = f"the ranks of process group {str(name)!r} are none: {str(ranks)[:60]}; copy the file again"
            raise TraceError(self.label, msg)
        if isinstance(ranks, dict):  # of global to local ranks
            members.sort(key=lambda rank: ranks[str(rank)] if type(ranks[str(rank)]) is int else 0)
        if type(size) is not int or not 0 < size <= MOST_RANKS:
            size = len(members) or NONE
        addresses = [str(listed[key]) for key in ("backend_id", "pg_id") if type(listed.get(key)) is int]
        called = str(name) if isinstance(name, (str, int)) else addresses[0] if addresses else ""
        described = listed.get("pg_desc")
        # PyTorch lists none for the group of all
        whole = strided(size) if not members and size != NONE else tuple(members)
        self._room -= len(whole)
        if self._room < 0:
            raise TraceError(self.label, f"its process groups have more than {MOST_LISTED} ranks; copy the file again")
        group = ProcessGroup(called, described if isinstance(described, str) else "", whole, size)
        self._listed[called] = group
        self._addresses |= dict.fromkeys(addresses, group)

    def of(self, record: Record) -> ProcessGroup | None:
        """Give the group of a record; None if it is known by an address alone."""
        note = record.note
        listed = (self._listed if record.named else self._addresses).get(note.group)
        if listed is not None:
            if note.size not in {NONE, listed.size} and listed.size != NONE:
                msg = f"process group {listed.name!r} is of {listed.size} ranks, but a communication says {note.size}"
                raise TraceError(self.label, f"{msg}; give the file as PyTorch wrote it")
            return listed
        return ProcessGroup(note.group, note.description, note.ranks, note.size) if record.named else None


def _items(text: str) -> Iterator[str]:
    """Give the objects of a list that are whole."""
    depth = start = 0
    for brace in _BRACE.finditer(text):
        if depth == 0:
            start = brace.start()
        depth = depth + 1 if brace[0] == "{" else max(depth - 1, 0)
        if depth == 0:
            yield text[start : brace.end()]


def _is_list(ranks: object) -> bool:
    return isinstance(ranks, (list, dict)) and len(ranks) <= MOST_RANKS


def _decoded(text: str) -> dict[str, Any] | None:
    """Decode JSON, or a Python dictionary as PyTorch wrote it in 2023."""
    for form in (text, _NUMBERED.sub(r'\1"\2":', text.replace("'", '"'))):
        try:
            value = msgspec.json.decode(form)
        except (msgspec.DecodeError, RecursionError, ValueError):
            continue
        if isinstance(value, dict):
            return value
    return None


def moved(builder: RecordingBuilder, record: Record, group: ProcessGroup | None) -> Communication | None:
    """Say what a record moves; None if it moves nothing, as a wait."""
    note = record.note
    if note.operation is None or (not record.reads and not record.writes and note.operation != "barrier"):
        return None
    if group is None:
        size = max(note.size, len(note.sent), len(note.received))
        group = ProcessGroup("", "", (), size if size > 0 else NONE)
    return communication(note, note.operation, builder.group(*group), group.ranks, group.size)
