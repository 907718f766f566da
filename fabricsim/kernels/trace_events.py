"""Events of a Chrome trace as PyTorch's profiler writes it, found in the bytes of its JSON without decoding the rest.

Nine tenths of such a file are operators, Python frames and arrows that a replay has no use for. `scan` walks over them
byte by byte, and notes numbers and places of the events that matter. It checks strings, brackets and the keys of events;
what it walks over may be any JSON, and some that is none.
"""

from __future__ import annotations

import numpy as np

from fabricsim.kernels._jit import kernel
from fabricsim.tables import NONE

TRACE_EVENT = np.dtype(
    [
        ("category", np.int8),
        ("mark", np.int8),
        ("flags", np.int16),
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
    ],
    align=True,
)
"""Where `scan` stands."""

MORE, FULL, END = range(3)
"""Why `scan` returns: no whole event is left, no room for events, end of the list."""
CUT, NO_JSON, TOO_DEEP = -1, -2, -3
"""In place of a position, or why `scan` returns: the text ends too early, is no JSON, is too deeply nested."""

OTHER, KERNEL, COPY, CALL, SYNC, OPERATOR, ANNOTATION = range(7)
"""Categories."""
PLAIN, PARAMETERS, COLLECTIVE, STEP = range(4)
"""Marks of operators and annotations: ``record_param_comms``, ``nccl:...``, ``ProfilerStep...``."""
BAD_START, BAD_DURATION, NEGATIVE = 1, 2, 4
"""Flags: a time that is missing, no number, or out of range; a duration below 0, taken as 0."""

MOST_NESTED = 62
"""Brackets within brackets; the kinds of the open ones are bits of an int64."""

_SCALE = 1_000_000  # ps per us
_FARTHEST = 9_000_000_000_000  # us that fit into an int64 of ps: 104 days
_MOST_DIGITS = 18
_HASH_START, _HASH_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits
_WORD = 8


def _word(text: str) -> int:
    return int.from_bytes(text.encode()[:_WORD], "little", signed=True)


_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = map(_word, ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args"))
_CORRELATION, _EXTERNAL, _DEVICE, _STREAM = map(_word, ("correlation", "External id", "device", "stream"))
_EXTERNAL_OLD, _BYTES, _AWAITED = map(_word, ("external id", "bytes", "wait_on_stream"))
_KERNEL, _KERNEL_OLD, _MEMCPY, _MEMSET = map(_word, ("kernel", "Kernel", "gpu_memcpy", "gpu_memset"))
_MEMCPY_OLD, _MEMSET_OLD, _RUNTIME_OLD = map(_word, ("Memcpy", "Memset", "Runtime"))
_RUNTIME, _DRIVER, _HIP_RUNTIME, _SYNC = map(_word, ("cuda_runtime", "cuda_driver", "hip_runtime", "cuda_sync"))
_OPERATOR, _OPERATOR_OLD, _ANNOTATION = map(_word, ("cpu_op", "Operator", "user_annotation"))
_PARAMETERS, _COLLECTIVE, _STEP = map(_word, ("record_param_comms", "nccl:", "ProfilerStep"))


@kernel
def _past_space(text, position, end):
    while position < end and (
        text[position] == 32 or text[position] == 10 or text[position] == 13 or text[position] == 9
    ):
        position += 1
    return position


@kernel
def _past_string(text, position, end):
    """Give the place after the closing quotation mark; `position` is after the opening one."""
    while position < end:
        byte = text[position]
        if byte == 34:
            return position + 1
        position += 1 + (byte == 92)
    return CUT


@kernel
def past_value(text, position, end):
    """Give the place after a value, or one of CUT, NO_JSON and TOO_DEEP; `position` is at its first byte."""
    first = text[position]
    if first == 34:
        return _past_string(text, position + 1, end)
    if first != 123 and first != 91:
        start = position
        while position < end:
            byte = text[position]
            if byte == 44 or byte == 125 or byte == 93 or byte <= 32:
                return position if position > start else NO_JSON
            if byte == 34 or byte == 58 or byte == 123 or byte == 91:
                return NO_JSON
            position += 1
        return CUT
    return _past_brackets(text, position + 1, end, np.int64(first == 123))


@kernel
def _past_brackets(text, position, end, kinds):
    """Give the place after what has been opened; `kinds` is 1 for an object, 0 for a list."""
    depth = 1
    while position < end:
        byte = text[position]
        position += 1
        if byte == 34:
            position = _past_string(text, position, end)
            if position < 0:
                return CUT
        elif byte == 123 or byte == 91:
            if depth == MOST_NESTED:
                return TOO_DEEP
            kinds = (kinds << 1) | (byte == 123)
            depth += 1
        elif byte == 125 or byte == 93:
            if (kinds & 1) != (byte == 125):
                return NO_JSON
            kinds >>= 1
            depth -= 1
            if depth == 0:
                return position
    return CUT


@kernel
def _packed(text, position, size):
    word = np.int64(0)
    for i in range(min(size, _WORD)):
        word |= np.int64(text[position + i]) << (8 * i)
    return word


@kernel
def _integer(text, position, end):
    """Read an integer that fits; otherwise NONE."""
    negative = position < end and text[position] == 45
    position += negative
    value = np.int64(0)
    if position == end or end - position > _MOST_DIGITS:
        return np.int64(NONE)
    while position < end:
        digit = np.int64(text[position]) - 48
        if digit < 0 or digit > 9:
            return np.int64(NONE)
        value = value * 10 + digit
        position += 1
    return -value if negative else value


@kernel
def _time(text, position, end):
    """Read us as digits, not as a float, which has too few bits for them: whole us, the rest in ps, and whether it is one."""
    negative = position < end and text[position] == 45
    position += negative
    whole, rest = np.int64(0), np.int64(0)
    digits = 0
    while position < end and 48 <= text[position] <= 57:
        whole = whole * 10 + (np.int64(text[position]) - 48)
        digits += 1
        position += 1
        if digits > _MOST_DIGITS:
            return whole, rest, False
    if digits == 0:
        return whole, rest, False
    if position < end and text[position] == 46:
        position += 1
        unit = np.int64(_SCALE // 10)
        while position < end and 48 <= text[position] <= 57:
            rest += unit * (np.int64(text[position]) - 48)
            unit //= 10
            position += 1
    if position < end and (text[position] == 101 or text[position] == 69):
        position += 1 + (text[position + 1] == 43)
        if end - position > 4:
            return whole, rest, False
        exponent = _integer(text, position, end)
        value = (whole + rest / _SCALE) * 10.0**exponent
        if not value < 1e17:
            return whole, rest, False
        whole = np.int64(value)
        rest = np.int64(np.rint((value - whole) * _SCALE))
        position = end
    if negative:
        whole, rest = -whole, -rest
    return whole, rest, position == end


@kernel
def _category(text, position, size):
    word = _packed(text, position, size)
    if (word == _KERNEL or word == _KERNEL_OLD) and size == 6:
        return KERNEL
    if (
        (word == _MEMCPY or word == _MEMSET)
        and size == 10
        or (word == _MEMCPY_OLD or word == _MEMSET_OLD)
        and size == 6
    ):
        return COPY
    if word == _RUNTIME and size == 12 or (word == _DRIVER or word == _HIP_RUNTIME) and size == 11:
        return CALL
    if word == _RUNTIME_OLD and size == 7:
        return CALL
    if word == _SYNC and size == 9:
        return SYNC
    if word == _OPERATOR and size == 6 or word == _OPERATOR_OLD and size == 8:
        return OPERATOR
    if word == _ANNOTATION and size == 15:
        return ANNOTATION
    return OTHER


@kernel
def _mark(text, position, size):
    word = _packed(text, position, size)
    if word == _PARAMETERS and size == 18:
        return PARAMETERS
    if word & 0xFFFFFFFFFF == _COLLECTIVE:
        return COLLECTIVE
    return STEP if word == _STEP else PLAIN


@kernel
def _take_arguments(text, position, end, event):
    """Note the numbers of an event's arguments, an object that is known to be whole."""
    position += 1
    while True:
        position = _past_space(text, position, end)
        if text[position] == 44:
            position += 1
            continue
        if text[position] != 34:
            return
        key = position + 1
        position = _past_string(text, key, end)
        size = position - 1 - key
        word = _packed(text, key, size)
        position = _past_space(text, position, end)
        if text[position] != 58:
            return
        position = _past_space(text, position + 1, end)
        after = past_value(text, position, end)
        if after < 0:
            return
        if size == 11 and word == _CORRELATION:
            event.correlation = _integer(text, position, after)
        elif size == 11 and (word == _EXTERNAL or word == _EXTERNAL_OLD):
            event.external = _integer(text, position, after)
        elif size == 6 and word == _DEVICE:
            event.device = _integer(text, position, after)
        elif size == 6 and word == _STREAM:
            event.stream = _integer(text, position, after)
        elif size == 5 and word == _BYTES:
            event.bytes = _integer(text, position, after)
        elif size == 14 and word == _AWAITED:
            event.awaited_stream = _integer(text, position, after)
        elif size == 33 and word == _AWAITED:  # wait_on_cuda_event_record_corr_id
            event.awaited_record = _integer(text, position, after)
        position = after


@kernel
def _take_times(text, start, start_end, duration, duration_end, event, state):
    whole, rest, good = _time(text, start, start_end)
    if good and not state.has_origin:
        state.origin, state.has_origin = whole, 1
    whole -= state.origin
    if good and -_FARTHEST < whole < _FARTHEST:
        event.start = whole * _SCALE + rest
    else:
        event.flags |= BAD_START
    whole, rest, good = _time(text, duration, duration_end)
    if not good or not -_FARTHEST < whole < _FARTHEST:
        event.flags |= BAD_DURATION
    elif whole < 0 or rest < 0:
        event.flags |= NEGATIVE
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
    """Read the event whose bracket is at `start`; gives the place after it. Category OTHER: it does not matter."""
    category, mark = OTHER, PLAIN
    name = name_end = arguments = arguments_end = pid = pid_end = tid = tid_end = start
    time = time_end = duration = duration_end = start
    has_phase = has_category = has_name = False
    event.category = OTHER
    position = start + 1
    while True:
        position = _past_space(text, position, end)
        if position >= end:
            return CUT
        byte = text[position]
        if byte == 125:
            break
        if byte == 44:
            position += 1
            continue
        if byte != 34:
            return NO_JSON
        key = position + 1
        position = _past_string(text, key, end)
        if position < 0:
            return CUT
        size = position - 1 - key
        position = _past_space(text, position, end)
        if position >= end:
            return CUT
        if text[position] != 58:
            return NO_JSON
        position = _past_space(text, position + 1, end)
        if position >= end:
            return CUT
        after = past_value(text, position, end)
        if after < 0:
            return after
        if size <= 4:
            word = _packed(text, key, size)
            if word == _PH:
                has_phase = True
                if text[position + 1] != 88:
                    return _past_brackets(text, after, end, 1)
            elif word == _CAT:
                has_category = True
                category = _category(text, position + 1, after - position - 2)
                if category == OTHER:
                    return _past_brackets(text, after, end, 1)
            elif word == _NAME:
                has_name = True
                name, name_end = position + 1, after - 1
                mark = _mark(text, name, name_end - name)
            elif word == _TS:
                time, time_end = position, after
            elif word == _DUR:
                duration, duration_end = position, after
            elif word == _PID:
                pid, pid_end = position, after
            elif word == _TID:
                tid, tid_end = position, after
            elif word == _ARGS and text[position] == 123:
                arguments, arguments_end = position, after
            if has_name and has_category and mark == PLAIN and (category == OPERATOR or category == ANNOTATION):
                return _past_brackets(text, after, end, 1)
        position = after
    if not (has_phase and has_category):
        return position + 1
    event.mark = mark if category == OPERATOR or category == ANNOTATION else PLAIN
    event.category = category
    event.flags = 0
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
        while position < end and (text[position] == 44 or text[position] <= 32):
            position += 1
        if position >= end:
            state.status = MORE
            return position
        if text[position] == 93:
            state.status = END
            return position + 1
        if text[position] != 123:
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
        state.count += event.category != OTHER
        position = after
