"""Measured tables that a preset is calibrated on, of whatever form, as sizes and times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabricsim import measured
from fabricsim.errors import InputError, TraceError
from fabricsim.files.text import read_lines
from fabricsim.measured import MeasuredTable
from fabricsim.results.summary import bus_factor
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.traces import nccl_tests, osu
from fabricsim.traces.nccl_tests import NcclTestsTable

Kind = Literal["collective", "latency", "bandwidth"]
"""What the times are of: a collective over all ranks, one MPI message, or a window of them."""

_HEAD = 100_000  # lines after which a log must have said what it is: NCCL's own lines come before the table
_ROUNDED = 0.0051e9  # bytes/s by which a bandwidth may be off that is printed with two decimals of a GB/s
_ENOUGH = 3  # rows of a table below which nothing can be fitted or held out


@dataclass(frozen=True)
class Measurement:
    """One measured table.

    `name`: the file, or the name of a table that ships with fabricsim.
    `kind`: see `Kind`.
    `test`: of the collective, such as ``"all_reduce"``; ``"latency"`` or ``"bandwidth"`` of messages.
    `sizes`: bytes, ascending and distinct, shape ``(n,)``.
    `seconds`: out of place, as printed, shape ``(n,)``: what predictions are held against. Of a bandwidth test the time
        of a message at the printed rate.
    `undisturbed`: the lesser of the times out of and in place, shape ``(n,)``: what parameters are fitted to. Other
        traffic and the operating system only ever add time.
    `ranks`, `hosts`: of the run; 0 if the table does not say.
    `nccl`: version; empty if the table does not say.
    """

    name: str
    kind: Kind
    test: str
    sizes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    undisturbed: NDArray[np.float64]
    ranks: int = 0
    hosts: int = 0
    nccl: str = ""

    def only(self, chosen: NDArray[np.bool_]) -> Measurement:
        """Keep the rows for which `chosen`, shape ``(n,)``, is true."""
        return replace(
            self, sizes=self.sizes[chosen], seconds=self.seconds[chosen], undisturbed=self.undisturbed[chosen]
        )


def read(name: str, test: str | None = None) -> Measurement:
    """Read a log, or a measured table that ships.

    `name`: a log of nccl-tests, alone or among lines of ``NCCL_DEBUG``; a table of the OSU latency or bandwidth test; a
        log of NCCL's inspector, or a folder of them; or one of `fabricsim.measured.names`.
    `test`: collective of a log that does not name it.
    Raises InputError if there is no such file, it holds no table, or the table has too few rows.
    """
    path = Path(name)
    shipped = not path.exists() and name in measured.names()
    if shipped:
        found = _shipped(measured.load(name))
    elif path.is_dir() or _is_json(path):
        found = _inspected(path, test)
    else:
        found = _reader(path)(path)
    if found.kind == "collective":
        found = _of_collective(found, test)
    if len(found.sizes) < _ENOUGH:
        raise InputError(f"{name}: has {len(found.sizes)} rows that move bytes; a calibration needs {_ENOUGH} or more")
    return found


def between(found: Measurement, smallest: int, largest: int) -> Measurement:
    """Keep the sizes from `smallest` to `largest`, bytes. Raises InputError if fewer than three are left."""
    kept = found.only((found.sizes >= smallest) & (found.sizes <= largest))
    if len(kept.sizes) < _ENOUGH:
        raise InputError(f"{found.name}: has {len(kept.sizes)} rows from --min-bytes to --max-bytes; widen them")
    return kept


def split(found: Measurement, hold_out: str) -> tuple[Measurement, Measurement]:
    """Hold rows out of a fit.

    `hold_out`: ``"half"`` holds out every second size from the second on, ``"other-half"`` from the first on; a whole
        number is the seed of a random half.
    Returns: what is fitted, and what is held out.
    Raises InputError if `hold_out` is something else.
    """
    count = len(found.sizes)
    if hold_out in ("half", "other-half"):
        out = np.arange(count) % 2 == (hold_out == "half")
    elif hold_out.isascii() and hold_out.isdigit() and len(hold_out) < 10:  # noqa: PLR2004  seeds of 32 bits at most
        out = np.zeros(count, bool)
        out[np.random.default_rng(int(hold_out)).permutation(count)[: count // 2]] = True
    else:
        hint = did_you_mean(hold_out, ("half", "other-half"), "use half, other-half, or a number to draw a half by")
        raise InputError(f"--hold-out {hold_out!r}: {hint}")
    return found.only(~out), found.only(out)


def _reader(path: Path) -> Callable[[Path], Measurement]:
    """Find out what a file is from its text."""
    for number, line in read_lines(path):
        if ("OSU " in line and "# " in line) or line.lstrip().startswith("# Size"):
            return _osu
        if "algbw" in line and "count" in line:
            return _nccl_tests
        if number > _HEAD:
            break
    raise TraceError(path, "no table in it; give the output of a run such as all_reduce_perf, osu_latency or osu_bw")


def _is_json(path: Path) -> bool:
    return next(read_lines(path))[1].lstrip().startswith(("{", "["))


def _inspected(path: Path, test: str | None) -> Measurement:
    from fabricsim.calibration.inspected import times_by_size  # noqa: PLC0415  imports the engine

    name, sizes, seconds, ranks, hosts = times_by_size(path, test)
    return _measurement(str(path), name, np.array(sizes), [np.array(seconds)], ranks=ranks, hosts=hosts)


def _nccl_tests(path: Path) -> Measurement:
    log = nccl_tests.read(path)
    rows = log.rows
    return _measurement(
        str(path),
        log.collective or _told_by_bus_factor(log),
        rows["size"],
        [rows["time_out_s"], rows["time_in_s"]],
        ranks=log.ranks,
        hosts=log.hosts,
        nccl=log.version,
    )


def _osu(path: Path) -> Measurement:
    table = osu.read(path)
    if (table.test and not any(word in table.test for word in ("Latency", "Bandwidth"))) or "MPI All" in table.test:
        msg = f"is a table of the OSU {table.test} test; only osu_latency and osu_bw can be calibrated on"
        raise TraceError(path, msg)
    if table.quantity == "latency":
        return _measurement(str(path), "latency", table.rows["size"], [table.rows["latency_s"]], kind="latency")
    seconds = table.rows["size"] / table.rows["bandwidth"]
    return _measurement(str(path), "bandwidth", table.rows["size"], [seconds], kind="bandwidth")


def _shipped(table: MeasuredTable) -> Measurement:
    names, said = table.rows.dtype.names or (), table.conditions
    if {"size", "latency_s"} <= set(names) and str(said.get("test")) == "osu_latency":
        return _measurement(table.name, "latency", table.rows["size"], [table.rows["latency_s"]], kind="latency")
    if not {"size", "time_out_s"} <= set(names) or "gpu" in names:
        msg = f"the measured table {table.name!r} is of no collective or message by size; see `fabricsim validate nccl`"
        raise InputError(msg)
    times = [table.rows[side] for side in ("time_out_s", "time_in_s") if side in names]
    return _measurement(
        table.name,
        str(said["collective"]),
        table.rows["size"],
        times,
        ranks=table.ranks,
        hosts=int(said.get("hosts", 0)),
        nccl=str(said.get("nccl", "")),
    )


def _told_by_bus_factor(log: NcclTestsTable) -> str:
    """Name the collective with the table's ratio of bus to algorithm bandwidth; empty if none or several have it."""
    if log.ranks < 2:  # noqa: PLR2004  one rank moves nothing
        return ""
    rows = log.rows[np.isfinite(log.rows["algbw_out"])]
    reduces = bool((rows["redop"] != "none").all())
    alike = []
    for name in ("all_reduce", "reduce_scatter", "reduce") if reduces else ("all_gather", "broadcast"):
        factor = bus_factor(name, log.ranks)
        off = np.abs(rows["busbw_out"] - factor * rows["algbw_out"])
        if (off <= _ROUNDED * (1 + factor)).all():
            alike.append(name)
    return alike[0] if len(alike) == 1 else ""


def _measurement(  # noqa: PLR0913  the columns, and by name what the run was
    name: str,
    test: str,
    sizes: NDArray[np.int64],
    sides: Sequence[NDArray[np.float64]],
    *,
    kind: Kind = "collective",
    ranks: int = 0,
    hosts: int = 0,
    nccl: str = "",
) -> Measurement:
    """Put rows in order; a size that was measured several times counts with the median."""
    first = sides[0] if not np.isnan(sides[0]).all() else sides[-1]
    least = np.fmin.reduce(np.array(sides))
    rows: dict[int, list[tuple[float, float]]] = {}
    for size, printed, lesser in zip(sizes.tolist(), first.tolist(), least.tolist(), strict=True):
        if size > 0 and lesser > 0 and math.isfinite(lesser):
            rows.setdefault(size, []).append((printed if math.isfinite(printed) else lesser, lesser))
    ordered = sorted(rows)
    middle = np.array([np.median(np.array(rows[size]), axis=0) for size in ordered]).reshape(-1, 2)
    return Measurement(
        name, kind, test, np.array(ordered, np.int64), middle[:, 0], middle[:, 1], ranks=ranks, hosts=hosts, nccl=nccl
    )


def _of_collective(found: Measurement, test: str | None) -> Measurement:
    from fabricsim.run.bench import COLLECTIVES  # noqa: PLC0415  imports the engine

    if found.test and test is not None and test != found.test:
        raise InputError(f"{found.name}: is of {found.test}, and --test says {test}")
    name = found.test or test
    if name is None:
        # A table names its collective only where the command stands in the log; columns alone do not tell.
        raise InputError(f"{found.name}: does not say which collective it is of; say so with --test all_reduce")
    if name not in COLLECTIVES:
        raise InputError(f"{found.name}: is of {name}; there are {', '.join(COLLECTIVES)}")
    return replace(found, test=name)
