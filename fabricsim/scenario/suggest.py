"""Words for mistakes: values as the user wrote them, names that were perhaps meant, columns of a header."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from fabricsim.errors import TraceError

_LONGEST = 60  # characters of a value that a message repeats


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that `word` was perhaps meant to be, or None."""
    matches = difflib.get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Ask for the closest known name; if none is close, say `otherwise`, by default all names."""
    names = list(known)
    if (match := closest(word, names)) is not None:
        return f"did you mean {match!r}?"
    return f"there are {', '.join(names)}" if otherwise is None else otherwise


def check_columns(path: Path, line: int, header: list[str], columns: Sequence[str], needed: Sequence[str]) -> None:
    """Check the header of a CSV file. Raises TraceError if it has a column that is not known or twice, or lacks one."""
    for name in header:
        if name not in columns:
            problem = f"the header has an unknown column {show(name)}; {did_you_mean(name, columns)}"
            raise TraceError(path, problem, line)
        if header.count(name) > 1:
            raise TraceError(path, f"the header has the column {name} twice; take one out", line)
    for name in needed:
        if name not in header:
            raise TraceError(path, f"the header lacks the column {name}; it needs {', '.join(needed)}", line)


def some_of(names: Sequence[str], most: int) -> str:
    """List the first `most` names, and say how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def show(value: object) -> str:
    """Write a value as it would stand in TOML, cut where it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
