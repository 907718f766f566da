"""The bench command: sizes, captured references, and tables in the form of nccl-tests and OSU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim import provenance, units
from fabricsim.errors import InputError
from fabricsim.report.nccl_table import render
from fabricsim.spec.collectives import assumed
from fabricsim.spec.suggest import did_you_mean
from fabricsim.traces import nccl_tests, osu
from fabricsim.validation.bench import COLLECTIVES, collective_times, devices, point_to_point_times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fabricsim.report.nccl_table import BenchRow
    from fabricsim.spec.scenario import Scenario

__all__ = ["COLLECTIVES", "LATENCY", "Reference", "check_test", "read_reference", "run", "sizes"]

LATENCY = "latency"
"""Name of the point-to-point test."""


@dataclass(frozen=True)
class Reference:
    """Captured times: seconds by size in bytes, and the file that they are from."""

    path: Path
    seconds: dict[int, float]
    ranks: int | None


def check_test(test: str) -> None:
    """Check the name of a test.

    Raises
    ------
    InputError
        Where there is no such test.
    """
    known = (*COLLECTIVES, LATENCY)
    if test not in known:
        hint = did_you_mean(test, known, f"there are {', '.join(known)}")
        msg = f"there is no test {test!r}; {hint}"
        raise InputError(msg)


def sizes(smallest: str, largest: str) -> list[int]:
    """Sizes from `smallest`, doubling, up to `largest`.

    Raises
    ------
    InputError
        Where a size has no unit, is zero, or the first is above the last.
    """
    try:
        first, last = int(units.parse(smallest, units.BYTES)), int(units.parse(largest, units.BYTES))
    except ValueError as error:
        msg = f"--min-bytes, --max-bytes: {error}"
        raise InputError(msg) from error
    if first < 1:
        msg = f"--min-bytes {smallest}: a transfer of 0 bytes moves nothing; start at 1B or more"
        raise InputError(msg)
    if first > last:
        msg = f"--min-bytes {smallest} is above --max-bytes {largest}; swap them"
        raise InputError(msg)
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found


def read_reference(path: Path, test: str) -> Reference:
    """Read captured times to compare with: an OSU latency table, or an nccl-tests log.

    Raises
    ------
    InputError
        Where the file cannot be read or holds another test.
    """
    if test == LATENCY:
        table = osu.read(path)
        if table.quantity != "latency":
            msg = f"{path}: holds {table.quantity}, not latency; give the table of osu_latency"
            raise InputError(msg)
        return Reference(path, _positive(table.rows["size"], table.rows["latency_s"]), None)
    log = nccl_tests.read(path)
    if log.collective is not None and log.collective != test:
        msg = f"{path}: is a log of {log.collective}, not of {test}"
        raise InputError(msg)
    return Reference(path, _positive(log.rows["size"], log.rows["time_out_s"]), log.ranks or None)


def _positive(column: object, seconds: object) -> dict[int, float]:
    # A row of 0 bytes is legal in a log, but nothing is moved that could be predicted.
    pairs = zip(column, seconds, strict=True)  # type: ignore[call-overload]
    return {int(size): float(value) for size, value in pairs if size > 0 and value > 0}


def run(
    scenario: Scenario,
    test: str,
    wanted: list[int],
    reference: Reference | None,
    progress: Callable[[float], None] | None = None,
) -> str:
    """Run a test and print its table; with a reference, at its sizes and with the error of each.

    Raises
    ------
    InputError
        Where the reference has no usable row or was captured on another number of ranks, or a size
        does not fit into a GPU.
    """
    if reference is not None:
        wanted = _comparable(reference, scenario)
    if test == LATENCY:
        rows = point_to_point_times(scenario, wanted, progress)
        table = _osu_table(scenario, rows)
    else:
        _check_fits(max(wanted), scenario)
        rows = collective_times(scenario, test, wanted, progress)
        table = render(
            rows,
            collective=test,
            devices=devices(scenario),
            cluster=scenario.cluster.name,
            transport=scenario.transport.name,
            version=provenance.version(),
        )
        table += "".join(f"# Assumed: {one}\n" for one in assumed(scenario.collectives.algorithm, {test}))
    return table if reference is None else table + _errors(rows, reference)


def _comparable(reference: Reference, scenario: Scenario) -> list[int]:
    """Sizes of a reference that this cluster can be compared at."""
    if not reference.seconds:
        msg = f"{reference.path}: has no row that moves bytes; nothing can be compared"
        raise InputError(msg)
    ranks, cluster = scenario.cluster.ranks, scenario.cluster.name
    if reference.ranks is not None and reference.ranks != ranks:
        msg = f"{reference.path}: was captured on {reference.ranks} ranks, cluster {cluster} has {ranks}"
        raise InputError(msg)
    return sorted(reference.seconds)


def _check_fits(largest: int, scenario: Scenario) -> None:
    gpu = scenario.cluster.gpu
    if largest > gpu.memory:
        have = f"the {units.human_bytes(gpu.memory)} of a {gpu.name}"
        msg = f"a buffer of {units.human_bytes(largest)} does not fit into {have}; lower --max-bytes"
        raise InputError(msg)


def _osu_table(scenario: Scenario, rows: list[BenchRow]) -> str:
    head = (
        f"# simulated by fabricsim {provenance.version()}: cluster {scenario.cluster.name},"
        f" transport {scenario.transport.name}, host memory to host memory\n"
        "# OSU MPI Latency Test\n"
        f"# {'Size':<20}{'Latency (us)':>14}\n"
    )
    return head + "".join(f"{row.size:<22}{row.seconds * 1e6:>14.2f}\n" for row in rows)


def _errors(rows: list[BenchRow], reference: Reference) -> str:
    lines = [
        f"# against {reference.path.name}:",
        f"# {'size (B)':>12} {'measured (us)':>14} {'predicted (us)':>15} {'error':>8}",
    ]
    for row in rows:
        value = reference.seconds[row.size]
        error = (row.seconds - value) / value
        lines.append(f"# {row.size:>12} {value * 1e6:>14.2f} {row.seconds * 1e6:>15.2f} {error:>+8.1%}")
    return "\n".join(lines) + "\n"
