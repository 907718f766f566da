"""The bench command: sizes, captured references, and tables in the form of nccl-tests and OSU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim import measured, provenance, units
from fabricsim.collectives.nccl.plan import NcclPlan
from fabricsim.errors import InputError
from fabricsim.measured import MeasuredTable
from fabricsim.report.nccl_table import BenchRow, render
from fabricsim.results.summary import bus_factor
from fabricsim.run.bench import TESTS, collective_times, devices, point_to_point_times
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.collectives import assumed
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.traces import nccl_tests, osu
from fabricsim.units import human_percent

_AS_LOGGED = {"sendrecv": "send_recv"}  # tests that readers of logs call otherwise
_LIBRARIES = {"t4": "nccl-2.6", "v100": "nccl-2.6", "rtx-2080": "nccl-2.6", "a100": "nccl-2.10", "mi": "rccl"}
"""Collectives by the beginning of a GPU's name: NCCL of 2020 for Volta and Turing, of 2021 for Ampere; later GPUs run
today's."""
LATENCY = "latency"
"""Name of the point-to-point test."""


@dataclass(frozen=True)
class CapturedTimes:
    """Captured times: seconds by size in bytes, and the file that they are from."""

    path: Path
    seconds: dict[int, float]
    ranks: int | None


def check_test(test: str) -> None:
    """Check the name of a test. Raises InputError if there is no such test."""
    known = (*TESTS, LATENCY)
    if test not in known:
        raise InputError(f"there is no test {test!r}; {did_you_mean(test, known)}")


def sizes(smallest: str, largest: str) -> list[int]:
    """Sizes from `smallest`, doubling, up to `largest`.

    Raises InputError if a size has no unit, is zero, or the first is above the last.
    """
    try:
        first, last = int(units.parse(smallest, units.BYTES)), int(units.parse(largest, units.BYTES))
    except ValueError as error:
        raise InputError(f"--min-bytes, --max-bytes: {error}") from error
    if first < 1:
        raise InputError(f"--min-bytes {smallest}: a transfer of 0 bytes moves nothing; start at 1B or more")
    if first > last:
        raise InputError(f"--min-bytes {smallest} is above --max-bytes {largest}; swap them")
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found


def read_reference(path: Path, test: str) -> CapturedTimes:
    """Read captured times to compare with: an OSU latency table, an nccl-tests log, or a measured table that ships.

    Raises InputError if the file cannot be read or holds another test.
    """
    if not path.exists() and str(path) in measured.names():
        return _shipped(path, measured.load(str(path)), test)
    if test == LATENCY:
        table = osu.read(path)
        if table.quantity != "latency":
            raise InputError(f"{path}: holds {table.quantity}, not latency; give the table of osu_latency")
        return CapturedTimes(path, _positive(table.rows["size"], table.rows["latency_s"]), None)
    log = nccl_tests.read(path)
    if log.collective is not None and log.collective != _AS_LOGGED.get(test, test):
        raise InputError(f"{path}: is a log of {log.collective}, not of {test}")
    return CapturedTimes(path, _positive(log.rows["size"], log.rows["time_out_s"]), log.ranks or None)


def _shipped(path: Path, table: MeasuredTable, test: str) -> CapturedTimes:
    said, columns = table.conditions, table.rows.dtype.names or ()
    seconds = "latency_s" if test == LATENCY else "time_out_s"
    found = LATENCY if said.get("test") == "osu_latency" else said.get("collective")
    if found != TESTS.get(test, LATENCY) or not {"size", seconds} <= set(columns):
        msg = f"the measured table {table.name!r} is {f'of {found}' if found else 'no table by size'}, not of {test}"
        raise InputError(msg)
    return CapturedTimes(path, _positive(table.rows["size"], table.rows[seconds]), table.ranks or None)


def _positive(column: object, seconds: object) -> dict[int, float]:
    # A row of 0 bytes is legal in a log, but nothing is moved that could be predicted.
    pairs = zip(column, seconds, strict=True)  # type: ignore[call-overload]
    return {int(size): float(value) for size, value in pairs if size > 0 and value > 0}


@dataclass(frozen=True)
class Bench:
    """A benchmark as it was simulated.

    `scenario`, `test`: what was run.
    `rows`: times by size.
    `reference`: what they are compared with, if anything; it has all sizes.
    """

    scenario: Scenario
    test: str
    rows: Sequence[BenchRow]
    reference: CapturedTimes | None

    def to_text(self) -> str:
        """Log in the form of nccl-tests or OSU, with what is found as comments."""
        if self.test == LATENCY:
            table = _osu_table(self)
        else:
            table = render(
                self.rows,
                collective=_AS_LOGGED.get(self.test, self.test),
                devices=devices(self.scenario),
                machine=_machine(self.scenario),
                version=provenance.version(),
            )
        table += "" if self.reference is None else _errors(self.rows, self.reference)
        return table + "".join(f"# {line}\n" for line in self._findings())

    def to_dict(self) -> dict[str, Any]:
        """One object in seconds and bytes, as ``--json`` prints it."""
        scenario, errors = self.scenario, self.errors()
        return {
            "test": self.test,
            "cluster": scenario.cluster.name,
            "transport": scenario.transport.name,
            "collectives": _library(scenario),
            "ranks": scenario.cluster.ranks,
            "version": provenance.version(),
            "rows": [self._row(row) for row in self.rows],
            "errors": None
            if errors is None
            else {"sizes": len(errors), "median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))},
            "findings": self._findings(),
        }

    def errors(self) -> NDArray[np.float64] | None:
        """Absolute relative error of each time, shape ``(n_rows,)``."""
        if self.reference is None:
            return None
        return np.abs([row.seconds / self.reference.seconds[row.size] - 1 for row in self.rows])

    def _row(self, row: BenchRow) -> dict[str, float]:
        said = {"size_bytes": row.size, "time_s": row.seconds}
        if self.test != LATENCY:
            algbw = row.size / row.seconds
            factor = bus_factor(self.test, self.scenario.cluster.ranks)
            said |= {"algbw_bytes_per_s": algbw, "busbw_bytes_per_s": algbw * factor}
        if self.reference is not None:
            value = self.reference.seconds[row.size]
            said |= {"measured_s": value, "error": row.seconds / value - 1}
        return said

    def _findings(self) -> list[str]:
        """Say which bus bandwidth to expect, how far from measurements it is, and what was assumed."""
        said = []
        if self.test != LATENCY:
            largest = self._row(max(self.rows, key=lambda row: row.size))
            rate, size = largest["busbw_bytes_per_s"] / 1e9, units.human_bytes(largest["size_bytes"])
            said.append(f"Bus bandwidth at {size}, the largest size: {rate:.4g} GB/s")
        if (errors := self.errors()) is not None:
            median, high = np.median(errors), np.quantile(errors, 0.9)
            count = f"{len(errors)} sizes" if len(errors) > 1 else "1 size"
            said.append(
                f"Error of the time at {count}: median {human_percent(median)}, 90th percentile {human_percent(high)}"
            )
        collective = TESTS.get(self.test, self.test)
        if missing := self._unavailable(collective):
            said.append(f"NCCL has no {missing} for {collective} over these ranks, and takes a ring")
        return said + [f"Assumed: {one}" for one in assumed(self.scenario.collectives.algorithm, {collective})]

    def _unavailable(self, collective: str) -> str | None:
        if self.scenario.collectives.nccl is None:
            return None
        return NcclPlan(self.scenario).unavailable(collective, tuple(range(self.scenario.cluster.ranks)))


def collectives_of(gpu: Gpu) -> str:
    """Name the collectives of the library that GPUs of a kind ran in their years."""
    return next((name for start, name in _LIBRARIES.items() if gpu.name.startswith(start)), "nccl")


def run(
    scenario: Scenario,
    test: str,
    wanted: list[int],
    reference: CapturedTimes | None,
    progress: Callable[[float], None] | None = None,
) -> Bench:
    """Run a test; with a reference, at its sizes.

    Raises InputError if the reference has no usable row or was captured on another number of ranks, the cluster has one
        rank, or a size does not fit into a GPU.
    """
    if reference is not None:
        wanted = _comparable(reference, scenario)
    if test == LATENCY:
        return Bench(scenario, test, point_to_point_times(scenario, wanted, progress), reference)
    if scenario.cluster.ranks < 2:  # noqa: PLR2004  who sends, and who receives
        msg = f"cluster {scenario.cluster.name} has one GPU, and {test} needs two; add --set cluster.hosts=2"
        raise InputError(msg)
    _check_fits(max(wanted), scenario)
    return Bench(scenario, test, collective_times(scenario, TESTS[test], wanted, progress), reference)


def _comparable(reference: CapturedTimes, scenario: Scenario) -> list[int]:
    """Sizes of a reference that this cluster can be compared at."""
    if not reference.seconds:
        raise InputError(f"{reference.path}: has no row that moves bytes; nothing can be compared")
    ranks, cluster = scenario.cluster.ranks, scenario.cluster.name
    if reference.ranks is not None and reference.ranks != ranks:
        raise InputError(f"{reference.path}: was captured on {reference.ranks} ranks, cluster {cluster} has {ranks}")
    return sorted(reference.seconds)


def _check_fits(largest: int, scenario: Scenario) -> None:
    gpu = scenario.cluster.gpu
    if largest > gpu.memory:
        have = f"the {units.human_bytes(gpu.memory)} of a {gpu.name}"
        raise InputError(f"a buffer of {units.human_bytes(largest)} does not fit into {have}; lower --max-bytes")


def _machine(scenario: Scenario) -> str:
    return f"cluster {scenario.cluster.name}, transport {scenario.transport.name}, {_library(scenario)}"


def _library(scenario: Scenario) -> str:
    version = scenario.collectives.nccl
    return "fixed channels and chunks" if version is None else f"NCCL {version}"


def _osu_table(bench: Bench) -> str:
    scenario = bench.scenario
    head = (
        f"# simulated by fabricsim {provenance.version()}: cluster {scenario.cluster.name},"
        f" transport {scenario.transport.name}, host memory to host memory\n"
        "# OSU MPI Latency Test\n"
        f"# {'Size':<20}{'Latency (us)':>14}\n"
    )
    return head + "".join(f"{row.size:<22}{row.seconds * 1e6:>14.2f}\n" for row in bench.rows)


def _errors(rows: Sequence[BenchRow], reference: CapturedTimes) -> str:
    lines = [
        f"# against {reference.path.name}:",
        f"# {'size (B)':>12} {'measured (us)':>14} {'predicted (us)':>15} {'error':>8}",
    ]
    for row in rows:
        value = reference.seconds[row.size]
        told = f"{(row.seconds - value) / value:+.1%}"  # without a blank, which parts columns
        lines.append(f"# {row.size:>12} {value * 1e6:>14.2f} {row.seconds * 1e6:>15.2f} {told:>8}")
    return "\n".join(lines) + "\n"
