"""Tables that nccl-tests and rccl-tests print (``all_reduce_perf`` and its sisters).

Read are the table forms since NCCL 2: with and without ``redop`` and ``root``, with ``error`` or
``#wrong`` last, with per-iteration columns; plain, behind the prefixes of mpirun or srun, as
Markdown, and with lines of ``NCCL_DEBUG`` between the rows or in the middle of one.
Form after ``src/util.cu`` and ``src/common.cu`` of github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.files.text import read_by, without_launcher_prefix
from fabricsim.records.program import NONE

NCCL_TESTS_ROW = np.dtype(
    [
        ("size", np.int64),  # bytes; 0 is legal
        ("count", np.int64),  # elements
        ("datatype", "U12"),
        ("redop", "U8"),  # "none" where the collective reduces nothing
        ("root", np.int32),  # NONE if there is none, or no column for it
        ("time_out_s", np.float64),  # out of place; NaN if the test printed N/A
        ("algbw_out", np.float64),  # bytes/s, two decimals of a GB/s
        ("busbw_out", np.float64),
        ("time_in_s", np.float64),  # in place
        ("algbw_in", np.float64),
        ("busbw_in", np.float64),
    ]
)
"""A row of a table."""

US_PER_S = 1e6
BYTES_PER_GB = 1e9

_NOT_MEASURED = "N/A"
_MEASURED = ("time", "algbw", "busbw")  # the first columns of a side
_HEADER_FIRST = {"size", "count", "type", "redop", "root"}
_HEADER_SIDE = {"time", "cputime", "algbw", "busbw", "error", "wrong", "i_min", "i_max", "i_p99", "i_cv%"}
_DATATYPE = re.compile(r"(?:u?int\d{0,2}|u?char|half|float\d{0,3}|double|bfloat16|bf16|fp?\d\w{1,9})$")
_REDOP = re.compile(r"sum|prod|max|min|avg|mulsum|none")
_ROOT = re.compile(r"-?\d{1,9}(?![\d.])")
# A letter may follow at once: NCCL's debug lines run into rows that are not yet ended.
_VALUE = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?|N/A)(?=[A-Za-z]|$)|(?:-?nan|inf)$")
_INTEGER = re.compile(r"\d{1,18}$")
_DEVICE = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+\d{1,9}\s+)?Pid\s+\d{1,18}\s+on\s+(\S{1,255})\s+device\s+(\d{1,9})\s+\[\S{1,32}\]\s+(\S.*)"
)
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version\s*:?\s*(\d[\w.+-]{0,60})")
_LIBRARY = re.compile(r"\bnccl-library=(\d{4,7})\b")
_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|broadcast|reduce|sendrecv|alltoall|gather|scatter)_perf"
)
_SWEEP = re.compile(r"maxBytes (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)")
_FOOTER = ("Out of bounds values", "Avg bus bandwidth")
_MAX_COLUMNS = 2000  # of a line that are looked at: bounds what a hostile line costs
_MAX_WORDS = 80  # a row with per-iteration columns has 21, a debug line before it about as many
_SIDE = 4  # time, algbw, busbw, and the error or #wrong


@dataclass(frozen=True)
class Device:
    """One rank of the run.

    `rank`: rank in the communicator.
    `device`: index of the GPU in its host.
    """

    rank: int
    host: str
    device: int
    gpu: str


@dataclass(frozen=True)
class NcclTestsTable:
    """What one run of nccl-tests measured.

    `collective`: such as ``"all_reduce"`` (``"send_recv"`` for ``sendrecv_perf``); ``None`` if the log does not say.
    `version`: version of NCCL or RCCL; empty if the log does not say.
    `devices`: the ranks in order; empty if the log does not list them.
    `rows`: ``NCCL_TESTS_ROW`` records in the order of the table, at least one.
    """

    collective: str | None
    version: str
    devices: tuple[Device, ...]
    rows: NDArray[np.void]

    @property
    def ranks(self) -> int:
        """Ranks of the run; 0 if the log does not list them."""
        return len(self.devices)

    @property
    def hosts(self) -> int:
        """Hosts of the run; 0 if the log does not list them."""
        return len({device.host for device in self.devices})


def read(path: Path | str) -> NcclTestsTable:
    """Read the one table of a log of nccl-tests.

    `path`: the log: plain text, gzip or xz, at most 256 MiB unpacked.
    Raises TraceError if the file cannot be read, holds no table or several, or a row is cut or damaged.
    """
    return read_by(NcclTestsReader(Path(path)), path)


@dataclass(frozen=True)
class _Layout:
    """What the header says of the columns."""

    redop: bool
    root: bool
    side: int  # values per side, out of place and in place

    @classmethod
    def of(cls, words: Sequence[str]) -> _Layout | None:
        """Layout of a header's words; ``None`` if they are not a whole header."""
        times = [place for place, word in enumerate(words) if word in {"time", "cputime"}]
        if len(times) != 2 or len(words) - times[1] != times[1] - times[0]:  # noqa: PLR2004  both sides, alike
            return None
        side = times[1] - times[0]
        whole = side >= _SIDE and list(words[times[0] + 1 : times[0] + 3]) == ["algbw", "busbw"]
        return cls("redop" in words, "root" in words, side) if whole else None


@dataclass
class _Row:
    """A row whose values may still be on their way."""

    line: int
    head: tuple[int, int, str, str, int]
    values: list[str] = field(default_factory=list)  # as printed


class NcclTestsReader:
    """Takes a log line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layout: _Layout | None = None
        self.rows: list[tuple[float | str, ...]] = []
        self.open: _Row | None = None
        self.devices: dict[int, Device] = {}
        self.version = ""
        self.collective: str | None = None
        self.sweep: tuple[int, int, bool] | None = None
        self.footer = False
        self.last = 0

    def take(self, number: int, line: str) -> None:  # noqa: D102  as of a LineReader
        self.last = number
        line = without_launcher_prefix(line[:_MAX_COLUMNS])
        if any(mark in line for mark in _FOOTER):
            self._close_row()
            self.footer = True
        elif self._take_header(number, line):
            return
        elif self.layout is None or self.footer:
            self._take_facts(line)
        else:
            self._take_row(number, line)

    def finish(self) -> NcclTestsTable:  # noqa: D102  as of a LineReader
        self._close_row()
        if not self.rows:
            what = "its table has no rows: the log ends too early" if self.layout else "no nccl-tests table in it"
            raise TraceError(self.path, f"{what}; give the whole output of a run such as all_reduce_perf")
        self._check_sweep()
        devices = tuple(self.devices[rank] for rank in sorted(self.devices))
        return NcclTestsTable(self.collective, self.version, devices, np.array(self.rows, NCCL_TESTS_ROW))

    def _take_header(self, number: int, line: str) -> bool:
        if "count" not in line or "algbw" not in line:
            return False
        words = line.replace("#", " ").replace("|", " ").split()
        start = words.index("size") if "size" in words else len(words)
        if words[start + 1 : start + 3] != ["count", "type"]:
            return False
        end = next(
            (place for place in range(start, len(words)) if words[place] not in _HEADER_FIRST | _HEADER_SIDE),
            len(words),
        )
        layout = _Layout.of(words[start:end])
        if layout is None:
            raise TraceError(self.path, "the table's header is cut or damaged; give the whole output", number)
        self._close_row()
        if self.rows:
            raise TraceError(self.path, "a second table starts here; split the log, one table per file", number)
        self.layout, self.footer = layout, False
        return True

    def _take_facts(self, line: str) -> None:
        if match := _DEVICE.search(line):
            rank, host, device, gpu = match.groups()
            # Where every process prints its own table, rank 0 appears once per process: the first counts.
            self.devices.setdefault(int(rank), Device(int(rank), host, int(device), gpu.split(" NCCL ")[0].strip()))
        if match := _SWEEP.search(line):
            self.sweep = (int(match[1]), int(match[2]), match[3] == "factor")
        if match := _VERSION.search(line):
            self.version = match[1]
        elif (match := _LIBRARY.search(line)) and not self.version:
            self.version = _version_of(int(match[1]))
        if self.collective is None and (match := _PROGRAM.search(line)):
            self.collective = {"sendrecv": "send_recv", "alltoall": "all_to_all"}.get(match[1], match[1])

    def _take_row(self, number: int, line: str) -> None:
        words = line.replace("|", " ").split(maxsplit=_MAX_WORDS)
        head = self._head(number, words)
        if head is not None:
            self._close_row()
            place, fields = head
            self.open = _Row(number, fields)
            words = words[place:]
        elif len(words) > 1 and _INTEGER.match(words[0]) and _INTEGER.match(words[1]) and self.open is None:
            raise TraceError(self.path, f"not a row of the table: {_shown(line)}; the log is cut or damaged", number)
        if self.open is not None:
            self._take_values(words)
        else:
            self._take_facts(line)

    def _head(self, number: int, words: Sequence[str]) -> tuple[int, tuple[int, int, str, str, int]] | None:
        """First columns of a row and the place of the next word, where `words` hold the start of a row."""
        layout = self.layout
        for place in range(2, len(words)):
            if layout and _DATATYPE.match(words[place]) and all(map(_INTEGER.match, words[place - 2 : place])):
                break
        else:
            return None
        size, count, datatype, *rest = words[place - 2 :]
        place += 1
        redop, root = "none", str(NONE)
        for wanted, pattern in ((layout.redop, _REDOP), (layout.root, _ROOT)):
            if not wanted:
                continue
            match = pattern.match(rest.pop(0)) if rest else None
            if match is None:
                raise TraceError(self.path, "the row is cut or damaged; give the whole log", number)
            place += 1
            redop, root = (match[0], root) if pattern is _REDOP else (redop, match[0])
        return place, (int(size), int(count), datatype, redop, int(root))

    def _take_values(self, words: Sequence[str]) -> None:
        row, layout = self.open, self.layout
        if row is None or layout is None:
            return
        for word in words:
            match = _VALUE.match(word)
            if match is None:
                break
            row.values.append(match[0])
            if len(row.values) == 2 * layout.side:
                self._close_row()
                return
            if match.end() < len(word):
                break

    def _close_row(self) -> None:
        """Take the open row into the table; a `TraceError` if its values are too few or no measurement."""
        row, layout = self.open, self.layout
        if row is None or layout is None:
            return
        if len(row.values) < 2 * layout.side:
            msg = f"the row of {row.head[0]} bytes is cut or damaged; give the whole log"
            raise TraceError(self.path, msg, row.line)
        sides = [row.values[first : first + len(_MEASURED)] for first in (0, layout.side)]
        problem = _damage(sides) if row.head[0] else ""  # of 0 bytes nothing is asked
        if problem:
            msg = f"the row of {row.head[0]} bytes {problem}; give the log of a finished run"
            raise TraceError(self.path, msg, row.line)
        self.rows.append((*row.head, *_base_units(sides[0]), *_base_units(sides[1])))
        self.open = None

    def _check_sweep(self) -> None:
        """Refuse a log without footer that stops before the size its first lines announce."""
        if self.footer or self.sweep is None:
            return
        limit, step, by_factor = self.sweep
        size = int(self.rows[-1][0])
        if (
            step > 0
            and size > 0
            and (size * step if by_factor else size + step) <= limit
            and not (by_factor and step == 1)
        ):
            msg = (
                f"the table stops at {size} bytes but was to go to {limit}: the log is cut; give the whole log, "
                "or take out its line with maxBytes to use the rows that are there"
            )
            raise TraceError(self.path, msg, self.last)


def _version_of(code: int) -> str:
    """Version from ``NCCL_VERSION_CODE``: ``22907`` is 2.29.7; up to 2.8 the code had four digits."""
    if code < 10_000:  # noqa: PLR2004  2804 is 2.8.4
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def _damage(sides: Sequence[Sequence[str]]) -> str:
    """Say what no run prints of the two sides of a row: such as a time of 0; empty if all is well."""
    for side in sides:
        for name, printed, value in zip(_MEASURED, side, _base_units(side), strict=True):
            # the bandwidth of a slow run is rounded to 0.00
            measured = math.isfinite(value) and (value > 0 or name != "time")
            if not measured and printed != _NOT_MEASURED:
                return f"has {name} {printed}"
    return "has no time" if all(side[0] == _NOT_MEASURED for side in sides) else ""


def _base_units(side: Sequence[str]) -> tuple[float, float, float]:
    """Time in seconds and both bandwidths in bytes/s; NaN if nothing was measured."""
    time, algbw, busbw = (math.nan if printed == _NOT_MEASURED else float(printed) for printed in side)
    return time / US_PER_S, algbw * BYTES_PER_GB, busbw * BYTES_PER_GB


def _shown(line: str) -> str:
    """Quote a line in an error: short and printable."""
    text = line.strip()
    return repr(text if len(text) <= 60 else f"{text[:57]}...")  # noqa: PLR2004  width of a quotation
