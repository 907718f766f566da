"""Lines of a text source that nobody has vouched for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from fabricsim.errors import TraceError
from fabricsim.files.sources import Source

_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)

MOST_LINE = 64 * 2**10
"""Longest line, bytes."""
MOST_BLANK = 100_000
"""Most empty lines in a row: bounds the time that a small packed file of line ends costs."""


def lines(source: Source) -> Iterator[tuple[int, str]]:
    """Lines of a source with their numbers from 1, without line ends.

    Bytes that are not UTF-8 come out as replacement characters.

    Raises TraceError if a line is longer than `MOST_LINE` or holds binary data, more than `MOST_BLANK` in a row are
        empty, or what the stream raises.
    """
    number = blank = 0
    while line := source.stream.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            msg = f"the line is longer than {MOST_LINE // 2**10} KiB; give the text as it was written"
            raise TraceError(source.label, msg, number)
        blank = 0 if line.strip() else blank + 1
        if blank > MOST_BLANK:
            msg = f"more than {MOST_BLANK:,} empty lines in a row: nobody writes them; copy the file again"
            raise TraceError(source.label, msg, number)
        if b"\0" in line:
            raise TraceError(source.label, "holds binary data, not text; give the text as it was written", number)
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        yield number, text.removeprefix("\ufeff") if number == 1 else text


@dataclass
class LineParser:
    """Takes the lines of a source one by one.

    `number`: that of the line at hand, from 1.
    """

    source: Source
    number: int = 0

    def fail(self, problem: str) -> NoReturn:
        """Refuse the line at hand by a TraceError."""
        raise TraceError(self.source.label, problem, self.number or None)

    def integer(self, word: str, what: str, most: int, least: int = 0) -> int:
        """Read a whole number of the line at hand, called `what`. Raises TraceError if it is none or out of range."""
        if not _NUMBER.fullmatch(word) or not least <= int(word) <= most:
            self.fail(f"{what} is {word!r}; it is a whole number from {least} to {most}")
        return int(word)
