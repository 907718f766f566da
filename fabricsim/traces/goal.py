"""GOAL schedules as text: sends, receives and calculations of each rank, as LogGOPSim and ATLAHS take them.

Form after the scanner of LogGOPSim, ``src/LogGOPSim/txt2bin.re`` of github.com/spcl/LogGOPSim, and T. Hoefler,
C. Siebert and A. Lumsdaine, "Group Operation Assembly Language - A Flexible Way to Express Collective Communication",
ICPP 2009. The binary form is not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from fabricsim.errors import TraceError
from fabricsim.tables import CLOCK_END, NONE
from fabricsim.traces.goal_writer import MOST_OPTION, PS_PER_NS, write
from fabricsim.traces.lines import lines
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, Communication, RecordingBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.traces.sources import Source
    from fabricsim.traces.trace import Recording

__all__ = ["MOST_RANKS", "MOST_STATEMENTS", "read", "recognises", "write"]

MOST_STATEMENTS = 20_000_000
"""Operations and dependencies of one file."""
MOST_RANKS = 2**18
"""Ranks of one file."""

_MOST_SIZE = 2**53  # bytes; what a message may have here
_MOST_CALC = CLOCK_END // PS_PER_NS
_DIGITS = r"\d{1,19}"
_LABEL = r"[A-Za-z]\w{0,255}"
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s++|//[^\n]*+|/\*.*?\*/)*+num_ranks\s++\d", re.DOTALL)
_END = re.compile(r"\s*(?:\}|$)")
_SPACE = re.compile(r"[ \t]*")
_RANKS = re.compile(rf"num_ranks\s+({_DIGITS})(?!\w)", re.ASCII)
_RANK = re.compile(rf"rank\s+({_DIGITS})\s*\{{", re.ASCII)
_OPERATION = re.compile(
    rf"(?:({_LABEL})\s*:\s*)?(?:(send|recv)\s+({_DIGITS})\s*b\s+(to|from)\s+(-1|{_DIGITS})|calc\s+({_DIGITS}))(?!\w)",
    re.ASCII,
)
_OPTION = re.compile(rf"\s+(tag|cpu|nic)\s+(-1|{_DIGITS})(?!\w)", re.ASCII)
_DEPENDENCY = re.compile(rf"({_LABEL})\s+(i?requires)\s+({_LABEL})(?!\w)", re.ASCII)
_COMMENT = re.compile(r"//|/\*")


def recognises(name: str, head: bytes) -> bool:
    """Whether a file is a GOAL schedule: it begins with the number of ranks, or comments before it."""
    return _HEAD.match(head) is not None or (name.endswith(".goal") and b"num_ranks" in head)


def read(source: Source) -> Iterator[Recording]:
    """Give the schedule of each rank, in the order of the file.

    Parameters
    ----------
    source
        The file. One rank at a time is held in memory.

    Yields
    ------
    Recording
        Nodes are named ``"send"``, ``"recv"`` and ``"calc"``; labels are not kept. The lane of a node is its CPU.

    Raises
    ------
    TraceError
        Where a line is no GOAL, a label is missing or double, a rank is missing, double or out of range, the schedule
        ends within a rank, or there are more than `MOST_STATEMENTS`.
    """
    scanner = _Scanner(source)
    for number, line in _without_comments(source):
        scanner.number = number
        yield from scanner.take(line)
    scanner.finish()


def _without_comments(source: Source) -> Iterator[tuple[int, str]]:
    """Lines with comments taken out; a comment may go over several lines."""
    began = 0
    for number, line in lines(source):
        text = line
        if began:
            _, end, text = text.partition("*/")
            if not end:
                continue
            began = 0
        if "/" in text:
            text, open_ended = _uncommented(text)
            began = number if open_ended else 0
        if text and not text.isspace():
            yield number, text
    if began:
        raise TraceError(source.label, "a comment begins here and does not end; the file is cut", began)


def _uncommented(text: str) -> tuple[str, bool]:
    """Take comments out of a line; also says whether the last goes on in the next."""
    parts, place = [], 0
    while match := _COMMENT.search(text, place):
        parts.append(text[place : match.start()])
        place = len(text) if match[0] == "//" else text.find("*/", match.end()) + 2
        if place == 1:  # found at -1: it does not end here
            return " ".join(parts), True
    return " ".join([*parts, text[place:]]), False


@dataclass
class _Scanner:
    """Takes the schedule line by line."""

    source: Source
    number: int = 0
    ranks: int = 0
    rank: int = NONE
    done: set[int] = field(default_factory=set)
    labels: dict[str, int] = field(default_factory=dict)
    builder: RecordingBuilder = field(default_factory=lambda: RecordingBuilder(""))
    statements: int = 0

    def take(self, line: str) -> Iterator[Recording]:
        """Take a line; several things may stand in one."""
        place = 0
        while (place := _SPACE.match(line, place).end()) < len(line):  # type: ignore[union-attr]  # matches always
            if line[place] == "}" and self.rank != NONE:
                place += 1
                yield self._end_rank()
            elif self.rank != NONE:
                place = self._statement(line, place)
            else:
                place = self._heading(line, place)

    def finish(self) -> None:
        if not self.ranks:
            self._fail("has no num_ranks; a GOAL schedule begins with it")
        if self.rank != NONE:
            self._fail(f"ends within rank {self.rank}: the file is cut, or a }} is missing")
        if len(self.done) != self.ranks:
            absent = next(rank for rank in range(self.ranks) if rank not in self.done)
            msg = f"has {len(self.done)} of {self.ranks} ranks, rank {absent} is missing: the file is cut"
            self._fail(msg)

    def _heading(self, line: str, place: int) -> int:
        if match := _RANKS.match(line, place):
            ranks = self._number(match[1], "num_ranks", MOST_RANKS)
            if self.ranks or not ranks:
                self._fail(f"num_ranks is {ranks}, must be at least 1 and stand once, before the first rank")
            self.ranks = ranks
        elif match := _RANK.match(line, place):
            rank = self._number(match[1], "rank", MOST_RANKS)
            if rank >= self.ranks:
                self._fail(f"rank {rank} of {self.ranks}; put num_ranks first, ranks count from 0")
            if rank in self.done:
                self._fail(f"rank {rank} stands twice; put all it does into one block")
            self.rank = rank
            self.labels.clear()
            self.builder = RecordingBuilder(self.source.label)
        else:
            self._unknown(line, place, '"num_ranks N" or "rank R {"')
        return match.end()

    def _statement(self, line: str, place: int) -> int:
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            self._fail(f"more than {MOST_STATEMENTS} statements; cut the schedule to fewer iterations")
        if match := _OPERATION.match(line, place):
            return self._node(line, match)
        match = _DEPENDENCY.match(line, place)
        if match is None or not _END.match(line, match.end()):
            self._unknown(line, place, "a send, recv or calc, a dependency, or }")
        after, before = self._labelled(match[1]), self._labelled(match[3])
        if after == before:
            self._fail(f"{match[1]} waits for itself, so it never begins; name another label")
        self.builder.edge(before, after, on_start=match[2] == "irequires")
        return match.end()

    def _node(self, line: str, match: re.Match[str]) -> int:
        label, word, size, towards, peer, calc = match.groups()
        if (word, towards) in {("send", "from"), ("recv", "to")}:
            self._unknown(line, match.start(), '"send Nb to R" or "recv Nb from R"')
        if label in self.labels:
            self._fail(f"label {label} stands twice in rank {self.rank}; give each operation its own")
        options, end = self._options(line, match.end())
        if not _END.match(line, end):
            self._unknown(line, match.start(), "one operation on a line")
        lane = self.builder.lane("cpu", f"cpu {options.pop('cpu', 0)}")
        if word is None:
            if options:
                self._fail(f"a calc has no {next(iter(options))}; only a send or recv does")
            duration = self._number(calc, "calc", _MOST_CALC) * PS_PER_NS
            node = self.builder.node(COMPUTE, lane, "calc", duration=duration)
        else:
            message = self._message(word, size, peer, options)
            node = self.builder.node(COMMUNICATION, lane, word, communication=message)
        if label is not None:
            self.labels[label] = node
        return end

    def _message(self, word: str, size: str, peer: str, options: dict[str, int]) -> Communication:
        other = NONE
        if peer != "-1":
            other = self._number(peer, "rank", MOST_RANKS)
            if other >= self.ranks:
                self._fail(f"{word} names rank {other}, but there are {self.ranks}; ranks count from 0")
        elif word == "send":
            self._fail("a send to rank -1; only a recv may be from any rank")
        return Communication(
            "send" if word == "send" else "recv",
            size=self._number(size, "size", _MOST_SIZE),
            peer=other,
            tag=options.get("tag", 0),
            nic=options.get("nic", NONE),
        )

    def _options(self, line: str, place: int) -> tuple[dict[str, int], int]:
        options: dict[str, int] = {}
        while match := _OPTION.match(line, place):
            key, value = match[1], match[2]
            if key in options:
                self._fail(f"{key} stands twice; give it once")
            if value == "-1" and key != "tag":
                self._fail(f"{key} is -1; it counts from 0")
            options[key] = NONE if value == "-1" else self._number(value, key, MOST_OPTION)
            place = match.end()
        return options, place

    def _labelled(self, label: str) -> int:
        if label not in self.labels:
            self._fail(f"no operation above is labelled {label}; put a dependency after both of its operations")
        return self.labels[label]

    def _number(self, digits: str, what: str, most: int) -> int:
        value = int(digits)
        if value > most:
            self._fail(f"{what} {value} is too large; at most {most}")
        return value

    def _end_rank(self) -> Recording:
        recording = self.builder.build(self.rank, self.ranks)
        self.done.add(self.rank)
        self.rank = NONE
        return recording

    def _unknown(self, line: str, place: int, expected: str) -> NoReturn:
        self._fail(f"{line[place : place + 60].rstrip()!r} is no GOAL; expected {expected}")

    def _fail(self, problem: str) -> NoReturn:
        raise TraceError(self.source.label, problem, self.number or None)
