"""Results as people hold them in Python: shown, saved, drawn, made into tables."""

from __future__ import annotations

import dataclasses
import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from fabricsim.errors import InputError
from fabricsim.results import result as record
from fabricsim.results import traffic
from fabricsim.results.hdf5 import image, write
from fabricsim.results.summary import Summary, summarise
from fabricsim.results.traffic import TrafficSummary, summarise_traffic
from fabricsim.scenario import given

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure
    from rich.console import RenderableType


T = TypeVar("T")
_COLUMNS = 100


class _Shown:
    """What results of all kinds can do."""

    def save(self, path: Path | str) -> None:
        """Write an HDF5 file, which `fabricsim.read` and xarray read.

        Raises
        ------
        ResultError
            If it cannot be written.
        """
        given.require(path, (str, Path), "path", "a file to write")
        write(cast("Result | TrafficResult", self), path)

    def to_xarray(self, table: str) -> xr.Dataset:
        """Give one table as it stands in the HDF5 file, with its index as coordinate and units as attributes.

        Parameters
        ----------
        table
            A group of the file, such as ``"ops"``, ``"calls"`` or ``"links"``.

        Raises
        ------
        InputError
            If there is no such table, or xarray or h5netcdf is not installed.
        """
        _require("xarray", "h5netcdf")
        import h5py  # noqa: PLC0415  quick only if it is not needed
        import xarray as xr  # noqa: PLC0415  not a requirement of fabricsim

        file = image(cast("Result | TrafficResult", self))
        with h5py.File(io.BytesIO(file)) as there:
            names = sorted(name for name, group in there.items() if isinstance(group, h5py.Group))
        if table not in names:
            raise InputError(f"the result has no table {table!r}; there are {', '.join(names)}")
        return xr.load_dataset(io.BytesIO(file), group=table, engine="h5netcdf")

    def to_dataframe(self, table: str) -> pd.DataFrame:
        """Give one table as pandas has them, a row for each entry; parameters and errors as of `to_xarray`.

        What has another index, such as the calls that cross links, is left out: pandas would pair each with each.
        """
        data = self.to_xarray(table)
        indices = [set(map(str, each.dims)) for each in data.data_vars.values()]
        index: set[str] = max(indices, key=len, default=set())  # the first of those
        return data[[name for name, each in data.data_vars.items() if set(map(str, each.dims)) <= index]].to_dataframe()

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, `wall_seconds` aside."""
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in _fields(self) if name != "wall_seconds")

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        """Show on one screen what took how long."""
        from fabricsim.report.console import ReportConsole  # noqa: PLC0415  rich is slow to import

        console = ReportConsole(width=_COLUMNS, file=io.StringIO(), emoji=False, highlight=False)
        console.print(self._text())
        return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]  # of a StringIO

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        from fabricsim.report.console import ReportConsole  # noqa: PLC0415  as above

        console = ReportConsole(width=_COLUMNS, file=io.StringIO(), emoji=False, highlight=False, record=True)
        console.print(self._text())
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _text(self) -> RenderableType:
        raise NotImplementedError


class Result(_Shown, record.RunRecord):
    """One run of a job, or of a captured one.

    `iteration` is how long all of it took, ps: of a captured job with several steps, all of these and what came before.
    ``summary()["iteration_time_s"]`` is their mean, as the command line says it.
    """

    def summary(self) -> Summary:
        """Summarise the run as its JSON has it: times in seconds, sizes in bytes.

        Results that are equal have equal summaries, but for ``wall_seconds``, which files do not hold.
        """
        return summarise(self)

    def plot(self, picture: str = "breakdown") -> Figure:
        """Draw a picture.

        Parameters
        ----------
        picture
            ``"breakdown"``, ``"timeline"``, ``"utilisation"``, or ``"matrix"`` if pairs of ranks were counted; as wide
            as both columns of a paper, unless within ``fabricsim.report.plots.paper(3.3)``, which takes inches.

        Raises
        ------
        InputError
            If there is no such picture.
        """
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        known: dict[str, Callable[[record.RunRecord], Figure]] = {
            "breakdown": plots.breakdown,
            "timeline": plots.timeline,
            "utilisation": plots.utilisation,
        }
        if (pairs := self.pairs) is not None:
            known["matrix"] = lambda result: plots.heat_map(pairs, result.name)
        return _chosen(known, picture)(self)

    def _text(self) -> RenderableType:
        from fabricsim.report.text import brief_text  # noqa: PLC0415  imports rich

        return brief_text(self.summary())


class TrafficResult(_Shown, traffic.TrafficRecord):
    """One run of a traffic matrix."""

    def summary(self) -> TrafficSummary:
        """Summarise the run as its JSON has it: times in seconds, sizes in bytes.

        Results that are equal have equal summaries, but for ``wall_seconds``, which files do not hold.
        """
        return summarise_traffic(self)

    def plot(self, picture: str = "fct") -> Figure:
        """Draw a picture: ``"fct"``, the completion times, or what was tapped.

        Raises
        ------
        InputError
            If there is no such picture.
        """
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        return _chosen(plots.of_traffic(self), picture)

    def _text(self) -> RenderableType:
        from fabricsim.report.traffic_text import traffic_text  # noqa: PLC0415  imports rich

        return traffic_text(self.summary())


def shown(result: record.RunRecord | traffic.TrafficRecord) -> Result | TrafficResult:
    """Make of a result that was read one that people hold."""
    kind = Result if isinstance(result, record.RunRecord) else TrafficResult
    return kind(**{name: getattr(result, name) for name in _fields(result)})


def _fields(result: object) -> list[str]:
    return [field.name for field in dataclasses.fields(result)]  # type: ignore[arg-type]  # each is a dataclass


def _same(one: object, other: object) -> bool:
    """Compare values that may be or hold arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)  # type: ignore[arg-type]  # whatever it is
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return all(_same(getattr(one, name), getattr(other, name)) for name in _fields(one))
    if isinstance(one, tuple | list) and type(one) is type(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _chosen(known: dict[str, T], name: str) -> T:
    if given.text(name, "picture") not in known:
        raise InputError(f"there is no picture {name!r} of this result; there are {', '.join(known)}")
    return known[name]


def _require(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            msg = f"{package} is not installed, and tables are given by it: pip install {' '.join(packages)}"
            raise InputError(msg)
