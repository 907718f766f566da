"""Dumps of PyTorch's Flight Recorder as JSON: the last communications of a rank, each with its sizes and its group.

Keys after ``torch/csrc/distributed/c10d/FlightRecorder.hpp`` of github.com/pytorch/pytorch, versions 2.x of the dump. A
dump has the time when a communication was handed to NCCL (``time_created_ns``) and, with ``TORCH_NCCL_ENABLE_TIMING``,
how long it took. Times when its watchdog noticed something are no times of the communication, and are left out.

PyTorch's own files are pickles. A pickle runs what its writer wants when it is read: such files are refused.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Annotated, Any

import msgspec

from fabricsim.errors import TraceError
from fabricsim.files.json_objects import ObjectList, decoded
from fabricsim.files.sources import Source
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.form import Form
from fabricsim.traces.group_calls import GroupCalls
from fabricsim.traces.kineto.messages import MOST_RANKS, communication, note_of
from fabricsim.traces.trace import LAUNCH, Communication, Recording, RecordingBuilder
from fabricsim.units import PS_PER_NS

_OPENING = re.compile(rb'\s*\{.*?"entries"\s*:\s*\[', re.DOTALL)
_IN_ENTRY = re.compile(rb'"(?:profiling_name|pg_config|pg_status)"')
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x95\x8c}\](cX)]")
"""Protocol 2 to 5, and an operation that a dump can begin with."""
_AROUND = 16 * 2**20
_OF_NAME = tuple(re.compile(rf"(?:{word})[_.-]?(\d{{1,7}})(?!\d)", re.IGNORECASE) for word in ("rank", "trace|fr|dump"))
_PEER = re.compile(r"(\w+) (\d{1,7})(?:->|<-)(\d{1,7})$")
_CLOSE = "coalesced"  # closes a group of operations that have entries of their own
_NS_PER_MS = 1e6
_MOST_NS = CLOCK_END // PS_PER_NS

Sizes = list[list[Annotated[int, msgspec.Meta(ge=0, lt=2**40)]]]


class _Entry(msgspec.Struct):
    profiling_name: str
    record_id: int = 0
    process_group: list[Any] = []
    collective_seq_id: Annotated[int, msgspec.Meta(ge=-1, lt=2**62)] = NONE
    is_p2p: bool = False
    time_created_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=_MOST_NS / _NS_PER_MS)] | None = None
    input_sizes: Sizes = []
    input_dtypes: list[str] = []
    output_sizes: Sizes = []
    output_dtypes: list[str] = []


_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_rest = msgspec.json.Decoder(dict[str, Any]).decode


def recognises(name: str, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether a file is a dump of the Flight Recorder, as JSON or as a pickle."""
    if _PICKLE.match(head):
        return True
    return head.lstrip()[:1] == b"{" and b'"traceEvents"' not in head and _IN_ENTRY.search(head) is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the dump of a rank; the name of its file says which, such as ``nccl_trace_rank_3.json``.

    Raises TraceError if the file is a pickle, is cut or damaged, or is no dump.
    """
    if _PICKLE.match(source.head):
        msg = (
            "is a Python pickle, which may run any program when it is read; let the job write "
            "torch._C._distributed_c10d._dump_nccl_trace_json() to a file of each rank instead, or turn a pickle that "
            "you trust into JSON yourself: json.dump(pickle.load(open(name, 'rb')), open(name + '.json', 'w'))"
        )
        raise TraceError(source.label, msg)
    listed = ObjectList(source, _OPENING, around=_AROUND)
    entries = [decoded(_decode_entry, text, source.label, f"entry {number}") for number, text in enumerate(listed)]
    match = next(filter(None, (pattern.search(source.name) for pattern in _OF_NAME)), None)
    dump = _Dump(source.label, _groups(listed, source.label), int(match[1]) if match else NONE)
    recording = dump.recording(entries)
    if recording is not None:
        yield recording


def _groups(listed: ObjectList, label: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Give description and ranks of each process group, from what is around the list of entries."""
    before = listed.head[: listed.head.rindex(b'"entries"')].strip()
    around: dict[str, Any] = {}
    for text in (before.removesuffix(b",") + b"}", b"{" + listed.rest.strip().removeprefix(b",")):
        around |= decoded(_decode_rest, text, label, "what is around its entries")
    configured = around.get("pg_config")
    groups = {}
    for name, group in configured.items() if isinstance(configured, dict) else ():
        if isinstance(group, dict):
            described = group.get("desc")
            groups[name] = (described if isinstance(described, str) else "", _ranks(group.get("ranks"), name, label))
    return groups


def _ranks(listed: object, name: str, label: str) -> tuple[int, ...]:
    """Read ``"[0, 1]"``, or such a list."""
    if isinstance(listed, str):
        listed = [int(word) for word in re.findall(r"\d{1,18}", listed)]
    ranks = listed if isinstance(listed, list) else []
    if not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks) or len(set(ranks)) < len(ranks):
        raise TraceError(label, f"the ranks of process group {name!r} are none: {str(listed)[:60]}; dump it again")
    return tuple(ranks)


class _Dump:
    """Makes a recording of entries."""

    def __init__(self, label: str, groups: dict[str, tuple[str, tuple[int, ...]]], rank: int) -> None:
        self.builder = RecordingBuilder(label)
        self.groups, self.rank = groups, rank
        self.origin = 0
        self.untimed = 0
        self.rows = GroupCalls(self.builder)

    def recording(self, entries: list[_Entry]) -> Recording | None:
        created = [entry.time_created_ns for entry in entries if entry.time_created_ns is not None]
        self.origin = min(created, default=0)
        ordered = sorted(entries, key=lambda entry: entry.record_id)
        together = _together(ordered)
        for place, entry in enumerate(ordered):
            self._take(entry, together=place in together)
        if not self.builder.count:
            return None
        missing = self.builder.missing
        missing["what the rank computes: only communications are recorded"] = None
        first = min(entry.record_id for entry in entries)
        if first > 0:
            missing[f"the first {first} communications: raise TORCH_NCCL_TRACE_BUFFER_SIZE to keep them"] = None
        if self.untimed:
            missing[f"how long {self.untimed} communications took: set TORCH_NCCL_ENABLE_TIMING=1"] = None
        whole = self.groups.get("0", ("", ()))[1]  # PyTorch makes the group of all first, and calls it 0
        return self.builder.build(self.rank, len(whole) or NONE, origin=self.origin)

    def _take(self, entry: _Entry, *, together: bool) -> None:
        title = entry.profiling_name.rpartition(":")[2]
        ends = _PEER.match(title)
        names = [part for part in entry.process_group[:2] if isinstance(part, str)]
        group = _group_of(entry)
        described, ranks = self.groups.get(group, (names[1] if len(names) > 1 else "", ()))
        note = note_of(
            {
                # a barrier of NCCL's is an all-reduce, and recorded as "all_reduce_barrier"
                "Collective name": "barrier" if title.endswith("barrier") else ends[1] if ends else title,
                "In msg nelems": _elements(entry.input_sizes),
                "Out msg nelems": _elements(entry.output_sizes),
                "dtype": _one({*entry.input_dtypes, *entry.output_dtypes}),
                "Rank": int(ends[3]) if ends else NONE,
            }
        )
        if note.operation is None:
            if title == _CLOSE:
                self.rows.close(f"group {group}")
            return
        number = self.builder.group(group, described, ranks, len(ranks) or NONE) if group else NONE
        moves = communication(note, note.operation, number, ranks, len(ranks) or NONE)
        # the numbers of sends and receives are none that their two ends agree on
        sequence = NONE if entry.is_p2p else entry.collective_seq_id
        self._write(entry, group, moves, sequence, together=together)

    def _write(self, entry: _Entry, group: str, moves: Communication, sequence: int, *, together: bool) -> None:
        builder = self.builder
        duration = NONE if entry.duration_ms is None else round(entry.duration_ms * _NS_PER_MS) * PS_PER_NS
        self.untimed += duration == NONE
        launch = NONE
        if entry.time_created_ns is not None and entry.time_created_ns - self.origin <= _MOST_NS:
            start = (entry.time_created_ns - self.origin) * PS_PER_NS
            launch = builder.node(LAUNCH, builder.lane("thread", "calls of NCCL"), entry.profiling_name, start=start)
        node = self.rows.node(
            f"group {group}",
            entry.profiling_name,
            moves,
            start=NONE,
            duration=duration,
            sequence=sequence,
            together=together,
        )
        if launch != NONE:
            builder.edge(launch, node, on_start=True)


def _group_of(entry: _Entry) -> str:
    return next((part for part in entry.process_group[:2] if isinstance(part, str)), "")


def _together(entries: list[_Entry]) -> set[int]:
    """Find sends and receives that NCCL was given together: those of a group before what closes them."""
    found: set[int] = set()
    open_ones: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        group = _group_of(entry)
        if entry.profiling_name.endswith(f":{_CLOSE}"):
            found.update(open_ones.pop(group, []))
        elif entry.is_p2p:
            open_ones.setdefault(group, []).append(place)
        else:
            open_ones.pop(group, [])
    return found


def _elements(sizes: list[list[int]]) -> int:
    count = sum(prod(size) for size in sizes)
    return count if sizes and count < 2**56 else NONE


def _one(names: set[str]) -> str:
    return next(iter(names)) if len(names) == 1 else ""


FORM = Form("flight_recorder", "PyTorch Flight Recorder, dumped as JSON", recognises, read)
