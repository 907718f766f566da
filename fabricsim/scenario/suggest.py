"""Words for mistakes: values as the user wrote them, and names that were perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_LONGEST = 60  # characters of a value that a message repeats


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that `word` was perhaps meant to be, or None."""
    matches = difflib.get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Ask for the closest known name; `otherwise` if none is close."""
    match = closest(word, known)
    return f"did you mean {match!r}?" if match is not None else otherwise


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
