"""Events of a Chrome trace of PyTorch's profiler, found in the bytes of its JSON without decoding the rest.

Nine tenths of such a file are operators, Python frames and arrows that a replay has no use for. `scan` walks over them
byte by byte, and notes numbers and places of the events that matter; operators do if they are asked for. It checks
strings, brackets and the keys of events; what else it walks over may be any JSON, and some that is none.
"""

from __future__ import annotations

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NONE
from fabricsim.traces.kineto.json_text import (
    COLON,
    COMMA,
    CUT,
    END_OF_LIST,
    END_OF_OBJECT,
    KIND,
    NO_JSON,
    OBJECT,
    PS_PER_US,
    QUOTE,
    SPACE,
    WORD,
    integer,
    looked_up,
    micros,
    past_brackets,
    past_space,
    past_string,
    past_value,
    signature,
    signature_of,
    table_of,
)

TRACE_EVENT = np.dtype(
    [
        ("category", np.int8),
        ("mark", np.int8),
        ("defects", np.int16),
        ("pid", np.int64),  # 0 if it is no integer
        ("tid", np.int64),  # as before
        ("start", np.int64),  # ps after TRACE_SCAN.origin
        ("duration", np.int64),  # ps
        ("correlation", np.int64),  # NONE if not there, as all that follow
        ("external", np.int64),
        ("device", np.int64),
        ("stream", np.int64),
        ("bytes", np.int64),
        ("awaited_stream", np.int64),
        ("awaited_record", np.int64),  # correlation of the call that recorded the event that is waited for
        ("name_hash", np.uint64),
        ("name", np.int64),  # where the name is in the text, between its quotation marks
        ("name_end", np.int64),
        ("arguments", np.int64),  # where "args" is; equal to arguments_end if there is none
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
"""Why `scan` returns: no whole event is left, no room for events, end of the list; or NO_JSON or TOO_DEEP."""

KERNEL, COPY, CALL, SYNC, OPERATOR, ANNOTATION = range(6)
"""Categories."""
PLAIN, PARAMETERS, COLLECTIVE, STEP = range(4)
"""Marks of operators and annotations: ``record_param_comms``, ``nccl:...``, ``ProfilerStep...``."""
BAD_START, BAD_DURATION, NEGATIVE = 1, 2, 4
"""Defects: a time that is missing, no number, or out of range; a duration below 0, taken as 0."""

_FARTHEST = 4_000_000_000_000  # us, 46 days: an int64 of ps holds twice as much
_LATEST = 4_000_000_000_000_000  # us, the year 2096: an int64 of ns holds twice as much
_HASH_START, _HASH_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a, 64 bits
_COMPLETE = ord("X")

_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = range(8)
_KEYS, _KEY = table_of(
    {"ph": _PH, "cat": _CAT, "name": _NAME, "pid": _PID, "tid": _TID, "ts": _TS, "dur": _DUR, "args": _ARGS}
)
_CORRELATION, _EXTERNAL, _DEVICE, _STREAM, _BYTES, _AWAITED_STREAM, _AWAITED_RECORD = range(7)
_ARGUMENTS, _ARGUMENT = table_of(
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
_CATEGORIES, _CATEGORY = table_of(
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
_PARAMETERS, _COLLECTIVE, _STEP = map(signature_of, ("record_param_comms", "nccl:", "Profiler"))
_COLLECTIVE_SIZE = len("nccl:")


@kernel
def _mark(text, position, size):
    if signature(text, position, size) == _PARAMETERS:
        return PARAMETERS
    if size > _COLLECTIVE_SIZE and signature(text, position, _COLLECTIVE_SIZE) == _COLLECTIVE:
        return COLLECTIVE
    return STEP if size > WORD and signature(text, position, WORD) == _STEP else PLAIN


@kernel
def _take_arguments(text, position, end, event):
    """Note the numbers of an event's arguments, an object that is known to be whole."""
    position += 1
    while True:
        position = past_space(text, position, end)
        if KIND[text[position]] == COMMA:
            position += 1
            continue
        if text[position] != QUOTE:
            return
        key = position + 1
        position = past_string(text, key, end)
        size = position - 1 - key
        position = past_space(text, position, end)
        if KIND[text[position]] != COLON:
            return
        position = past_space(text, position + 1, end)
        after = past_value(text, position, end)
        if after < 0:
            return
        which = looked_up(text, key, size, _ARGUMENTS, _ARGUMENT)
        number = integer(text, position, after) if which != NONE else np.int64(NONE)
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
    whole, rest, good = micros(text, start, start_end)
    good = good and -_LATEST < whole < _LATEST
    if good and not state.has_origin:
        state.origin, state.has_origin = whole, 1
    whole -= state.origin
    if good and -_FARTHEST < whole < _FARTHEST:
        event.start = whole * PS_PER_US + rest
    else:
        event.defects |= BAD_START
    whole, rest, good = micros(text, duration, duration_end)
    if not good or not -_FARTHEST < whole < _FARTHEST:
        event.defects |= BAD_DURATION
    elif whole < 0 or rest < 0:
        event.defects |= NEGATIVE
    else:
        event.duration = whole * PS_PER_US + rest


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
        position = past_space(text, position, end)
        if position >= end:
            return CUT
        byte = text[position]
        if byte == END_OF_OBJECT:
            break
        if KIND[byte] == COMMA:
            position += 1
            continue
        if byte != QUOTE:
            return NO_JSON
        key = position + 1
        position = past_string(text, key, end)
        if position < 0:
            return CUT
        size = position - 1 - key
        position = past_space(text, position, end)
        if position >= end:
            return CUT
        if KIND[text[position]] != COLON:
            return NO_JSON
        position = past_space(text, position + 1, end)
        if position >= end:
            return CUT
        after = past_value(text, position, end)
        if after < 0:
            return after
        which = looked_up(text, key, size, _KEYS, _KEY) if size < WORD else NONE
        if which == _PH:
            has_phase = True
            if text[position + 1] != _COMPLETE:
                return past_brackets(text, after, end, 1)
        elif which == _CAT:
            category = looked_up(text, position + 1, after - position - 2, _CATEGORIES, _CATEGORY)
            if category == NONE:
                return past_brackets(text, after, end, 1)
        elif which == _NAME and text[position] == QUOTE:
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
        elif which == _ARGS and text[position] == OBJECT:
            arguments, arguments_end = position, after
        if mark == PLAIN and name > start and category >= OPERATOR + state.operators:
            return past_brackets(text, after, end, 1)
        position = after
    if not has_phase or category == NONE or name == start:
        return position + 1
    event.mark = mark if category >= OPERATOR else PLAIN
    event.category = category
    event.defects = 0
    event.start = event.duration = 0
    event.correlation = event.external = event.device = event.stream = NONE
    event.bytes = event.awaited_stream = event.awaited_record = NONE
    event.pid = integer(text, pid, pid_end)
    event.tid = integer(text, tid, tid_end)
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
        If the next call begins: at the event that did not fit or is not whole, or after the closing bracket.
    """
    state = states[0]
    state.count = 0
    while True:
        while position < end and (KIND[text[position]] == SPACE or KIND[text[position]] == COMMA):
            position += 1
        if position >= end:
            state.status = MORE
            return position
        if text[position] == END_OF_LIST:
            state.status = END
            return position + 1
        if text[position] != OBJECT:
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
