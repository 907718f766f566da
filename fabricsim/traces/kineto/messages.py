"""What a collective of a PyTorch job is and moves, from what its profiler notes of it.

Names of kernels: NCCL up to 2.7 ``ncclAllReduceRingLLKernel_sum_f32``, up to 2.18
``ncclKernel_AllReduce_RING_LL_Sum_float``, later ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``, symmetric kernels
``ncclSymkDevKernel_AllReduce_...``, RCCL also ``ncclDevKernel_Generic_4`` and ``mscclKernel_...``.

Names of metadata: ``torch/csrc/profiler/util.h`` of github.com/pytorch/pytorch (``kCommsName`` and its neighbours).
Counts of elements are those of this rank's tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import BY_PLAIN_NAME, Communication, Operation

MOST_RANKS = 2**20
"""Members of the largest group."""

_KERNEL = re.compile(
    r"(?:nccl|msccl|rccl)\w*?(AllReduce|ReduceScatter|AllGather|AllToAll|Broadcast|Reduce|SendRecv|Send|Recv)|"
    r"(?:nccl|msccl|rccl)\w*?Kernel"
)
_OF_NAME = {plain: name for plain, name in BY_PLAIN_NAME.items() if name not in {"send_recv", "unknown"}}
"""By how a name begins, once underscores are out of it; longer beginnings first."""
_DATATYPES = {
    "float64": (8, "Double double"),
    "float32": (4, "Float float"),
    "float16": (2, "Half c10::Half"),
    "bfloat16": (2, "BFloat16 c10::BFloat16"),
    "float8e4m3": (1, "Float8_e4m3fn Float8_e4m3fnuz c10::Float8_e4m3fn c10::Float8_e4m3fnuz"),
    "float8e5m2": (1, "Float8_e5m2 Float8_e5m2fnuz c10::Float8_e5m2 c10::Float8_e5m2fnuz"),
    "int64": (8, "Long long long_int int64_t"),
    "int32": (4, "Int int"),
    "int16": (2, "Short short short_int"),
    "int8": (1, "Char signed_char int8_t"),
    "uint8": (1, "Byte Bool byte bool unsigned_char uint8_t"),
    "uint16": (2, "UInt16 unsigned_short uint16_t"),
    "uint32": (4, "UInt32 unsigned_int uint32_t"),
    "uint64": (8, "UInt64 unsigned_long uint64_t"),
    "complex64": (8, "ComplexFloat c10::complex<float>"),
    "complex128": (16, "ComplexDouble c10::complex<double>"),
}
ITEM = {name: size for name, (size, _) in _DATATYPES.items()}
"""Bytes of an element, by NCCL's names of types."""
_DATATYPE = {name: kind for kind, (_, names) in _DATATYPES.items() for name in names.split()}
"""c10's and C++'s names of types, with underscores for spaces, to NCCL's."""
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_WHOLE = re.compile(r"\[(?:\d{1,16}(?:, ?\d{1,16})*)?\]", re.ASCII)
_MOST_LIST = 8 * MOST_RANKS  # characters
_SHORT_LIST = 512
_MOST_TEXT = 256
_MOST_COUNT = 2**56  # elements or bytes that are taken seriously


class Note(NamedTuple):
    """What the profiler notes of a collective; NONE or empty if it does not.

    `operation`: empty if the note is of no transfer, or says nothing of it.
    `handed_in`, `handed_out`: elements of this rank's tensors.
    `datatype`: as NCCL names it.
    `sent`, `received`: rows that an all-to-all splits its tensors into.
    `group`, `description`, `ranks`, `size`: as of `fabricsim.traces.trace.ProcessGroup`.
    `rank`: in the group: the root, the other end, or this rank itself.
    `peer`: the other end as global rank.
    """

    operation: Operation | None = None
    handed_in: int = NONE
    handed_out: int = NONE
    datatype: str = ""
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    group: str = ""
    description: str = ""
    ranks: tuple[int, ...] = ()
    size: int = NONE
    rank: int = NONE
    peer: int = NONE

    def completed_by(self, other: Note) -> Note:
        """Take from `other` what is not there."""
        return self._replace(
            **{key: theirs for key, theirs in other._asdict().items() if getattr(self, key) in _NOTHING}
        )


_NOTHING: tuple[object, ...] = (None, NONE, "", ())


def operation_of_kernel(name: str) -> Operation | None:
    """Say what a kernel does by its name; None if it is none of NCCL or RCCL."""
    match = _KERNEL.match(name)
    return None if match is None else BY_PLAIN_NAME[(match[1] or "unknown").lower()]


@lru_cache(1024)
def operation_of_name(name: str) -> Operation | None:
    """Say what PyTorch's name of a collective means, such as ``_allgather_base``; None if it is no transfer."""
    plain = name.lower().replace("_", "")
    return next((operation for start, operation in _OF_NAME.items() if plain.startswith(start)), None)


def note_of(arguments: Mapping[str, Any], name: str = "") -> Note:
    """Read the arguments of a kernel, of ``record_param_comms``, or of an annotation ``nccl:...`` of that name."""
    operation = operation_of_name(_text(arguments, "Collective name") or name[:_MOST_TEXT].partition(":")[2])
    elements, dimensioned = _dimensions(arguments)
    handed_in = _count(arguments, "In msg nelems")
    peer = _count(arguments, "Dst Rank") if operation == "send" else NONE
    size = _count(arguments, "Group size")
    return Note(
        operation,
        elements if handed_in == NONE else handed_in,
        _count(arguments, "Out msg nelems"),
        _datatype(_text(arguments, "dtype")) or dimensioned,
        _list(arguments, "In split size"),
        _list(arguments, "Out split size"),
        _text(arguments, "Process Group Name") or _text(arguments, "Process Group ID"),
        _text(arguments, "Process Group Description"),
        _members(arguments, size),
        size if 0 < size <= MOST_RANKS else NONE,
        _count(arguments, "Rank"),
        _count(arguments, "Src Rank") if operation == "recv" else peer,
    )


def communication(note: Note, operation: Operation, group: int, ranks: tuple[int, ...], size: int) -> Communication:
    """Say what a kernel moves.

    `note`: all that is noted of it.
    `operation`: what it does.
    `group`, `ranks`, `size`: number of its group, its members and how many: NONE or empty if not known.
    """
    item = ITEM.get(note.datatype, NONE)
    handed_in = note.handed_in * item if NONE not in {note.handed_in, item} else NONE
    handed_out = note.handed_out * item if NONE not in {note.handed_out, item} else NONE
    peer = note.peer
    if peer == NONE and operation in {*_ROOTED, "send", "recv"} and 0 <= note.rank < len(ranks):
        peer = ranks[note.rank]
    whole = _size(operation, handed_in, handed_out, size)
    return Communication(
        operation,
        group,
        whole,
        note.datatype,
        peer,
        sent=_shares(note.sent, handed_in) if operation == "all_to_all" else (),
        received=_shares(note.received, handed_out) if operation == "all_to_all" else (),
        share=handed_in if whole == NONE and operation in {"all_gather", "gather"} else NONE,
    )


def _size(operation: Operation, handed_in: int, handed_out: int, members: int) -> int:
    """Bytes as of `Communication.size`, of this rank's input and output."""
    if operation in {"send_recv", "unknown", "barrier"}:
        return NONE
    if operation in {"all_gather", "gather", "scatter"}:
        part, whole = (handed_out, handed_in) if operation == "scatter" else (handed_in, handed_out)
        if operation == "all_gather" and whole > 0:  # parts may differ
            return whole
        if part > 0 and members != NONE:
            return part * members
        return whole if operation == "all_gather" or whole > 0 else NONE
    first, second = (handed_out, handed_in) if operation == "recv" else (handed_in, handed_out)
    return second if first == NONE else first


def _shares(rows: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Bytes of each part of a tensor that is split into rows."""
    count = sum(rows)
    if not count:
        return rows if total == 0 else ()
    if total == NONE or total % count:
        return ()
    return tuple(part * (total // count) for part in rows)


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key, "")
    if type(value) is int:  # "Process Group ID" was a number once
        return str(value)
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def _count(arguments: Mapping[str, Any], key: str) -> int:
    value = arguments.get(key, NONE)
    return value if type(value) is int and 0 <= value < _MOST_COUNT else NONE


def _list(arguments: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Read a list, or a text of one; empty if it is cut, as PyTorch cuts them after 30 members."""
    value = arguments.get(key, ())
    if isinstance(value, str):
        return _listed(value) if len(value) <= _SHORT_LIST else _listed.__wrapped__(value)
    good = isinstance(value, list) and all(type(part) is int and 0 <= part < _MOST_COUNT for part in value)
    return tuple(value) if good else ()


@lru_cache(1024)
def _listed(text: str) -> tuple[int, ...]:
    if len(text) > _MOST_LIST or not _WHOLE.fullmatch(text):
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _members(arguments: Mapping[str, Any], size: int) -> tuple[int, ...]:
    ranks = _list(arguments, "Process Group Ranks")
    if ranks and size in {NONE, len(ranks)} and len(set(ranks)) == len(ranks):
        return ranks
    first, stride = _count(arguments, "Global rank start"), _count(arguments, "Global rank stride")
    if first == NONE or not 0 < size <= MOST_RANKS or (stride < 1 and size > 1):
        return ()
    return strided(size, max(stride, 1), first)


def _datatype(name: str) -> str:
    return _DATATYPE.get(name.replace(" ", "_"), "")


def _dimensions(arguments: Mapping[str, Any]) -> tuple[int, str]:
    """Count the elements of the first tensor or list of tensors in ``Input Dims``, and name their type."""
    dimensions, types = arguments.get("Input Dims"), arguments.get("Input type")
    if not (isinstance(dimensions, list) and isinstance(types, list) and dimensions and types):
        return NONE, ""
    datatype = _datatype(types[0]) if isinstance(types[0], str) else ""
    elements = _elements(dimensions[0]) if datatype else NONE
    return elements, datatype if elements != NONE else ""


def _elements(dimensions: object) -> int:
    if not isinstance(dimensions, list):
        return NONE
    product = 1
    for length in dimensions:
        if type(length) is not int or not 0 <= length < 2**40:
            return NONE
        product *= length
    return product if product < _MOST_COUNT else NONE
