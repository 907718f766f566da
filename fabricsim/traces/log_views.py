"""What files that are no traces say: tables of nccl-tests and OSU, training logs, and the set-up that NCCL logs."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from fabricsim.files.text import LineReader
from fabricsim.traces import megatron_log, nccl_tests, osu
from fabricsim.traces.megatron_log import MegatronSummary
from fabricsim.traces.nccl_log import reader as nccl_log
from fabricsim.traces.nccl_log.collect import Collector
from fabricsim.traces.nccl_summary import NcclSummary, summarise_nccl
from fabricsim.traces.nccl_tests import NcclTestsTable
from fabricsim.traces.osu import OsuTable


class TableRow(TypedDict):
    """A size, and what was measured of it: seconds and bytes/s; ``None`` if nothing was."""

    size_bytes: int
    time_s: float | None
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None


class TableSummary(TypedDict):
    """A table of a benchmark; of nccl-tests the out-of-place columns."""

    test: str
    version: str
    ranks: int | None
    hosts: int | None
    gpus: list[str]
    rows: list[TableRow]


class LogSummary(TypedDict):
    """What one file says: `views` are those that found something, `problems` say why others did not."""

    source: str
    views: list[str]
    problems: list[str]
    tables: list[TableSummary]
    nccl: NcclSummary | None
    megatron: MegatronSummary | None


class View(NamedTuple):
    """A form of logs that are no traces.

    `description`: what writes them.
    `recognises`: whether a file that begins so is one.
    `collector`: makes what takes its lines; given the name for messages.
    """

    description: str
    recognises: Callable[[bytes], bool]
    collector: Callable[[str], LineReader[Any]]


_OSU = re.compile(rb"^[^\n]{0,40}# OSU ", re.MULTILINE)

VIEWS: dict[str, View] = {
    "nccl_tests": View(
        "tables of nccl-tests and rccl-tests",
        lambda head: any(
            b"# nThread " in line or (b"algbw" in line and b"count" in line) for line in head.splitlines()
        ),
        lambda name: nccl_tests.NcclTestsReader(Path(name)),
    ),
    "osu": View(
        "tables of the OSU micro-benchmarks",
        lambda head: _OSU.search(head) is not None,
        lambda name: osu.OsuReader(Path(name)),
    ),
    "megatron": View(
        "training logs of Megatron-LM: times of iterations and timers",
        megatron_log.recognises,
        megatron_log.IterationCollector,
    ),
    "nccl_log": View(
        "NCCL_DEBUG=INFO logs: rings, trees, channels and networks",
        lambda head: nccl_log.recognises("", head),
        Collector,
    ),
}
"""All views by name; one file may have several, as a log of nccl-tests with NCCL_DEBUG=INFO."""


def summarise_logs(source: str, found: dict[str, Any], problems: list[str]) -> LogSummary:
    """Put together what the views of one file found."""
    tables = [_nccl_tests(found["nccl_tests"])] if "nccl_tests" in found else []
    if "osu" in found:
        tables.append(_osu(found["osu"]))
    log = found.get("nccl_log")
    return {
        "source": source,
        "views": list(found),
        "problems": problems,
        "tables": tables,
        "nccl": None if log is None else summarise_nccl(log),
        "megatron": found.get("megatron"),
    }


def _nccl_tests(table: NcclTestsTable) -> TableSummary:
    columns = ("size", "time_out_s", "algbw_out", "busbw_out")
    return {
        "test": table.collective or "",
        "version": table.version,
        "ranks": table.ranks or None,
        "hosts": table.hosts or None,
        "gpus": sorted({device.gpu for device in table.devices}),
        "rows": [_row(*row) for row in table.rows[list(columns)].tolist()],
    }


def _osu(table: OsuTable) -> TableSummary:
    rows = [(size, latency, bandwidth, math.nan) for size, latency, bandwidth in table.rows.tolist()]
    return {
        "test": table.test,
        "version": table.version,
        "ranks": None,
        "hosts": None,
        "gpus": [],
        "rows": [_row(*row) for row in rows],
    }


def _row(size: int, *measured: float) -> TableRow:
    time, algorithm, bus = (value if math.isfinite(value) else None for value in measured)
    return {"size_bytes": size, "time_s": time, "algorithm_bandwidth": algorithm, "bus_bandwidth": bus}
