"""Messages in logs of NCCL: who says what, whatever launchers and other writers have put around it.

A message begins with ``host:pid:tid [device] NCCL INFO``. Before it may stand a timestamp and what a launcher adds,
and another message may follow in the same line, as processes that share a file write into each other's lines. Form
after ``src/debug.cc`` of github.com/NVIDIA/nccl.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

Process = tuple[str, int]
"""Host and process number."""

_MARK = re.compile(r"NCCL (?:INFO|WARN|TRACE) ")
_BEFORE = 400  # characters before a mark that can be its own
_SAID = re.compile(
    r"(?:\[[^\[\]]{1,60}\] )?(?P<host>\w[\w.-]{0,254}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"\[(?P<device>-?\d{1,4})\] (?:\d{1,20}(?:\.\d{1,9})? )?(?:[\w./-]{1,100}:\d{1,6} )?$"
)


class LogMessage(NamedTuple):
    """What one thread has written.

    `device`: index of the GPU that was current.
    `text`: what comes after ``NCCL INFO``, up to the next message of the line.
    """

    process: Process
    thread: int
    device: int
    text: str


def messages(line: str) -> Iterator[LogMessage]:
    """Take the messages out of a line; what has no beginning is left out."""
    said: re.Match[str] | None = None
    end = 0
    for mark in _MARK.finditer(line):
        beginning = max(end, mark.start() - _BEFORE)
        next_said = _SAID.search(line, beginning, mark.start())
        if said is not None:
            yield _message(said, line[end : next_said.start() if next_said else mark.start()])
        said, end = next_said, mark.end()
    if said is not None:
        yield _message(said, line[end:])


def _message(said: re.Match[str], text: str) -> LogMessage:
    process = (said["host"], int(said["pid"]))
    return LogMessage(process, int(said["tid"]), int(said["device"]), text.strip())
