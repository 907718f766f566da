"""Events of a Chrome trace of PyTorch's profiler: which of them matter, and their numbers."""

from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from fabricsim.records.program import NONE
from fabricsim.units import PS_PER_US

KERNEL, COPY, CALL, SYNC, OPERATOR, ANNOTATION = range(6)
"""Categories."""
CATEGORIES = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": COPY,
    "Memcpy": COPY,
    "Memset": COPY,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "hip_runtime": CALL,
    "xpu_runtime": CALL,
    "privateuse1_runtime": CALL,
    "Runtime": CALL,
    "cuda_sync": SYNC,
    "cpu_op": OPERATOR,
    "Operator": OPERATOR,
    "user_annotation": ANNOTATION,
}
"""By their names in files."""
PLAIN, PARAMETERS, COLLECTIVE, STEP = range(4)
"""Marks of operators and annotations: ``record_param_comms``, ``nccl:...`` and the like, ``ProfilerStep...``."""

_COLLECTIVES, _STEP = ("nccl:", "xccl:", "hccl:"), "Profiler"
_FARTHEST = 4_000_000_000_000  # us, 46 days: an int64 of ps holds twice as much
_LATEST = 4_000_000_000_000_000  # us, the year 2096: an int64 of ns holds twice as much
_MOST_INTEGER = 10**18
_NOTHING = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """An event; what only events that matter need is JSON."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    pid: msgspec.Raw = _NOTHING
    tid: msgspec.Raw = _NOTHING
    args: msgspec.Raw = _NOTHING


class Arguments(msgspec.Struct, gc=False):
    """Numbers among the arguments of an event; anything else may be in their places."""

    correlation: Any = NONE
    external: Any = msgspec.field(name="External id", default=NONE)
    external_too: Any = msgspec.field(name="external id", default=NONE)
    device: Any = NONE
    stream: Any = NONE
    bytes: Any = NONE
    wait_on_stream: Any = NONE
    wait_on_cuda_event_record_corr_id: Any = NONE


_ARGUMENTS = msgspec.json.Decoder(Arguments)
_NO_ARGUMENTS = Arguments()
_ANY = msgspec.json.Decoder()


def arguments_of(event: Event) -> Arguments:
    """Read the numbers among the arguments of an event."""
    try:
        return _ARGUMENTS.decode(event.args)
    except (ValueError, RecursionError):  # no object, or as below
        return _NO_ARGUMENTS


def mark_of(name: str) -> int:
    """Tell what an operator or annotation of a name is."""
    if name == "record_param_comms":
        return PARAMETERS
    if name.startswith(_COLLECTIVES) and name not in _COLLECTIVES:
        return COLLECTIVE
    return STEP if name.startswith(_STEP) and name != _STEP else PLAIN


def integer(value: object) -> int:
    """Give an integer that fits; otherwise NONE."""
    return value if type(value) is int and -_MOST_INTEGER < value < _MOST_INTEGER else NONE


def integer_of(raw: msgspec.Raw) -> int:
    """Read an integer that fits; otherwise NONE."""
    try:
        return integer(_ANY.decode(raw))
    except (ValueError, RecursionError):  # of thousands of digits, or brackets
        return NONE


def picoseconds(raw: msgspec.Raw) -> int | None:
    """Read us without rounding, for floats have too few bits; None if it is no time."""
    try:
        value = Decimal(bytes(raw).decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return int(value * PS_PER_US) if -_LATEST < value < _LATEST else None


def is_near(time: int) -> bool:
    """Whether a time after the first one fits, in ps."""
    return -_FARTHEST * PS_PER_US < time < _FARTHEST * PS_PER_US
