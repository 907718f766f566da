"""Crafted result files: HDF5 that opens well, with columns and attributes that no run gives."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import h5py
import numpy as np

_NUMBERS = (-1, 0, 1, 2, 2**15, 2**20, 2**24, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 0.5, 1e18, 1e308,
            -1e300, float("nan"), float("inf"), float("-inf"))  # fmt: skip
_TYPES = ("i1", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f8", "?", "c16", "V4", "S3")
_SHORT = 5000
_MOST = 2**22
"""Entries of a column that is changed: another damage may have made it promise more than there is memory."""
_LENGTHS = (0, 1, 2, 3, 100, 5000, 50_000)
_TEXTS = (
    "",
    "x",
    "\0",
    "\x1b[31m",
    "µ" * 300,
    "a\nb",
    "x" * 70_000,
    "nan",
    "$\\frac$",
    "\u4e2d\ud7ff",
    "{}",
    "[]",
    "null",
    "{" * 2000,
)


def damage(chance: Random, sample: bytes) -> bytes:
    """Change one to three things of a file."""
    stream = io.BytesIO(sample)
    with h5py.File(stream, "r+") as file:
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            with suppress(RuntimeError):  # a link to itself, which an earlier damage made, cannot be followed
                chance.choice(_DAMAGES)(chance, file)
    return stream.getvalue()


def _columns(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visit(lambda name: found.append(name) if isinstance(file.get(name), h5py.Dataset) else None)
    return found


def _groups(file: h5py.File) -> list[str]:
    found = ["/"]
    file.visit(lambda name: found.append(name) if isinstance(file.get(name), h5py.Group) else None)
    return found


def _as(numbers: Any, kind: np.dtype[Any]) -> Any:  # noqa: ANN401  what NumPy makes an array of
    """Convert numbers to a type, as near as it has them."""
    if kind.kind == "O" or h5py.check_string_dtype(kind) is not None:
        return [str(number) for number in np.ravel(numbers)]
    with np.errstate(all="ignore"):
        if kind.kind in "iu":
            least, most = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
            finite = np.nan_to_num(np.asarray(numbers, "f8")).ravel()
            return np.array([min(max(int(number), least), most) for number in finite], kind)
        return np.asarray(numbers, "f8").astype(kind if kind.kind in "fbc" else "f8")


def _entries(chance: Random, file: h5py.File) -> None:
    """Put hostile numbers or texts into a column, in one place or all."""
    if not (columns := _columns(file)):
        return
    column = file[chance.choice(columns)]
    if not column.shape or not 0 < column.size < _MOST or isinstance(column.dtype.type, np.void):
        return
    text = h5py.check_string_dtype(column.dtype) is not None
    value = chance.choice(_TEXTS).replace("\0", "?") if text else _as([chance.choice(_NUMBERS)], column.dtype)[0]
    place = tuple(chance.randrange(length) for length in column.shape)
    column[... if chance.random() < 0.5 else place] = value


def _column(chance: Random, file: h5py.File) -> None:
    """Replace a whole column by one of another length, shape, type or kind."""
    if not (columns := _columns(file)):
        return
    name = chance.choice(columns)
    old = file[name]
    shape, kind = old.shape, old.dtype
    del file[name]
    other = chance.choice(("length", "length", "type", "shape", "text", "promise", "chunks", "link", "scalar", "gone"))
    length = chance.choice((*_LENGTHS, (shape or (1,))[0] + 1))
    if other == "length":
        file[name] = _filled(chance, kind, (length, *shape[1:]) if length <= _SHORT else (length,))
    elif other == "type":
        file.create_dataset(name, shape, chance.choice(_TYPES))
    elif other == "shape":
        file.create_dataset(name, chance.choice(((0, 0), (1, 1), (*shape, 1), (2**10, 2**10), shape * 2)), "f8")
    elif other == "text":
        file[name] = [chance.choice(_TEXTS).replace("\0", "?")] * (shape or (1,))[0]
    elif other == "promise":
        file.create_dataset(name, chance.choice(((2**40,), (2**20, 2**20), shape)), chance.choice(("i8", "f8", "i4")))
    elif other == "chunks":
        file.create_dataset(name, (2**30,), "i8", chunks=(2**20,), compression="gzip")
    elif other == "link":
        kinds = (h5py.SoftLink("/"), h5py.SoftLink("/ops/op"), h5py.ExternalLink("/etc/passwd", "/"))
        file[name] = chance.choice(kinds)
    elif other == "scalar":
        file[name] = chance.choice(_NUMBERS)


def _filled(chance: Random, kind: np.dtype[Any], shape: tuple[int, ...]) -> Any:  # noqa: ANN401  an array or texts
    """Make an array of a few hostile numbers, repeated; or counting."""
    count = int(np.prod(shape))
    numbers = np.resize([chance.choice(_NUMBERS) for _ in range(3)], count) if chance.random() < 0.5 else range(count)
    if kind.kind in "iufb" or h5py.check_string_dtype(kind) is not None:
        made = _as(list(numbers), kind)
        return made if isinstance(made, list) else made.reshape(shape)
    return np.zeros(shape, kind)


def _table(chance: Random, file: h5py.File) -> None:
    """Make all columns of a table longer or shorter alike, with what was in them."""
    name = chance.choice(_groups(file))
    group = file[name]
    columns = [each for each in group if isinstance(group.get(each), h5py.Dataset) and group[each].ndim == 1]
    lengths = {group[each].shape[0] for each in columns}
    if not columns or len(lengths) != 1 or not lengths.pop():
        return
    wanted = chance.choice(_LENGTHS)
    for each in columns:
        if group[each].size > _MOST:
            return
        content = group[each][()]
        kind = group[each].dtype
        del group[each]
        group.create_dataset(each, data=np.resize(content, wanted), dtype=kind)
    if chance.random() < 0.5 and wanted:
        _entries(chance, file)


def _attribute(chance: Random, file: h5py.File) -> None:
    """Replace an attribute."""
    attributes = file[chance.choice(_groups(file))].attrs or file.attrs
    name = chance.choice(sorted(attributes))
    old = attributes[name]
    if isinstance(old, str) and old.startswith("{") and chance.random() < 0.7:
        attributes[name] = _other_json(chance, old)
        return
    new: tuple[Any, ...] = (*_NUMBERS, *_TEXTS[:-1], b"bytes", [1, 2, 3], [], np.zeros((2, 2)), ["a", "b"], True)
    value = chance.choice(new)
    try:
        attributes[name] = value.replace("\0", "?")[:60_000] if isinstance(value, str) else value
    except (TypeError, ValueError, OSError):  # HDF5 holds no such attribute
        del attributes[name]


def _other_json(chance: Random, text: str) -> str:
    """Replace one value somewhere in an object."""
    try:
        told = json.loads(text)
    except ValueError:
        return "{"
    at = told
    while isinstance(at, (dict, list)) and at:
        key = chance.choice(sorted(at)) if isinstance(at, dict) else chance.randrange(len(at))
        if not isinstance(at[key], (dict, list)) or not at[key] or chance.random() < 0.2:
            at[key] = chance.choice(
                (None, True, -1, 0, 2**31, 2**70, 1e308, float("nan"), "", "x", "1e9GB", [], {}, [[]])
            )
            break
        at = at[key]
    return json.dumps(told)


_DAMAGES: tuple[Callable[[Random, h5py.File], None], ...] = (
    _entries, _entries, _entries, _column, _column, _table, _table, _attribute,
)  # fmt: skip
