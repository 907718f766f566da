"""Fabrics from files: a CSV of cables.

A header that names the columns ``a``, ``b``, ``gbps`` and ``delay_ns``, in any order; then a cable on each line, which
carries that rate in both directions after that propagation delay. Empty lines and lines that begin with ``#`` are left
out. Nodes are numbers or names, one of the two in a whole file. Of ``n`` hosts the nodes are 0 to ``n - 1``, or
``host0``, ``host1``, ...; every other node is a switch. If hosts have ``m`` NICs, these are the nodes: 0 to
``n * m - 1``, or ``host0/nic0``, ``host0/nic1``, ...
"""

import csv
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fabricsim.errors import FabricsimWarning, TraceError
from fabricsim.files.text import read_lines
from fabricsim.scenario.network import END, Ends
from fabricsim.scenario.suggest import check_columns, show
from fabricsim.topology.graph_file import form_of
from fabricsim.units import DURATION, RATE, parse

MOST_CABLES = 500_000
"""Cables of the largest file: bounds the time that it takes to a few seconds."""

_COLUMNS = ("a", "b", "gbps", "delay_ns")
_NODE_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_NODE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,2})?", re.ASCII)


class ListedCable(NamedTuple):
    """A cable between two nodes, which carries the same in both directions."""

    a: str
    b: str
    rate: float  # bytes/s
    delay: int  # propagation, ps


def read(path: Path | str, hosts: int, nics_per_host: int = 1) -> list[ListedCable]:
    """Read the cables of a fabric.

    `path`: CSV: plain text, gzip or xz, at most 256 MiB unpacked.
    `hosts`, `nics_per_host`: how many hosts the fabric has, and how many NICs each.
    Returns: in the order of the file. Nodes are named ``host0``, ``host1``, ...; switches as in the file, or
        ``switch128`` for the number 128.
    Raises TraceError with file and line, if it cannot be read or is no list of cables, a cable leads back to its own
        node or is given twice, a rate or delay is impossible, or a NIC has no cable or several.
    """
    path = Path(path)
    ends = Ends(hosts, nics_per_host)
    cables = _Cables(path, ends)
    form = form_of(path)
    for number, row in rows(path, _COLUMNS, _COLUMNS) if form is None else form(path, ends):
        cables.take(number, row)
    return cables.finish()


def rows(path: Path, columns: Sequence[str], needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and values by column of each line below the header of a CSV file.

    `path`: the file.
    `columns`: those that it may have.
    `needed`: those that it must have.
    Raises TraceError if the file cannot be read, its header has other columns, a line has more or fewer values, or
        there is none.
    """
    header: list[str] | None = None
    empty = True
    for number, line in read_lines(path):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        values = _values(path, number, text)
        if header is None:
            check_columns(path, number, values, columns, needed)
            header = values
            continue
        if len(values) != len(header):
            what = f"{len(values)} values for the {len(header)} columns {','.join(header)}"
            raise TraceError(path, f"{what}; the line is cut or damaged", number)
        empty = False
        yield number, dict(zip(header, values, strict=True))
    if empty:
        raise TraceError(path, f"holds nothing; write a header such as {','.join(columns)} and lines below it")


def _values(path: Path, line: int, text: str) -> list[str]:
    """Split a line at its commas; values may stand in quotes."""
    if '"' not in text:
        return [value.strip() for value in text.split(",")]
    try:
        return [value.strip() for value in next(csv.reader([text], strict=True, skipinitialspace=True))]
    except csv.Error as error:
        raise TraceError(path, f"{show(text)}: {error}; close each quote before the next comma", line) from error


def is_number(node: str) -> bool:
    """Whether a node is written as a number."""
    return _NODE_NUMBER.fullmatch(node) is not None


def is_node(text: str) -> bool:
    """Whether a file can name a node so: by a number, as a host or NIC, or by a switch's name."""
    return any(form.fullmatch(text) is not None for form in (_NODE_NUMBER, END, _NODE_NAME))


def node_name(path: Path, line: int, text: str, ends: Ends) -> str:
    """Name the node that a file means by a number or a name: ``host3``, ``switch128``, ``spine0``.

    Raises TraceError if it is neither, or a host or NIC that is not there.
    """
    if is_number(text):
        number = int(text)
        return ends.name(number) if number < ends.count else f"switch{number}"
    if END.fullmatch(text):
        if ends.number(text) is None:
            what = f"{show(text)} is not there: the cluster has {ends.name(0)} to {ends.name(ends.count - 1)}"
            raise TraceError(path, f"{what}; rename it, or set cluster.hosts", line)
        return text
    if not _NODE_NAME.fullmatch(text):
        what = f"{show(text)} is no node; write a number, or a name of letters, digits, points and underscores"
        raise TraceError(path, what, line)
    return text


@lru_cache(2**16)  # most cables are alike
def _parsed(text: str, unit: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{show(text)} is no number; write one without a unit")
    return parse(f"{text}{unit}", RATE if unit == "Gbps" else DURATION)


@dataclass
class _Cables:
    """Collects cables, and refuses impossible ones."""

    path: Path
    ends: Ends
    cables: list[ListedCable] = field(default_factory=list)
    numbered: bool | None = None
    nodes: dict[str, tuple[str, bool]] = field(default_factory=dict)  # by what is written: name, and whether a NIC
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    attached: dict[str, int] = field(default_factory=dict)  # line of each NIC's cable

    def take(self, line: int, row: dict[str, str]) -> None:
        """Take a line of the file."""
        if len(self.cables) == MOST_CABLES:
            raise TraceError(self.path, f"more than {MOST_CABLES} cables; describe a smaller fabric", line)
        ends = self._node(line, row["a"]), self._node(line, row["b"])
        if ends[0] == ends[1]:
            raise TraceError(self.path, f"the cable leads from {row['a']} to itself; name two nodes", line)
        self._refuse_second(line, *ends)
        rate = self._quantity(line, row, "gbps", "Gbps")
        delay = self._quantity(line, row, "delay_ns", "ns")
        self.cables.append(ListedCable(ends[0][0], ends[1][0], float(rate), int(delay)))

    def _node(self, line: int, text: str) -> tuple[str, bool]:
        if text in self.nodes:
            return self.nodes[text]
        name = node_name(self.path, line, text, self.ends)
        numbered = is_number(text)
        if self.numbered is None:
            self.numbered = numbered
        elif self.numbered != numbered:
            what = f"{show(text)} is a {'number' if numbered else 'name'}, the nodes before it are not"
            raise TraceError(self.path, f"{what}; give all nodes numbers, or all of them names", line)
        self.nodes[text] = name, END.fullmatch(name) is not None
        return self.nodes[text]

    def _refuse_second(self, line: int, one: tuple[str, bool], other: tuple[str, bool]) -> None:
        pair = (one[0], other[0]) if one < other else (other[0], one[0])
        if pair in self.lines:
            what = f"{one[0]} and {other[0]} are joined already, on line {self.lines[pair]}"
            raise TraceError(self.path, f"{what}; take one out, and raise gbps of the other", line)
        self.lines[pair] = line
        for end, is_nic in (one, other):
            if is_nic and end in self.attached:
                what = f"{end} has a cable already, on line {self.attached[end]}"
                raise TraceError(self.path, f"{what}; {self._instead(end)}", line)
            if is_nic:
                self.attached[end] = line

    def _instead(self, end: str) -> str:
        """Say what can be done about a host or NIC with two cables; a number says only by `hosts` what it is."""
        usual = f"a {self.ends.kind} has one, so put a switch between"
        hosts = (self.ends.number(end) or 0) // self.ends.nics_per_host
        if not self.numbered or not hosts:
            return usual
        return f"{usual}, or set cluster.hosts={hosts} if this number is a switch"

    def _quantity(self, line: int, row: dict[str, str], column: str, unit: str) -> int | float:
        text = row[column]
        try:
            return _parsed(text, unit)
        except ValueError as error:
            raise TraceError(self.path, f"{column}: {error}", line) from error

    def finish(self) -> list[ListedCable]:
        """Return what there is, all hosts being joined."""
        ends = self.ends
        alone = next((end for end in range(ends.count) if ends.name(end) not in self.attached), None)
        if alone is not None:
            what = f"{ends.kind} {alone} has no cable, and the cluster has {ends.kind}s 0 to {ends.count - 1}"
            raise TraceError(self.path, f"{what}; add one, or lower cluster.hosts")
        if self.numbered:
            self._warn_of_hosts_taken_for_switches()
        return self.cables

    def _warn_of_hosts_taken_for_switches(self) -> None:
        """Warn of numbers that follow those of hosts, and have one cable, to a switch, as a host has and none needs."""
        cables = Counter(node for pair in self.lines for node in pair)
        between = (pair for pair in self.lines if not self.attached.keys() & set(pair))
        lonely = {node for pair in between for node in pair if cables[node] == 1}
        first = self.ends.count
        beyond = next(number for number in itertools.count(first) if f"switch{number}" not in lonely)
        if beyond > first:
            numbers = f"{first} is a switch" if beyond == first + 1 else f"{first} to {beyond - 1} are switches"
            hosts = -(-beyond // self.ends.nics_per_host)
            text = f"{self.path}: {numbers} of a single cable, as numbers from {first} on are no {self.ends.kind}s"
            warnings.warn(f"{text}; if hosts were meant, set cluster.hosts={hosts}", FabricsimWarning, stacklevel=2)
