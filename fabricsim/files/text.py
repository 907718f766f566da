"""Bounded reading of one log that nobody has vouched for, plain or packed with gzip or xz."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from fabricsim.errors import TraceError
from fabricsim.files.lines import lines
from fabricsim.files.sources import one

MAX_BYTES = 256 * 2**20
"""Most text that is read from one file, unpacked: bytes, or letters where those have several."""
MAX_LINES = 4_000_000
"""Most lines of one file: bounds the time that a file of short lines costs."""

Found_co = TypeVar("Found_co", covariant=True)
_LAUNCHER = re.compile(r"\s*(?:\[\d{1,9},\d{1,9}\](?:<\w{1,9}>)?:|\d{1,9}:(?=\s|$))")


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Lines of a text file with their numbers from 1, without line ends.

    Packed files are known by their first bytes, not by their names. Bytes that are not UTF-8 come
    out as replacement characters.

    `path`: a regular file: plain text, gzip or xz.
    Raises TraceError if the file is missing, no regular file, empty, binary, damaged, or exceeds `MAX_BYTES`,
        `MAX_LINES` or what `fabricsim.files.lines.lines` allows.
    """
    path = Path(path)
    total = 0
    with one(path) as source:
        for number, line in lines(source):
            total += len(line) + 1
            if total > MAX_BYTES:
                msg = f"is too much for a log (limit {MAX_BYTES // 2**20} MiB unpacked)"
                raise TraceError(path, f"{msg}; cut it to the part with the table")
            if number > MAX_LINES:
                raise TraceError(path, f"more than {MAX_LINES} lines; cut the log to the part with the table", number)
            yield number, line


class LineReader(Protocol[Found_co]):
    """Takes a file line by line; `finish` gives what it found, or a `TraceError` says why that is nothing."""

    def take(self, number: int, line: str) -> None: ...  # noqa: D102  as the class says

    def finish(self) -> Found_co: ...  # noqa: D102  as the class says


def read_by(reader: LineReader[Found_co], path: Path | str) -> Found_co:
    """Give a reader all lines of a file; raises what `read_lines` and the reader raise."""
    for number, line in read_lines(path):
        reader.take(number, line)
    return reader.finish()


def without_launcher_prefix(line: str) -> str:
    """Drop what mpirun (``[1,0]<stdout>:``) or srun (``0:``) put before a line."""
    match = _LAUNCHER.match(line)
    return line[match.end() :] if match else line
