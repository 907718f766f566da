"""GOAL schedules as text: sends, receives and calculations of each rank, as LogGOPSim and ATLAHS take them.

Form after the scanner of LogGOPSim, ``src/LogGOPSim/txt2bin.re`` of github.com/spcl/LogGOPSim, and T. Hoefler,
C. Siebert and A. Lumsdaine, "Group Operation Assembly Language - A Flexible Way to Express Collective Communication",
ICPP 2009. The binary form is not read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from fabricsim.errors import TraceError
from fabricsim.files.lines import LineParser, lines
from fabricsim.files.sources import Source
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.traces.form import Form
from fabricsim.traces.goal.writer import MOST_OPTION
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, MOST_SIZE, Communication, Recording, RecordingBuilder
from fabricsim.units import PS_PER_NS

MOST_STATEMENTS = 20_000_000
"""Operations and dependencies of one file."""
MOST_RANKS = 2**18
"""Ranks of one file."""

_MOST_CALC = CLOCK_END // PS_PER_NS
_DIGITS = r"\d{1,19}"
_LABEL = r"[A-Za-z]\w{0,255}+"
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s++|//[^\n]*+|/\*.*?\*/)*+num_ranks\s++\d", re.DOTALL)
_SPACE = re.compile(r"\s*")
_RANKS = re.compile(rf"num_ranks\s+({_DIGITS})(?!\w)", re.ASCII)
_RANK = re.compile(rf"rank\s+({_DIGITS})\s*\{{", re.ASCII)
_CPU = rf"(?:\s+cpu\s+({_DIGITS}))?"
_MESSAGE = rf"(send|recv)\s+({_DIGITS})\s*b\s+(to|from)\s+(-1|{_DIGITS})(?:\s+tag\s+(-1|{_DIGITS}))?"
_STATEMENT = re.compile(
    rf"(?:(?:({_LABEL})\s*:\s*)?(?:{_MESSAGE}{_CPU}(?:\s+nic\s+({_DIGITS}))?|calc\s+({_DIGITS}){_CPU})"
    rf"|({_LABEL})\s+(i?requires)\s+({_LABEL}))\s*(?=\}}|$)",
    re.ASCII,
)
_NUMBER = re.compile(r"(?<!\w)([a-z_]{2,9})\s++(-\d++|\d{20,}+)(?=b?\b)", re.ASCII)
"""A number with its word that no statement takes: negative, or of more digits than are looked at."""
_KINDS = {"send": "size", "recv": "size", "to": "rank", "from": "rank"}
"""What the number behind a word is, if it is not called like the word."""
_MOST = {"size": MOST_SIZE, "rank": MOST_RANKS - 1, "num_ranks": MOST_RANKS, "calc": _MOST_CALC}
"""Largest numbers, those of options aside."""
_SHOWN = 24
"""Digits of a number that are shown."""
_COMMENT = re.compile(r"//|/\*")


def recognises(name: str, head: bytes) -> bool:
    """Whether a file is a GOAL schedule: it begins with the number of ranks, or comments before it."""
    return _HEAD.match(head) is not None or (name.endswith(".goal") and b"num_ranks" in head)


def read(source: Source) -> Iterator[Recording]:
    """Give the schedule of each rank, in the order of the file.

    `source`: the file. One rank at a time is held in memory.
    Yields: nodes are named ``"send"``, ``"recv"`` and ``"calc"``; labels are not kept. The lane of a node is its CPU.
    Raises TraceError if a line is no GOAL, a label is missing or double, a rank is missing, double or out of range, the
        schedule ends within a rank, or there are more than `MOST_STATEMENTS`.
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
class _Scanner(LineParser):
    """Takes the schedule line by line."""

    ranks: int = 0
    rank: int = NONE
    done: set[int] = field(default_factory=set)
    labels: dict[str, int] = field(default_factory=dict)
    cpus: dict[str | None, int] = field(default_factory=dict)
    builder: RecordingBuilder = field(default_factory=lambda: RecordingBuilder(""))
    statements: int = 0

    def take(self, line: str) -> Iterator[Recording]:
        """Take a line; ranks may begin and end within it."""
        place = 0
        while (place := _SPACE.match(line, place).end()) < len(line):  # type: ignore[union-attr]  # matches always
            if self.rank == NONE:
                place = self._heading(line, place)
            elif line[place] == "}":
                place += 1
                yield self._end_rank()
            else:
                place = self._statement(line, place)

    def finish(self) -> None:
        if not self.ranks:
            self.fail("has no num_ranks; a GOAL schedule begins with it")
        if self.rank != NONE:
            self.fail(f"ends within rank {self.rank}: the file is cut, or a }} is missing")
        if len(self.done) != self.ranks:
            absent = next(rank for rank in range(self.ranks) if rank not in self.done)
            self.fail(f"has {len(self.done)} of {self.ranks} ranks, rank {absent} is missing: the file is cut")

    def _heading(self, line: str, place: int) -> int:
        if match := _RANKS.match(line, place):
            ranks = self._number(match[1], "num_ranks", MOST_RANKS)
            if self.ranks or not ranks:
                self.fail(f"num_ranks is {ranks}, must be at least 1 and stand once, before the first rank")
            self.ranks = ranks
        elif match := _RANK.match(line, place):
            rank = self._number(match[1], "rank", MOST_RANKS)
            if rank >= self.ranks:
                self.fail(f"rank {rank} of {self.ranks}; put num_ranks first, ranks count from 0")
            if rank in self.done:
                self.fail(f"rank {rank} stands twice; put all it does into one block")
            self.rank = rank
            self.labels.clear()
            self.cpus.clear()
            self.builder = RecordingBuilder(self.source.label)
        else:
            self._unknown(line, place, '"num_ranks N" or "rank R {"')
        return match.end()

    def _statement(self, line: str, place: int) -> int:
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            self.fail(f"more than {MOST_STATEMENTS} statements; cut the schedule to fewer iterations")
        match = _STATEMENT.match(line, place)
        if match is None:
            self._unknown(line, place, 'one "send Nb to R", "recv Nb from R" or "calc N", a dependency, or }')
        label, word, size, towards, peer, tag, cpu, nic, calc, calc_cpu, after, kind, before = match.groups()
        if after:
            self._dependency(after, before, on_start=kind == "irequires")
            return match.end()
        if word is None:
            node = self._calc(calc, calc_cpu)
        elif (word == "send") == (towards == "to"):
            communication = self._message(word, size, peer, tag, nic)
            node = self.builder.node(COMMUNICATION, self._lane(cpu), word, communication=communication)
        else:
            self._unknown(line, place, '"send Nb to R" or "recv Nb from R"')
        if label is not None:
            if label in self.labels:
                self.fail(f"label {label} stands twice in rank {self.rank}; give each operation its own")
            self.labels[label] = node
        return match.end()

    def _dependency(self, label: str, other: str, *, on_start: bool) -> None:
        after, before = self._labelled(label), self._labelled(other)
        if after == before:
            self.fail(f"{label} waits for itself, so it never begins; name another label")
        self.builder.edge(before, after, on_start=on_start)

    def _calc(self, time: str, cpu: str | None) -> int:
        duration = self._number(time, "calc", _MOST_CALC) * PS_PER_NS
        return self.builder.node(COMPUTE, self._lane(cpu), "calc", duration=duration)

    def _message(self, word: str, size: str, peer: str, tag: str, nic: str) -> Communication:
        other = NONE
        if peer != "-1":
            other = self._number(peer, "rank", MOST_RANKS)
            if other >= self.ranks:
                self.fail(f"{word} names rank {other}, but there are {self.ranks}; ranks count from 0")
        elif word == "send":
            self.fail("a send to rank -1; only a recv may be from any rank")
        return Communication(
            "send" if word == "send" else "recv",
            size=self._number(size, "size", MOST_SIZE),
            peer=other,
            tag=0 if tag is None else NONE if tag == "-1" else self._number(tag, "tag", MOST_OPTION),
            nic=NONE if nic is None else self._number(nic, "nic", MOST_OPTION),
        )

    def _lane(self, cpu: str | None) -> int:
        lane = self.cpus.get(cpu)
        if lane is None:
            number = 0 if cpu is None else self._number(cpu, "cpu", MOST_OPTION)
            lane = self.cpus[cpu] = self.builder.lane("cpu", f"cpu {number}")
        return lane

    def _labelled(self, label: str) -> int:
        if label not in self.labels:
            self.fail(f"no operation above is labelled {label}; put a dependency after both of its operations")
        return self.labels[label]

    def _number(self, digits: str, what: str, most: int) -> int:
        value = int(digits)
        if value > most:
            self.fail(f"{what} {value} is too large; at most {most}")
        return value

    def _end_rank(self) -> Recording:
        recording = self.builder.build(self.rank, self.ranks)
        self.done.add(self.rank)
        self.rank = NONE
        return recording

    def _unknown(self, line: str, place: int, expected: str) -> NoReturn:
        self._refuse_number(line[place:].partition("}")[0])
        self.fail(f"{line[place : place + 60].rstrip()!r} is no GOAL; expected {expected}")

    def _refuse_number(self, text: str) -> None:
        """Refuse what is no GOAL for a number in it; any rank and any tag are written -1."""
        for word, digits in _NUMBER.findall(text):
            what = _KINDS.get(word, word)
            told = digits if len(digits) <= _SHOWN else f"{digits[:_SHOWN]}..."
            if not digits.startswith("-"):
                self.fail(f"{what} {told} is too large; at most {_MOST.get(what, MOST_OPTION)}")
            least = -1 if word in {"to", "from", "tag"} else 0
            if digits.lstrip("-0") not in {"", str(-least)}:  # of any length
                self.fail(f"{what} {told} is too small; at least {least}")


FORM = Form("goal", "GOAL schedules as text, of LogGOPSim and ATLAHS", recognises, read)
