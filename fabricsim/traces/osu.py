"""Tables that the OSU micro-benchmarks print: latency, bandwidth and collective tests.

Form after mvapich.cse.ohio-state.edu/benchmarks: two or more comment lines with the test and the
columns, then a size and one value or more per line.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.files.text import read_by, without_launcher_prefix

OSU_ROW = np.dtype(
    [
        ("size", np.int64),  # bytes; 0 is legal
        ("latency_s", np.float64),  # NaN in a bandwidth test
        ("bandwidth", np.float64),  # bytes/s; NaN in a latency test
    ]
)
"""A row of a table."""

US_PER_S = 1e6
BYTES_PER_MB = 1e6

_TITLE = re.compile(r"#\s*OSU\s+(\S.{0,120}?)\s+[Tt]est\s+v(\d[\w.]{0,20})")
_COLUMNS = re.compile(r"#\s*Size\s+(?:Avg\s+)?(Latency|Bandwidth|MB/s)\s*(\((?:us|MB/s)\))?")
_ROW = re.compile(r"\s*(\d{1,18})[ \t]+(\d{1,15})\.(\d{1,9})(?:[ \t]+\d{1,15}(?:\.\d{1,9})?)*\s*$")


@dataclass(frozen=True)
class OsuTable:
    """What one OSU test measured.

    `test`: its name, such as ``"MPI Latency"``; empty if the file has no title line.
    `version`: version of the benchmarks; empty if the file has no title line.
    `quantity`: ``"latency"`` or ``"bandwidth"``: the column of `rows` that is filled. Of several values on a line the
        first counts (the average, in collective tests).
    `rows`: ``OSU_ROW`` records in the order of the table, at least one.
    """

    test: str
    version: str
    quantity: str
    rows: NDArray[np.void]


def read(path: Path | str) -> OsuTable:
    """Read the one table of an OSU test's output.

    `path`: the output: plain text, gzip or xz, at most 256 MiB unpacked.
    Raises TraceError if the file cannot be read, holds no table or several, or a row is cut or damaged.
    """
    return read_by(OsuReader(Path(path)), path)


@dataclass
class OsuReader:
    """Takes the output line by line."""

    path: Path
    test: str = ""
    version: str = ""
    quantity: str = ""
    decimals: int | None = None
    rows: list[tuple[int, float]] = field(default_factory=list)

    def take(self, number: int, line: str) -> None:  # noqa: D102  as of a LineReader
        line = without_launcher_prefix(line)
        if line.lstrip().startswith("#"):
            self._take_comment(number, line)
        elif self.quantity and line.lstrip()[:1].isdigit():
            self._take_row(number, line)

    def finish(self) -> OsuTable:  # noqa: D102  as of a LineReader
        if not self.rows:
            what = "its table has no rows" if self.quantity else "no OSU table in it"
            raise TraceError(self.path, f"{what}; give the whole output of a test such as osu_latency")
        latency = self.quantity == "latency"
        rows = [
            (size, value / US_PER_S if latency else np.nan, np.nan if latency else value * BYTES_PER_MB)
            for size, value in self.rows
        ]
        records = np.array(rows, OSU_ROW)
        return OsuTable(self.test, self.version, self.quantity, records)

    def _take_comment(self, number: int, line: str) -> None:
        comment = line.strip()
        title, columns = _TITLE.match(comment), _COLUMNS.match(comment)
        if self.rows and (title or columns):
            raise TraceError(self.path, "a second table starts here; split the file, one table per file", number)
        if title:
            self.test, self.version = title[1], title[2]
        if columns:
            self.quantity = "latency" if columns[1] == "Latency" else "bandwidth"

    def _take_row(self, number: int, line: str) -> None:
        match = _ROW.match(line)
        # All values of a table have the same number of decimals, so a last number that was cut shows.
        if match is None or len(match[3]) != (self.decimals or len(match[3])):
            shown = repr(line.strip()[:60])
            raise TraceError(self.path, f"not a row of size and value: {shown}; the file is cut or damaged", number)
        value = float(f"{match[2]}.{match[3]}")
        if value <= 0:
            msg = f"the row of {match[1]} bytes has {self.quantity} {match[2]}.{match[3]}; give a finished run"
            raise TraceError(self.path, msg, number)
        self.decimals = len(match[3])
        self.rows.append((int(match[1]), value))
