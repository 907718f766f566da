"""Events of a Chrome trace of PyTorch's profiler, found in the bytes of its JSON without decoding the rest.

Nine tenths of such a file are operators, Python frames and arrows that a replay has no use for. `scan` walks over them
byte by byte, and notes numbers and places of the events that matter; operators do where they are asked for. It checks
strings, brackets and the keys of events; what else it walks over may be any JSON, and some that is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.tables import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRACE_EVENT = np.dtype(
    [
        ("category", np.int8),
        ("mark", np.int8),
        ("defects", np.int16),
        ("pid", np.int64),  # 0 where it is no integer
        ("tid", np.int64),  # as before
        ("start", np.int64),  # ps after TRACE_SCAN.origin
        ("duration", np.int64),  # ps
        ("correlation", np.int64),  # NONE where not there, as all that follow
        ("external", np.int64),
        ("device", np.int64),
        ("stream", np.int64),
        ("bytes", np.int64),
        ("awaited_stream", np.int64),
        ("awaited_record", np.int64),  # correlation of the call that recorded the event that is waited for
        ("name_hash", np.uint64),
        ("name", np.int64),  # where the name is in the text, between its quotation marks
        ("name_end", np.int64),
        ("arguments", np.int64),  # where "args" is; equal to arguments_end where there is none
        ("arguments_end", np.int64),
    ],
    align=True,
)
"""An event that matters."""

TRACE_SCAN = np.dtype(
    [
        ("status", np.int64),
        ("count", np.int64),  # events found by this call
        ("seen", np.int64),  # events walked over by all calls
        ("origin", np.int64),  # us; where times are counted from
        ("has_origin", np.int64),
        ("operators", np.int64),  # whether plain operators matter, too
    ],
    align=True,
)
"""Where `scan` stands."""

MORE, FULL, END = range(3)
"""Why `scan` returns: no whole event is left, no room for events, end of the list."""
CUT, NO_JSON, TOO_DEEP = -1, -2, -3
"""In place of a position, or why `scan` returns: the text ends too early, is no JSON, is too deeply nested."""

KERNEL, COPY, CALL, SYNC, OPERATOR, ANNOTATION = range(6)
"""Categories."""
PLAIN, PARAMETERS, COLLECTIVE, STEP = range(4)
"""Marks of operators and annotations: ``record_param_comms``, ``nccl:...``, ``ProfilerStep...``."""
BAD_START, BAD_DURATION, NEGATIVE = 1, 2, 4
"""Defects: a time that is missing, no number, or out of range; a duration below 0, taken as 0."""

MOST_NESTED = 62
"""Brackets within brackets; the kinds of the open ones are bits of an int64."""

_SCALE = 1_000_000  # ps per us
_FARTHEST = 4_000_000_000_000  # us, 46 days: an int64 of ps holds twice as much
_LATEST = 4_000_000_000_000_000  # us, the year 2096: an int64 of ns holds twice as much
_MOST_DIGITS = 18
_BASE = 10
_TOO_LARGE = 1e17  # us
_HASH_START, _HASH_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits
_WORD = 8
_SIZE_SHIFT = 56
_MOST_SIZE = 127


_QUOTE, _BACKSLASH, _OBJECT, _END_OF_OBJECT, _END_OF_LIST = b'"\\{}]'
_MINUS, _PLUS, _POINT, _ZERO, _EXPONENT, _OLD_EXPONENT, _COMPLETE = b"-+.0eEX"
_PLAIN, _SPACE, _MARK, _OPENS, _CLOSES, _COMMA, _COLON = range(7)
_ENDS = np.array([False, True, False, False, True, True, False])  # of each kind, whether it ends a number or word
_KIND = np.zeros(256, np.int8)  # of each byte between strings
for _kind, _bytes in {
    _SPACE: b" \t\n\r",
    _MARK: b'"',
    _OPENS: b"[{",
    _CLOSES: b"]}",
    _COMMA: b",",
    _COLON: b":",
}.items():
    _KIND[[*_bytes]] = _kind


def _signature_of(name: str) -> int:
    text = np.frombuffer(name.encode(), np.uint8)
    return sum(int(byte) << 8 * i for i, byte in enumerate(text[:_WORD])) ^ len(text) << _SIZE_SHIFT


def _table(values: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array([*map(_signature_of, values)], np.int64), np.array([*values.values()], np.int64)


_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = range(8)
_KEYS, _KEY = _table(
    {"ph": _PH, "cat": _CAT, "name": _NAME, "pid": _PID, "tid": _TID, "ts": _TS, "dur": _DUR, "args": _ARGS}
)
_CORRELATION, _EXTERNAL, _DEVICE, _STREAM, _BYTES, _AWAITED_STREAM, _AWAITED_RECORD = range(7)
_ARGUMENTS, _ARGUMENT = _table(
    {
        "correlation": _CORRELATION,
        "External id": _EXTERNAL,
        "external id": _EXTERNAL,
        "device": _DEVICE,
        "stream": _STREAM,
        "bytes": _BYTES,
        "wait_on_stream": _AWAITED_STREAM,
        "wait_on_cuda_event_record_corr_id": _AWAITED_RECORD,
    }
)
_CATEGORIES, _CATEGORY = _table(
    {
        "kernel": KERNEL,
        "Kernel": KERNEL,
        "gpu_memcpy": COPY,
        "gpu_memset": COPY,
        "Memcpy": COPY,
        "Memset": COPY,
        "cuda_runtime": CALL,
        "cuda_driver": CALL,
        "hip_runtime": CALL,
        "Runtime": CALL,
        "cuda_sync": SYNC,
        "cpu_op": OPERATOR,
        "Operator": OPERATOR,
        "user_annotation": ANNOTATION,
    }
)
_PARAMETERS, _COLLECTIVE, _STEP = map(_signature_of, ("record_param_comms", "nccl:", "Profiler"))
_COLLECTIVE_SIZE = len("nccl:")


@kernel
def _past_space(text, position, end):
    while position < end and _KIND[text[position]] == _SPACE:
        position += 1
    return position


@kernel
def _past_string(text, position, end):
    """Give the place after the closing quotation mark; `position` is after the opening one."""
    while position < end:
        byte = text[position]
        if byte == _QUOTE:
            return position + 1
        position += 1 + (byte == _BACKSLASH)
    return CUT


@kernel
def past_value(text, position, end):
    """Give the place after a value, or one of CUT, NO_JSON and TOO_DEEP; `position` is at its first byte."""
    kind = _KIND[text[position]]
    if kind == _MARK:
        return _past_string(text, position + 1, end)
    if kind == _OPENS:
        return _past_brackets(text, position + 1, end, np.int64(text[position] == _OBJECT))
    start = position
    while position < end:
        kind = _KIND[text[position]]
        if kind != _PLAIN:
            return position if position > start and _ENDS[kind] else NO_JSON
        position += 1
    return CUT


@kernel
def _past_brackets(text, position, end, kinds):
    """Give the place after what has been opened; `kinds` is 1 for an object, 0 for a list."""
    depth = 1
    while position < end:
        byte = text[position]
        kind = _KIND[byte]
        position += 1
        if kind == _MARK:
            position = _past_string(text, position, end)
            if position < 0:
                return CUT
        elif kind == _OPENS:
            if depth == MOST_NESTED:
                return TOO_DEEP
            kinds = (kinds << 1) | (byte == _OBJECT)
            depth += 1
        elif kind == _CLOSES:
            if (kinds & 1) != (byte == _END_OF_OBJECT):
                return NO_JSON
            kinds >>= 1
            depth -= 1
            if depth == 0:
                return position
    return CUT


@kernel
def _signature(text, position, size):
    """Give the first bytes of a name and its length as one number, which tells apart all names that matter."""
    word = np.int64(min(size, _MOST_SIZE)) << _SIZE_SHIFT
    for i in range(min(size, _WORD)):
        word ^= np.int64(text[position + i]) << (8 * i)
    return word


@kernel
def _looked_up(text, position, size, signatures, values):
    """Look up a name; NONE where it is not in the table."""
    signature = _signature(text, position, size)
    for i in range(len(signatures)):
        if signatures[i] == signature:
            return values[i]
    return np.int64(NONE)


@kernel
def _digit(text, position):
    value = np.int64(text[position]) - _ZERO
    return value if 0 <= value < _BASE else np.int64(NONE)


@kernel
def _integer(text, position, end):
    """Read an integer that fits; otherwise NONE."""
    negative = position < end and text[position] == _MINUS
    position += negative
    value = np.int64(0)
    if position == end or end - position > _MOST_DIGITS:
        return np.int64(NONE)
    while position < end:
        digit = _digit(text, position)
        if digit == NONE:
            return np.int64(NONE)
        value = value * _BASE + digit
        position += 1
    return -value if negative else value


@kernel
def _time(text, position, end):
    """Read us as digits: floats have too few bits. Gives whole us, the rest in ps, and whether it is a number."""
    negative = position < end and text[position] == _MINUS
    position += negative
    whole, rest = np.int64(0), np.int64(0)
    digits = 0
    while position < end and _digit(text, position) != NONE:
        whole = whole * _BASE + _digit(text, position)
        digits += 1
        position += 1
        if digits > _MOST_DIGITS:
            return whole, rest, False
    if digits == 0:
        return whole, rest, False
    if position < end and text[position] == _POINT:
        position += 1
        unit = np.int64(_SCALE // _BASE)
        while position < end and _digit(text, position) != NONE:
            rest += unit * _digit(text, position)
            unit //= _BASE
            position += 1
    if position < end and (text[position] == _EXPONENT or text[position] == _OLD_EXPONENT):
        position += 1
        lower = position < end and text[position] == _MINUS
        position += lower or (position < end and text[position] == _PLUS)
        exponent = _integer(text, position, end)
        if exponent < 0:
            return whole, rest, False
        value = (whole + rest / _SCALE) * float(_BASE) ** (-exponent if lower else exponent)
        if not value < _TOO_LARGE:
            return whole, rest, False
        whole = np.int64(value)
        rest = np.int64(np.rint((value - whole) * _SCALE))
        position = end
    if negative:
        whole, rest = -whole, -rest
    return whole, rest, position == end


@kernel
def _mark(text, position, size):
    if _signature(text, position, size) == _PARAMETERS:
        return PARAMETERS
    if size > _COLLECTIVE_SIZE and _signature(text, position, _COLLECTIVE_SIZE) == _COLLECTIVE:
        return COLLECTIVE
    return STEP if size > _WORD and _signature(text, position, _WORD) == _STEP else PLAIN


@kernel
def _take_arguments(text, position, end, event):
    """Note the numbers of an event's arguments, an object that is known to be whole."""
    position += 1
    while True:
        position = _past_space(text, position, end)
        if _KIND[text[position]] == _COMMA:
            position += 1
            continue
        if text[position] != _QUOTE:
            return
        key = position + 1
        position = _past_string(text, key, end)
        size = position - 1 - key
        position = _past_space(text, position, end)
        if _KIND[text[position]] != _COLON:
            return
        position = _past_space(text, position + 1, end)
        after = past_value(text, position, end)
        if after < 0:
            return
        which = _looked_up(text, key, size, _ARGUMENTS, _ARGUMENT)
        number = _integer(text, position, after) if which != NONE else np.int64(NONE)
        if which == _CORRELATION:
            event.correlation = number
        elif which == _EXTERNAL:
            event.external = number
        elif which == _DEVICE:
            event.device = number
        elif which == _STREAM:
            event.stream = number
        elif which == _BYTES:
            event.bytes = number
        elif which == _AWAITED_STREAM:
            event.awaited_stream = number
        elif which == _AWAITED_RECORD:
            event.awaited_record = number
        position = after


@kernel
def _take_times(text, start, start_end, duration, duration_end, event, state):
    whole, rest, good = _time(text, start, start_end)
    good = good and -_LATEST < whole < _LATEST
    if good and not state.has_origin:
        state.origin, state.has_origin = whole, 1
    whole -= state.origin
    if good and -_FARTHEST < whole < _FARTHEST:
        event.start = whole * _SCALE + rest
    else:
        event.defects |= BAD_START
    whole, rest, good = _time(text, duration, duration_end)
    if not good or not -_FARTHEST < whole < _FARTHEST:
        event.defects |= BAD_DURATION
    elif whole < 0 or rest < 0:
        event.defects |= NEGATIVE
    else:
        event.duration = whole * _SCALE + rest


@kernel
def _hash(text, position, end):
    value = _HASH_START
    while position < end:
        value = (value ^ np.uint64(text[position])) * _HASH_PRIME
        position += 1
    return value


@kernel
def _event(text, start, end, event, state):
    """Read the event whose bracket is at `start`; gives the place after it. Category NONE: it does not matter."""
    category, mark = np.int64(NONE), PLAIN
    name = name_end = arguments = arguments_end = pid = pid_end = tid = tid_end = start
    time = time_end = duration = duration_end = start
    has_phase = False
    event.category = NONE
    position = start + 1
    while True:
        position = _past_space(text, position, end)
        if position >= end:
            return CUT
        byte = text[position]
        if byte == _END_OF_OBJECT:
            break
        if _KIND[byte] == _COMMA:
            position += 1
            continue
        if byte != _QUOTE:
            return NO_JSON
        key = position + 1
        position = _past_string(text, key, end)
        if position < 0:
            return CUT
        size = position - 1 - key
        position = _past_space(text, position, end)
        if position >= end:
            return CUT
        if _KIND[text[position]] != _COLON:
            return NO_JSON
        position = _past_space(text, position + 1, end)
        if position >= end:
            return CUT
        after = past_value(text, position, end)
        if after < 0:
            return after
        which = _looked_up(text, key, size, _KEYS, _KEY) if size < _WORD else NONE
        if which == _PH:
            has_phase = True
            if text[position + 1] != _COMPLETE:
                return _past_brackets(text, after, end, 1)
        elif which == _CAT:
            category = _looked_up(text, position + 1, after - position - 2, _CATEGORIES, _CATEGORY)
            if category == NONE:
                return _past_brackets(text, after, end, 1)
        elif which == _NAME and text[position] == _QUOTE:
            name, name_end = position + 1, after - 1
            mark = _mark(text, name, name_end - name)
        elif which == _TS:
            time, time_end = position, after
        elif which == _DUR:
            duration, duration_end = position, after
        elif which == _PID:
            pid, pid_end = position, after
        elif which == _TID:
            tid, tid_end = position, after
        elif which == _ARGS and text[position] == _OBJECT:
            arguments, arguments_end = position, after
        if mark == PLAIN and name > start and category >= OPERATOR + state.operators:
            return _past_brackets(text, after, end, 1)
        position = after
    if not has_phase or category == NONE or name == start:
        return position + 1
    event.mark = mark if category >= OPERATOR else PLAIN
    event.category = category
    event.defects = 0
    event.start = event.duration = 0
    event.correlation = event.external = event.device = event.stream = NONE
    event.bytes = event.awaited_stream = event.awaited_record = NONE
    event.pid = _integer(text, pid, pid_end)
    event.tid = _integer(text, tid, tid_end)
    event.name, event.name_end = name, name_end
    event.name_hash = _hash(text, name, name_end)
    event.arguments, event.arguments_end = arguments, arguments_end
    if arguments_end > arguments:
        _take_arguments(text, arguments, arguments_end, event)
    _take_times(text, time, time_end, duration, duration_end, event, state)
    return position + 1


@kernel
def scan(text, position, end, events, states):
    """Find the events of a list that matter.

    Parameters
    ----------
    text
        uint8; JSON, from somewhere between two events on.
    position, end
        Where to begin, and where the text that is there ends.
    events
        ``TRACE_EVENT`` records to fill.
    states
        ``TRACE_SCAN``, shape ``(1,)``; zeros at first.

    Returns
    -------
    int
        Where the next call begins: at the event that did not fit or is not whole, or after the closing bracket.
    """
    state = states[0]
    state.count = 0
    while True:
        while position < end and (_KIND[text[position]] == _SPACE or _KIND[text[position]] == _COMMA):
            position += 1
        if position >= end:
            state.status = MORE
            return position
        if text[position] == _END_OF_LIST:
            state.status = END
            return position + 1
        if text[position] != _OBJECT:
            state.status = NO_JSON
            return position
        if state.count == len(events):
            state.status = FULL
            return position
        event = events[state.count]
        after = _event(text, position, end, event, state)
        if after < 0:
            state.status = MORE if after == CUT else after
            return position
        state.seen += 1
        state.count += event.category != NONE
        position = after
