"""Measured figures that ship with fabricsim, each with its source.

A TOML file per table in this folder: ``title``, ``source``, ``licence``, ``certainty``,
``columns`` (name and unit), ``rows`` and ``conditions``. Numbers stand in the file as their source
prints them; `load` turns them into base units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError
from fabricsim.files.packaged import tables
from fabricsim.scenario.suggest import did_you_mean

Certainty = Literal["captured", "published", "secondary", "inferred"]
"""How sure a figure is.

``captured``: read from the log of the run. ``published``: read in the study itself. ``secondary``:
others quote it. ``inferred``: derived from other figures.
"""

_PER_BASE_UNIT = {"us": 1e6, "ms": 1e3, "s": 1.0}
_BASE_UNITS = {"GB/s": 1e9, "MB/s": 1e6}
_WHOLE = {"B", "1"}


@dataclass(frozen=True)
class MeasuredTable:
    """One table of measured figures.

    `name`: its name, as `load` takes it.
    `title`: what was measured.
    `source`: of the figures.
    `licence`: licence of the source.
    `certainty`: see `Certainty`.
    `conditions`: machine, software and settings, as far as the source says them.
    `rows`: structured array, one record per row: sizes in bytes and counts as ``int64``, times in seconds and rates in
        bytes/s as ``float64``, text as strings.
    """

    name: str
    title: str
    source: str
    licence: str
    certainty: Certainty
    conditions: Mapping[str, str | int | float]
    rows: NDArray[np.void]

    @property
    def ranks(self) -> int:
        """GPUs that took part, as its conditions say it; 0 if they do not."""
        said = self.conditions
        return int(said.get("gpus", 0)) or int(said.get("hosts", 0)) * int(said.get("gpus_per_host", 0))


@dataclass(frozen=True)
class Figure:
    """One measured figure, in the unit that its source prints.

    `key`: short name, unique in its table.
    `quantity`: what was measured.
    `unit`: such as ``"Gb/s"``, ``"%"``, or ``"x"`` for a ratio.
    `value`: the figure.
    `source`: its exact place.
    `certainty`: see `Certainty`.
    """

    key: str
    quantity: str
    unit: str
    value: float
    source: str
    certainty: Certainty


def names() -> tuple[str, ...]:
    """Names of the tables that ship, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


@cache
def load(name: str) -> MeasuredTable:
    """Load a table by name. Raises InputError if there is no such table."""
    known = names()
    if name not in known:
        raise InputError(f"no measured table {name!r}; {did_you_mean(name, known)}")
    return _table(name, tables(__name__, f"{name}.toml"))


def figures(name: str) -> dict[str, Figure]:
    """Headline figures of a study, by key.

    `name`: one of `names` whose columns are key, quantity, unit, value and source, such as ``"dai2024"``.
    Raises InputError if there is no such table, or it is one of rows, not of figures.
    """
    table = load(name)
    if "key" not in (table.rows.dtype.names or ()):
        raise InputError(f"the measured table {name!r} holds rows, not headline figures; use load({name!r})")
    return {
        str(row["key"]): Figure(
            str(row["key"]),
            str(row["quantity"]),
            str(row["unit"]),
            float(row["value"]),
            str(row["source"]),
            table.certainty,
        )
        for row in table.rows
    }


def _table(name: str, content: Mapping[str, Any]) -> MeasuredTable:
    certainty = content["certainty"]
    if certainty not in get_args(Certainty):
        msg = f"measured table {name!r}: certainty {certainty!r} is none of {', '.join(get_args(Certainty))}"
        raise InputError(msg)
    columns = content["columns"]
    values = [
        _column(column.get("unit", ""), cells)
        for column, cells in zip(columns, zip(*content["rows"], strict=True), strict=True)
    ]
    rows = np.empty(
        len(content["rows"]), [(column["name"], value.dtype) for column, value in zip(columns, values, strict=True)]
    )
    for column, value in zip(columns, values, strict=True):
        rows[column["name"]] = value
    rows.flags.writeable = False  # `load` hands the same array to every caller
    return MeasuredTable(
        name, content["title"], content["source"], content["licence"], certainty, content.get("conditions", {}), rows
    )


def _column(unit: str, cells: Sequence[Any]) -> NDArray[Any]:
    """Cells of one column in the base unit."""
    if unit in _WHOLE:
        return np.array(cells, np.int64)
    if unit in _PER_BASE_UNIT:
        return np.array(cells, np.float64) / _PER_BASE_UNIT[unit]
    if unit in _BASE_UNITS:
        return np.array(cells, np.float64) * _BASE_UNITS[unit]
    if unit:
        msg = f"unit {unit!r} of a measured column is none of {', '.join([*_WHOLE, *_PER_BASE_UNIT, *_BASE_UNITS])}"
        raise InputError(msg)
    return np.array(cells)
