"""Another size of all that a captured job sends: what a compressed gradient, or a batch twice as large, would move."""

import math
from dataclasses import replace

from fabricsim.errors import InputError, TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.trace import MOST_SIZE, Communication, Recording, Trace


def resized(trace: Trace, message_size: float) -> Trace:
    """Let each communication of a trace move some times as many bytes, rounded to whole ones.

    Raises InputError if nothing is a size of that many times; TraceError if a communication becomes too large.
    """
    if not 0 < message_size < math.inf:
        msg = f"message size {message_size}: nothing can be sent that many times; give a number above 0, such as 0.5"
        raise InputError(msg)
    if message_size == 1:
        return trace
    return replace(trace, recordings=tuple(_recording(recording, message_size) for recording in trace.recordings))


def _recording(recording: Recording, times: float) -> Recording:
    resized = tuple(_communication(one, times) for one in recording.communications)
    largest = max((one.size for one in resized), default=0)
    if largest > MOST_SIZE:
        msg = f"has a communication of {largest} bytes at message size {times}; at most {MOST_SIZE} can be replayed"
        raise TraceError(recording.source, msg)
    return replace(recording, communications=resized)


def _communication(one: Communication, times: float) -> Communication:
    return one._replace(
        size=_times(one.size, times),
        share=_times(one.share, times),
        sent=tuple(_times(part, times) for part in one.sent),
        received=tuple(_times(part, times) for part in one.received),
    )


def _times(size: int, times: float) -> int:
    """Multiply a size that is known; what moved something still does."""
    return size if size in {NONE, 0} else max(round(size * times), 1)
