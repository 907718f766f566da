"""A calibration from measured tables to estimates, warnings and errors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricsim.calibration.fit import Estimate, Fit, fit
from fabricsim.calibration.measurements import Measurement, split
from fabricsim.calibration.parameters import of_scenario
from fabricsim.calibration.simulated import Simulated, described, ways
from fabricsim.errors import InputError
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.scenario.load import load
from fabricsim.units import human_bytes

_FIT_SHARE = 0.95  # of the whole work, for progress: the rest is the rows held out
_WINDOWED_FROM = 2**16
"""Bytes from which rows of a bandwidth test count: how fast messages can be posted, which limits smaller ones, is in no
parameter."""
_FEW = 3  # rows below which the parameters of a protocol rest on hardly more than themselves
_SMALL = 2**16  # bytes up to which a message takes longer to hand over than to send, on any network of 10 Gb/s and more


@dataclass(frozen=True)
class Compared:
    """Rows of one table beside their predictions.

    `measurement`: the rows.
    `predicted`: seconds, shape ``(n,)``.
    `held_out`: whether the rows were kept from the fit.
    """

    measurement: Measurement
    predicted: NDArray[np.float64]
    held_out: bool = False

    @property
    def errors(self) -> NDArray[np.float64]:
        """Relative errors against the undisturbed times, shape ``(n,)``."""
        return self.predicted / self.measurement.undisturbed - 1.0

    @property
    def errors_out_of_place(self) -> NDArray[np.float64]:
        """Relative errors against the times out of place, shape ``(n,)``."""
        return self.predicted / self.measurement.seconds - 1.0


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    `fit`: estimates of all parameters.
    `compared`: rows that were fitted, and those that were held out, by table.
    `warnings`: what the data cannot tell, one sentence each.
    """

    fit: Fit
    compared: tuple[Compared, ...]
    warnings: tuple[str, ...]

    def rows(self, *, held_out: bool) -> list[Compared]:
        """Tables of the rows that were fitted, or held out."""
        return [each for each in self.compared if each.held_out == held_out]

    def validation(self) -> Validation:
        """Comparison of the rows held out, or if there are none of those fitted."""
        held = bool(self.rows(held_out=True))
        chosen = self.rows(held_out=held)
        rows = [row for each in chosen for row in _validation_rows(each)]
        return Validation("calibrate", rows, {"rows": "held out" if held else "fitted", **summary(chosen)})


def calibrate(
    base: str,
    settings: Sequence[str],
    tables: Sequence[Measurement],
    hold_out: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Fit a transport to measured tables.

    `base`, `settings`: scenario with the cluster, the transport to begin with, and the version of NCCL.
    `tables`: at least one.
    `hold_out`: as in `fabricsim.calibration.measurements.split`; None fits all rows.
    Raises InputError if the tables do not fit the scenario.
    """
    known = [described(base, settings, table) for table in tables]
    usable = [_usable(table) for table in tables]
    parts = [(table, None) if hold_out is None else split(table, hold_out) for table in usable]
    scenarios = [load(base, told).scenario for told in known]
    ran = {way for scenario, (fitted, _) in zip(scenarios, parts, strict=True) for way in ways(scenario, fitted)}
    parameters = of_scenario(scenarios[0], ran, {table.kind for table in tables})
    simulated = [Simulated(base, told, fitted, parameters) for told, (fitted, _) in zip(known, parts, strict=True)]
    times = np.concatenate([fitted.undisturbed for fitted, _ in parts])

    def predict(values: Sequence[float]) -> NDArray[np.float64]:
        return np.concatenate([each.times(values) for each in simulated])

    found = fit(parameters, times, predict, None if progress is None else lambda share: progress(share * _FIT_SHARE))
    compared = [Compared(each.measurement, each.times(found.values)) for each in simulated]
    for told, (_, held) in zip(known, parts, strict=True):
        if held is not None:
            there = Simulated(base, told, held, parameters)
            compared.append(Compared(held, there.times(found.values), held_out=True))
    if progress is not None:
        progress(1.0)
    rows = [(each.measurement, each.ways) for each in simulated]
    return Calibration(found, tuple(compared), tuple(_warnings(found, rows)))


def _usable(table: Measurement) -> Measurement:
    if table.kind != "bandwidth":
        return table
    kept = table.only(table.sizes >= _WINDOWED_FROM)
    if not len(kept.sizes):
        least = human_bytes(_WINDOWED_FROM)
        raise InputError(f"{table.name}: has no row of {least} or more; smaller ones tell how fast messages are posted")
    return kept


def summary(compared: Sequence[Compared]) -> dict[str, Any]:
    """Median, 90th percentile and largest of the absolute relative errors."""
    found: dict[str, Any] = {}
    for label, errors in (
        ("error of time", [each.errors for each in compared]),
        ("error of time out of place", [each.errors_out_of_place for each in compared]),
    ):
        size = np.abs(np.concatenate(errors))
        found[f"{label}, median"] = float(np.median(size))
        found[f"{label}, 90th percentile"] = float(np.percentile(size, 90))
        found[f"{label}, largest"] = float(size.max())
    return found


def _validation_rows(compared: Compared) -> list[ValidationRow]:
    table = compared.measurement
    columns = zip(table.sizes.tolist(), table.undisturbed.tolist(), compared.predicted.tolist(), strict=True)
    return [
        ValidationRow(f"{table.test}, {human_bytes(size)}", "us", real * 1e6, ours * 1e6, table.name, "captured")
        for size, real, ours in columns
    ]


def _warnings(found: Fit, rows: Sequence[tuple[Measurement, Sequence[str]]]) -> Iterator[str]:
    """Yield a sentence for each parameter that the data does not determine, and for each that it hardly does.

    `found`: the estimates.
    `rows`: tables that were fitted, and the algorithm and protocol of each row.
    """
    for estimate in found.estimates:
        sizes = _sizes(estimate, rows)
        if not estimate.determined:
            yield f"{estimate.parameter.name} is not determined: {_reason(estimate, sizes)}"
        elif estimate.at_bound:
            yield (
                f"{estimate.parameter.name} went to an end of its range: the data may lie beyond what the model does; "
                "see the cluster's description"
            )
        elif len(sizes) < _FEW:
            yield f"{estimate.parameter.name} rests on {len(sizes)} rows; give a table with more sizes"


def _sizes(estimate: Estimate, rows: Sequence[tuple[Measurement, Sequence[str]]]) -> list[int]:
    """Sizes of the rows that a parameter takes part in."""
    return sorted(
        int(size)
        for table, ways in rows
        for size, way in zip(table.sizes, ways, strict=True)
        if estimate.parameter.concerns(way)
    )


def _reason(estimate: Estimate, sizes: Sequence[int]) -> str:
    span = f"{len(sizes)} rows from {human_bytes(sizes[0])} to {human_bytes(sizes[-1])}"
    if estimate.parameter.role == "bandwidth":
        if sizes[-1] <= _SMALL:
            return f"the table ends at {human_bytes(sizes[-1])}, where latency decides; measure up to 256 MiB"
        return f"something else is narrower in all of the {span}"
    if len(sizes) < _FEW:
        return f"it has only {span}; measure more sizes"
    if estimate.parameter.role == "latency":
        return f"in the {span} other times are much longer; measure smaller sizes"
    ratio = float(np.log2(sizes[-1] / sizes[0]))
    return f"the {span}, {ratio:.0f} doublings, go with latency and bandwidth alone"
