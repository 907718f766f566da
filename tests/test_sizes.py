"""Functions stay small: of few lines, and of few parameters but for the options of commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.reference import modules

PACKAGE = Path(__file__).resolve().parents[1] / "fabricsim"
MOST_LINES = 60
MOST_PARAMETERS = 8
SIMPLE = "def simple(a, b):\n    return a\n"


def too_large(path: Path, functions: Iterable[Any]) -> list[str]:
    """Functions that have too many lines or parameters."""
    most = 2**30 if path.is_relative_to(PACKAGE / "cli") else MOST_PARAMETERS
    return [
        f"{path.name}: {name} has {lines} lines and {count} parameters"
        for name, lines, count in functions
        if lines > MOST_LINES or count > most
    ]


@pytest.mark.parametrize(
    ("source", "folder", "count"),
    [
        (SIMPLE, "run", 0),
        (SIMPLE + "    # more\n" * 60 + "    return b\n", "cli", 1),
        ("def many(self, a, b, c, d, e, f, g, h): ...", "run", 0),
        ("def many(a, b, c, d, e, f, g, *, h, i): ...", "run", 1),
        ("def many(a, b, c, d, e, f, g, h, **i): ...", "run", 1),
        ("def many(a, b, c, d, e, f, g, *, h, i): ...", "cli", 0),
    ],
)
def test_what_is_too_large_is_found(source: str, folder: str, count: int) -> None:
    assert len(too_large(PACKAGE / folder / "x.py", modules.read_text(source).functions)) == count


@pytest.mark.slow
def test_functions_are_small() -> None:
    assert [each for path in PACKAGE.rglob("*.py") for each in too_large(path, modules.read(path).functions)] == []
