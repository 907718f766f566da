"""TOML as people read it: tables as text with a comment per key, and the comments of such text."""

import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, Self

import numpy as np

from fabricsim.errors import InputError
from fabricsim.scenario import given

_TABLE = re.compile(r"\s*\[([\w.-]+)\]\s*(?:#\s*(.*))?$")
_LINE = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"[^"]*"|'[^']*'|[^#"'])*(?:#\s*(.*\S))?\s*$""")

SET = "--set"
"""Where the mistakes of settings are said to be that people give on the command line."""
Comments = dict[tuple[str, ...], str]
"""Of tables and keys, by their path."""


class Commented(NamedTuple):
    """A table or key of a text: its line, counted from 1, its path, and its comment, empty if it has none."""

    line: int
    path: tuple[str, ...]
    comment: str


def comments(text: str) -> Iterator[Commented]:
    """Find the comment of each table and key: that on its line, or else on the lines above it.

    The comment that heads the file is that of none.
    """
    place: tuple[str, ...] = ()
    above: list[str] = []
    ended = True  # a comment stands for all keys that follow it at once
    title = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    head = sum(1 for _ in title)
    for number, line in enumerate(text.splitlines()[head:], head + 1):
        if line.lstrip().startswith("#"):
            above = [*([] if ended else above), line.lstrip("# ").rstrip()]
            ended = False
            continue
        ended = True
        if table := _TABLE.match(line):
            place, above = tuple(table[1].split(".")), []
            yield Commented(number, place, table[2] or "")
        elif key := _LINE.match(line):
            yield Commented(number, (*place, key[1]), key[2] or " ".join(above))
        else:
            above = []


def lines(
    tables: Mapping[str, Any], comments: Comments, width: int = 10**9, place: tuple[str, ...] = ()
) -> Iterator[str]:
    """Write tables as lines of TOML: a table's own keys, then the tables in it.

    `tables`: nested, of values that JSON has.
    `width`: columns beyond which a comment stands above its key, and entries of lists below one another.
    `place`: path of `tables`.
    """
    for key, value in tables.items():
        if not isinstance(value, dict):
            yield from _commented(_assigned((*place, key), value, width), comments.get((*place, key), ""), width)
    for key, value in tables.items():
        if isinstance(value, dict):
            inner = (*place, key)
            if not value or any(not isinstance(item, dict) for item in value.values()):
                yield ""
                yield from _commented([f"[{'.'.join(map(_key, inner))}]"], comments.get(inner, ""), width)
            yield from lines(value, comments, width, inner)


class Setting(str):
    """A text such as ``cluster.hosts=4``, as ``--set`` takes it, which knows where its mistakes are said to be."""

    __slots__ = ("place",)
    place: str

    def __new__(cls, text: str, place: str = SET) -> Self:
        """Take a text; `place` is such as ``--set`` or ``sweep.toml:7``."""
        made = super().__new__(cls, text)
        made.place = place
        return made


def settings(values: Mapping[str, Any], place: str = SET) -> list[str]:
    """Write values as ``key=value``, as ``--set`` takes them; `place` is where their mistakes are said to be.

    Raises InputError if a value is of no type that TOML has.
    """
    return [Setting(f"{key}={_value(value, (key,))}", place) for key, value in values.items()]


def texts(overrides: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Give overrides as ``--set`` takes them.

    Raises InputError if they are not several texts, or as `settings` does.
    """
    if isinstance(overrides, Mapping):
        return settings(overrides, "overrides")
    return [given.text(each, "overrides") for each in given.several(overrides, "overrides", least=0)]


def _key(key: object) -> str:
    """Write a key, quoted if TOML wants that."""
    return str(key) if re.fullmatch(r"[\w-]+", str(key), re.ASCII) else json.dumps(str(key))


def _assigned(path: tuple[str, ...], value: object, width: int) -> list[str]:
    key = _key(path[-1])
    line = f"{key} = {_value(value, path)}"
    if len(line) <= width or not isinstance(value, list | tuple):
        return [line]
    return [f"{key} = [", *(f"  {_value(item, path)}," for item in value), "]"]


def _commented(written: list[str], comment: str, width: int) -> Iterable[str]:
    if not comment:
        return written
    if len(written) == 1 and len(written[0]) + len(comment) + 3 <= width:
        return [f"{written[0]} # {comment}"]
    above = textwrap.wrap(comment, width - 2, break_long_words=False, break_on_hyphens=False)
    return [*(f"# {line}" for line in above), *written]


def _value(value: object, path: tuple[str, ...]) -> str:
    """Write a value; `path`: its key, for people."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item, (*path, key))}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item, path) for item in value) + "]"
    if isinstance(value, PurePath):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, np.ndarray | np.generic):
        return _value(value.tolist(), path)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False)  # TOML writes these as JSON does
    what = f"{'.'.join(map(str, path))}: {value!r} is of type {type(value).__name__}"
    raise InputError(f"{what}; give a text, a number, true or false, a list or a dict")
