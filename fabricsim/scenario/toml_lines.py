"""Line numbers of the keys of a TOML text; the parser of the standard library does not tell them."""

import re
import tomllib
from bisect import bisect_right

KeyPath = tuple[str | int, ...]
"""Keys from the top level down; an integer is an index into an array."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may stand before the closing three
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Find the line on which each key is first mentioned.

    `text`: valid TOML, as ``tomllib`` has accepted it; what else is given is not diagnosed here.
    Returns: from key paths to lines, counted from 1. Tables that only dotted keys or longer headers mention are there
        too.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    """A cursor over the text that notes where keys stand."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._lengths: dict[KeyPath, int] = {}  # of arrays of tables

    def document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> KeyPath:
        array = self._text.startswith("[[", self._at)
        brackets = 2 if array else 1
        start, self._at = self._at, self._at + brackets
        keys = self._keys()
        self._at += brackets
        path = self._through_arrays(keys[:-1]) + keys[-1:]
        if array:
            self._lengths[path] = self._lengths.get(path, 0) + 1
        path = self._through_arrays(keys)
        for depth in range(1, len(path) + 1):
            self._note(path[:depth], start)
        return path

    def _through_arrays(self, keys: KeyPath) -> KeyPath:
        """Follow keys into the last element of each array of tables on the way."""
        path: KeyPath = ()
        for key in keys:
            path += (key,)
            if path in self._lengths:
                path += (self._lengths[path] - 1,)
        return path

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        keys = self._keys()
        for depth in range(1, len(keys) + 1):
            self._note(table + keys[:depth], start)
        self._at += 1  # the equals sign
        self._value(table + keys)

    def _keys(self) -> KeyPath:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            keys.append(self._key())
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(keys)
            self._at += 1

    def _key(self) -> str:
        if self._text[self._at] in "\"'":
            return str(tomllib.loads(f"key = {self._skip(_STRING)}")["key"])
        return self._skip(_BARE_KEY)

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        opening = self._text[self._at]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        elif not self._skip(_STRING):
            self._skip(_BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._more("]"):
            self._note((*path, index), self._at)
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while self._more("}"):
            self._pair(path)

    def _more(self, closing: str) -> bool:
        """Step over a comma, or over the closing bracket and say that this was all."""
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
        if self._text.startswith(closing, self._at):
            self._at += 1
            return False
        return True

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _note(self, path: KeyPath, at: int) -> None:
        self.lines.setdefault(path, bisect_right(self._starts, at))
