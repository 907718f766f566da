"""Traffic matrices: CSV files, and the connection matrices of htsim.

CSV: a header that names the columns ``src``, ``dst`` and ``bytes``, and perhaps ``id`` and ``start_ns``, in any order;
then a flow on each line. Empty lines and lines that begin with ``#`` are left out.

htsim: ``Nodes N``, ``Connections M``, then M lines such as ``0->12 id 1 start 0 size 10240000``. Sizes are bytes and
starts picoseconds: that is what htsim's loader takes them for (``ConnectionMatrix::load`` in
``sim/datacenter/connection_matrix.cpp`` of github.com/Broadcom/csg-htsim) and what the generators beside it write. Its
``save`` writes microseconds with six decimals, which its loader then misreads: a start with a point is refused here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.files.text import read_lines
from fabricsim.results.traffic import DEMAND, LARGEST_FLOW, LATEST_START, MOST_ENDPOINTS, MOST_FLOWS, Matrix
from fabricsim.scenario.suggest import check_columns, show
from fabricsim.units import PS_PER_NS

_COLUMNS = ("id", "src", "dst", "bytes", "start_ns")
_NEEDED = ("src", "dst", "bytes")
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{0,40})?", re.ASCII)
_PAIR = re.compile(r"(-?[\d.]{1,40})->(-?[\d.]{1,40})", re.ASCII)
_ZERO = re.compile(r"0+\.0*", re.ASCII)
_COUNTS = ("Nodes", "Connections", "Triggers", "Failures")
_KEYS = ("id", "start", "size")
_TRIGGERED = "starts flows when others end; give each flow a start, or write a GOAL schedule for `fabricsim replay`"
_BROKEN = "is a failure of the fabric; take it out, and name the cable in fabric.failures of a scenario"
_REFUSED = {
    **dict.fromkeys(("Triggers", "trigger", "send_done_trigger", "recv_done_trigger", "addon"), _TRIGGERED),
    **dict.fromkeys(("Failures", "failure"), _BROKEN),
    "prio": "is a priority, and all flows here have the same; take it out",
}
"""What htsim knows and a list of flows has no place for, and why; to leave it out would change the traffic."""


def read(path: Path | str) -> Matrix:
    """Read a traffic matrix; the first line tells the form, not the name.

    `path`: CSV or htsim connection matrix: plain text, gzip or xz, at most 256 MiB unpacked.
    Returns: flows in the order of the file, numbered from 1 if it has no ids. `Matrix.endpoints` is htsim's number of
        nodes, for CSV the highest endpoint plus 1; `Matrix.name` is the name of the file.
    Raises TraceError: with file and line, if it cannot be read or is no traffic matrix, or a flow is impossible: 0
        bytes, from an endpoint to itself, to one that is not there, or a number that is negative, no whole number or
        too large.
    """
    path = Path(path)
    reader: _Csv | _Htsim | None = None
    for number, line in read_lines(path):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if reader is None:
            flows = _Flows(path)
            reader = _Htsim(flows) if _is_htsim(text) else _Csv(flows, _columns(path, number, text))
            if isinstance(reader, _Csv):
                continue
        reader.take(number, text)
    if reader is None:
        raise TraceError(path, "holds no flows; write a header such as id,src,dst,bytes,start_ns and a flow per line")
    return reader.finish()


def _is_htsim(text: str) -> bool:
    first = text.split(maxsplit=1)[0]
    return first in _COUNTS or "->" in first


def _columns(path: Path, number: int, text: str) -> list[str]:
    columns = [name.strip() for name in text.split(",")]
    check_columns(path, number, columns, _COLUMNS, _NEEDED)
    return columns


@dataclass
class _Flows:
    """Collects flows, and refuses impossible ones."""

    path: Path
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    highest: int = -1
    line: int = 0

    def whole(self, number: int, name: str, text: str, most: int, least: int = 0) -> int:
        """Read a whole number between limits."""
        if _INTEGER.fullmatch(text) and least <= int(text) <= most:
            return int(text)
        if not _NUMBER.fullmatch(text):
            problem = f"is no number; write a whole number from {least} to {most}"
        elif text.startswith("-"):
            problem = f"is negative; write {least} or more"
        elif "." in text:
            problem = "is no whole number; write it without a point"
        elif int(text) < least:
            problem = f"is too small; write {least} or more"
        else:
            problem = f"is too large; at most {most}"
        raise TraceError(self.path, f"{name} {show(text)} {problem}", number)

    def add(self, line: int, row: tuple[int, int, int, int, int]) -> None:
        """Take a flow: id, source, target, bytes, start in ps."""
        if len(self.rows) == MOST_FLOWS:
            raise TraceError(self.path, f"more than {MOST_FLOWS} flows; split the matrix", line)
        flow, source, target, *_ = row
        if source == target:
            raise TraceError(self.path, f"flow {flow} goes from {source} to itself; nothing would cross a link", line)
        if flow in self.ids:
            raise TraceError(self.path, f"the id {flow} is given twice; give each flow its own", line)
        self.ids.add(flow)
        self.rows.append(row)
        if max(source, target) > self.highest:
            self.highest, self.line = max(source, target), line

    def matrix(self, endpoints: int, line: int) -> Matrix:
        """Freeze what there is; the line is that which says how many endpoints there are."""
        return Matrix(np.array(self.rows, DEMAND), endpoints, self.path.name, line)


@dataclass
class _Csv:
    """The lines after the header."""

    flows: _Flows
    columns: Sequence[str]

    def take(self, number: int, text: str) -> None:
        values = [value.strip() for value in text.split(",")]
        if len(values) != len(self.columns):
            what = f"{len(values)} values for the {len(self.columns)} columns {','.join(self.columns)}"
            raise TraceError(self.flows.path, f"{what}; the line is cut or damaged", number)
        row = dict(zip(self.columns, values, strict=True))
        whole = self.flows.whole
        flow = whole(number, "id", row["id"], 10**18) if "id" in row else len(self.flows.rows) + 1
        source = whole(number, "src", row["src"], MOST_ENDPOINTS - 1)
        target = whole(number, "dst", row["dst"], MOST_ENDPOINTS - 1)
        size = whole(number, "bytes", row["bytes"], LARGEST_FLOW, 1)
        start = whole(number, "start_ns", row.get("start_ns", "0"), LATEST_START // PS_PER_NS) * PS_PER_NS
        self.flows.add(number, (flow, source, target, size, start))

    def finish(self) -> Matrix:
        if not self.flows.rows:
            raise TraceError(self.flows.path, "holds a header but no flows; write one per line below it")
        return self.flows.matrix(1 + self.flows.highest, self.flows.line)


@dataclass
class _Htsim:
    """All lines of a connection matrix."""

    flows: _Flows
    counts: dict[str, int] = field(default_factory=dict)
    line: int = 0

    def take(self, number: int, text: str) -> None:
        words = text.split()
        if words[0] in _COUNTS:
            self._take_count(number, words)
        elif pair := _PAIR.fullmatch(words[0]):
            self._take_connection(number, pair[1], pair[2], words[1:])
        else:
            self._refuse(number, *words[:3])

    def _take_count(self, number: int, words: list[str]) -> None:
        name, path = words[0], self.flows.path
        if len(words) != 2 or name in self.counts:  # noqa: PLR2004  a name and its number
            raise TraceError(path, f"not one number after {name}, or a second line of it; write {name} once", number)
        if name in {"Triggers", "Failures"}:
            self.counts[name] = self.flows.whole(number, name, words[1], MOST_FLOWS)
            if self.counts[name]:
                self._refuse(number, *words)
        else:
            most = MOST_ENDPOINTS if name == "Nodes" else MOST_FLOWS
            self.counts[name] = self.flows.whole(number, name, words[1], most, 1)
            self.line = number if name == "Nodes" else self.line

    def _take_connection(self, number: int, source: str, target: str, words: list[str]) -> None:
        if "Nodes" not in self.counts:
            raise TraceError(self.flows.path, "a connection before the line Nodes; write the number of nodes", number)
        last = self.counts["Nodes"] - 1
        values = self._values(number, words)
        whole = self.flows.whole
        flow = whole(number, "id", values.get("id", str(len(self.flows.rows) + 1)), 10**18, 1)
        ends = [self._endpoint(number, text, last) for text in (source, target)]
        size = whole(number, "size", values["size"], LARGEST_FLOW, 1)
        start = "0" if _ZERO.fullmatch(values["start"]) else values["start"]
        self.flows.add(number, (flow, ends[0], ends[1], size, whole(number, "start (ps)", start, LATEST_START)))

    def _endpoint(self, number: int, text: str, last: int) -> int:
        endpoint = self.flows.whole(number, "endpoint", text, MOST_ENDPOINTS - 1)
        if endpoint > last:
            what = f"endpoint {endpoint} is not there: Nodes {last + 1} are numbered 0 to {last}"
            raise TraceError(self.flows.path, f"{what}; raise Nodes", number)
        return endpoint

    def _values(self, number: int, words: list[str]) -> dict[str, str]:
        values: dict[str, str] = {}
        for key, value in zip(words[::2], [*words[1::2], ""], strict=False):
            if key not in _KEYS:
                self._refuse(number, key, value)
            if key in values or not value:
                raise TraceError(self.flows.path, f"{key} is given twice or without a value", number)
            values[key] = value
        for key in ("start", "size"):
            if key not in values:
                raise TraceError(self.flows.path, f"the connection has no {key}; the line is cut or damaged", number)
        return values

    def _refuse(self, number: int, word: str, *values: str) -> None:
        if word in _REFUSED:
            what = f"{show(' '.join([word, *values]).rstrip())} {_REFUSED[word]}"
        else:
            what = f"{show(word)} is nothing that a connection matrix has; write lines like 0->1 id 1 start 0 size 4096"
        raise TraceError(self.flows.path, what, number)

    def finish(self) -> Matrix:
        path, found = self.flows.path, len(self.flows.rows)
        for name in ("Nodes", "Connections"):
            if name not in self.counts:
                raise TraceError(path, f"the line {name} is missing; a connection matrix begins with it")
        if found != self.counts["Connections"]:
            what = f"Connections {self.counts['Connections']}, but {found} are there"
            raise TraceError(path, f"{what}; the file is cut, or the number wrong")
        return self.flows.matrix(self.counts["Nodes"], self.line)
