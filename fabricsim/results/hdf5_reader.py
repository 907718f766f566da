"""A wary reader of result files: whatever is in the file, it gives values of the right type or one clear error."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fabricsim.errors import ResultError
from fabricsim.records.program import CLOCK_END, NONE
from fabricsim.results.columns import FORMAT, FORMAT_VERSION, TRAFFIC_FORMAT, Column, ColumnGroup
from fabricsim.results.hdf5_ends import ends

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import h5py
    from numpy.typing import NDArray


_WAY_OUT = "name a result that fabricsim run -o or traffic -o wrote"
_LARGEST = 1e100
_BLOCK = 256
"""Strings read at once: what they take is counted block by block."""


@contextmanager
def open_result(path: Path) -> Iterator[ResultFile]:
    """Open a result file for reading.

    Raises ResultError if it is missing, no result file, or turns out damaged while it is read.
    """
    import h5py  # noqa: PLC0415  a command that reads no result need not load HDF5

    if not path.is_file():
        problem = "is not a file" if path.exists() else "no such file"
        raise ResultError(f"{path}: {problem}; {_WAY_OUT}")
    if not ends(path):
        msg = f"{path}: damaged result file (the HDF5 library does not come to an end with it); run the scenario again"
        raise ResultError(msg)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ResultError(f"{path}: not a readable HDF5 file ({error}); {_WAY_OUT}") from error
    with file:
        try:
            yield ResultFile(path, file)
        except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
            # h5py answers damage inside the file with any of these
            raise ResultError(f"{path}: damaged result file ({error}); run the scenario again") from error
        except MemoryError as error:  # a file with holes promises more than it takes on the disk
            msg = f"{path}: needs more memory than there is ({error}); read it on a larger machine, or run it again"
            raise ResultError(msg) from error


class ResultFile:
    """An open result file.

    `path`: the file's name, for messages.
    `file`: the open file.
    Raises ResultError: from every method, with the file's name, where something is missing or not as `write` makes it.
    """

    def __init__(self, path: Path, file: h5py.File) -> None:
        self._path = path
        self._file = file
        self._text_left = self._size = path.stat().st_size
        self._check_format()

    def require(self, condition: bool, otherwise: str) -> None:  # noqa: FBT001  reads as an assertion
        """Refuse the file with the problem `otherwise` unless `condition` holds."""
        if not condition:
            self._refuse(otherwise)

    def require_within(self, values: NDArray[Any], least: int | NDArray[Any], beyond: int, otherwise: str) -> None:
        """Refuse the file with the problem `otherwise` unless all values are at least `least` and below `beyond`."""
        self.require(bool(np.all((values >= least) & (values < beyond))), otherwise)

    @property
    def is_traffic(self) -> bool:
        """Whether it holds a traffic run, not the run of a job."""
        return bool(self._file.attrs["format"] == TRAFFIC_FORMAT)

    def has_group(self, name: str) -> bool:
        """Tell whether the file has a group of that name."""
        import h5py  # noqa: PLC0415  loaded by `open_result` already

        there = isinstance(self._file.get(name, getlink=True), h5py.HardLink)
        return there and isinstance(self._file[name], h5py.Group)

    def has_column(self, group: str, name: str) -> bool:
        """Tell whether a group of the file has something of that name."""
        return self.has_group(group) and name in self._file[group]

    def has_attribute(self, name: str) -> bool:
        """Tell whether the file has a root attribute of that name."""
        return name in self._file.attrs

    def text_attribute(self, name: str, group: str = "/") -> str:
        """Give a string attribute of `group`."""
        value = self._attribute(name, group)
        self.require(isinstance(value, str), f"attribute {name} is not a text")
        return str(value)

    def integer_attribute(self, name: str, group: str = "/") -> int:
        """Give an integer attribute of `group`."""
        value = self._attribute(name, group)
        self.require(isinstance(value, np.integer), f"attribute {name} of {group} is not an integer")
        return int(value)

    def json_attribute(self, name: str) -> dict[str, Any]:
        """Give a root attribute that holds a JSON object."""
        try:
            value = json.loads(self.text_attribute(name))
        except (json.JSONDecodeError, RecursionError) as error:
            self._refuse(f"attribute {name} is not JSON ({error})")
        if not isinstance(value, dict):
            self._refuse(f"attribute {name} is not a JSON object")
        return value

    def numbers(self, group: str, column: Column, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """Give a numeric column in its own type; any one-dimensional shape if `shape` is None."""
        dataset = self._dataset(group, column, shape)
        kind = np.dtype(column.kind)
        self.require(dataset.dtype.kind == kind.kind, f"{dataset.name} holds {dataset.dtype}, not {kind}")
        values = np.asarray(dataset[()], kind)
        self.require(_possible(column, values), f"{dataset.name} holds values that no run has")
        return values

    def records(
        self, table: ColumnGroup, kind: np.dtype[np.void] | None = None, count: int | None = None
    ) -> NDArray[np.void]:
        """Give the columns of a table, all numbers, as records of its own type, or of `kind`, which has more fields.

        `count`: of its index, which is read if this is left out.
        """
        rows = len(self.numbers(table.group, table.index)) if count is None else count
        found = np.zeros(rows, table.record if kind is None else kind)
        for column in table.columns:
            found[column.name] = self.numbers(table.group, column, found.shape)
        return found

    def text(self, group: str, column: Column, count: int | None = None) -> tuple[str, ...]:
        """Give a column of strings."""
        import h5py  # noqa: PLC0415  loaded by `open_result` already

        dataset = self._dataset(group, column, None if count is None else (count,))
        self.require(h5py.check_string_dtype(dataset.dtype) is not None, f"{dataset.name} holds no text")
        strings: list[str] = []
        for start in range(0, dataset.shape[0], _BLOCK):
            block = dataset.asstr()[start : start + _BLOCK].tolist()
            # entries may share one string in a crafted file; an honest file stores each
            self._text_left -= sum(len(string) for string in block)
            self.require(self._text_left >= 0, f"{dataset.name} holds more text than the file")
            strings += block
        return tuple(strings)

    def values(self, group: str, column: Column, count: int) -> list[Any]:
        """Give `count` entries of a column as Python values."""
        if column.kind == "text":
            return list(self.text(group, column, count))
        values: list[Any] = self.numbers(group, column, (count,)).tolist()
        return values

    def _check_format(self) -> None:
        kind, version = self._file.attrs.get("format"), self._file.attrs.get("format_version")
        if not isinstance(kind, str) or kind not in {FORMAT, TRAFFIC_FORMAT} or not isinstance(version, np.integer):
            self._refuse(f"an HDF5 file, but not a result of fabricsim; {_WAY_OUT}")
        if version != FORMAT_VERSION:
            self._refuse(
                f"format version {version}, and this fabricsim reads {FORMAT_VERSION}; use the one that wrote it"
            )

    def _attribute(self, name: str, group: str) -> Any:  # noqa: ANN401  h5py gives what the file holds
        value = self._file[group].attrs.get(name)
        self.require(value is not None, f"attribute {name} of {group} is missing")
        return value

    def _dataset(self, group: str, column: Column, shape: tuple[int, ...] | None) -> h5py.Dataset:
        import h5py  # noqa: PLC0415  loaded by `open_result` already

        name = f"{group}/{column.name}"
        # links and external storage would lead the reader out of this file
        if not isinstance(self._file.get(name, getlink=True), h5py.HardLink):
            self._refuse(f"dataset {name} is missing")
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external or dataset.chunks:
            self._refuse(f"{name} is not a contiguous dataset")
        right = dataset.shape == shape if shape is not None else dataset.ndim == 1
        self.require(bool(right), f"{name} has the shape {dataset.shape}, not {shape}")
        held = min(dataset.id.get_storage_size(), self._size)
        self.require(held >= dataset.nbytes, f"{name} promises more than the file holds")
        return dataset

    def _refuse(self, problem: str) -> NoReturn:
        raise ResultError(f"{self._path}: {problem}")


def _possible(column: Column, values: NDArray[Any]) -> bool:
    """Whether times are those of a simulated clock, and others so large or small that sums and shares can be formed."""
    if column.units == "ps":
        return bool(np.all((values >= NONE) & (values <= CLOCK_END)))
    if column.kind == "f8":
        size = np.abs(values[np.isfinite(values) & (values != 0)])
        return bool(np.all((size > 1 / _LARGEST) & (size < _LARGEST)))
    return True
