"""Reading TOML files that may be anything: one clear error for what is not a scenario."""

import re
import tomllib
from pathlib import Path

from fabricsim.errors import InputError
from fabricsim.scenario.toml_lines import key_lines
from fabricsim.scenario.tree import TreeNode, build

_HDF5 = b"\x89HDF"  # its first bytes
LARGEST = 2**20
"""Bytes of a scenario file; the largest sensible ones have some thousand."""

LONGEST_LINE = 4096
"""Characters of a line; the time to parse a dotted key grows with the square of its length."""

_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")


def exists(file: Path) -> bool:
    """Whether something of that name is there."""
    try:
        return file.exists()
    except (OSError, ValueError):  # such as a name that is too long, or one with a NUL
        return False


def read_text(path: Path, label: str = "") -> str:
    """Read a text file.

    `label`: its name in messages; `path` itself if left out.
    Raises InputError if it is missing, a directory, unreadable, too large, empty or no UTF-8 text.
    """
    label = label or str(path)
    problem = not_a_file(path, "; name the scenario file in it")
    if problem:
        raise InputError(f"{label}: {problem}")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{label}: cannot be read: {error.strerror}") from error
    if data.startswith(_HDF5):
        raise InputError(f"{label}: is a result, not a scenario; fabricsim report and fabricsim plot read results")
    if len(data) > LARGEST:
        raise InputError(f"{label}: is larger than {LARGEST} bytes, which no scenario is")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"{label}: is no UTF-8 text (byte {error.start} is {data[error.start]:#04x}); a scenario is a TOML file"
        raise InputError(msg) from error


def is_result(path: Path) -> bool:
    """Whether a file is HDF5, as results are."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except (OSError, ValueError):  # whoever reads it says why
        return False


def not_a_file(path: Path, in_directory: str = "") -> str:
    """Say why a path is no regular file; empty if it is one. `in_directory` is added for a directory."""
    try:
        if path.is_dir():
            return f"is a directory{in_directory}"
        if not path.exists():
            return "there is no such file"
        return "" if path.is_file() else "is not a regular file"
    except (OSError, ValueError) as error:  # such as a name that is too long, or one with a NUL
        return f"cannot be a file: {error}"


def parse(text: str, label: str, *, numbered: bool = True) -> TreeNode:
    """Parse TOML into a tree that knows its lines, if these are `numbered` for whoever wrote it.

    Raises InputError if it is empty or no TOML, with the line.
    """
    lines = text.removeprefix("\ufeff").splitlines() or [""]
    longest = max(range(len(lines)), key=lambda index: len(lines[index]))
    if len(lines[longest]) > LONGEST_LINE:
        msg = f"{label}:{longest + 1}: the line is longer than {LONGEST_LINE} characters, which no scenario needs"
        raise InputError(msg)
    try:
        tables = tomllib.loads(text.removeprefix("\ufeff"))
        tree = build(tables, label, key_lines(text.removeprefix("\ufeff")) if numbered else None)
    except RecursionError as error:
        raise InputError(f"{label}: is nested too deeply for a scenario") from error
    except ValueError as error:  # beside syntax errors, numbers of more digits than Python converts
        raise InputError(_syntax_error(str(error), label)) from error
    if not tables:
        raise InputError(f"{label}: is empty; `fabricsim list` names what there is to start from")
    return tree


def _syntax_error(message: str, label: str) -> str:
    place = _PLACE.search(message)
    if place is None:
        return f"{label}: is no valid TOML: {message}"
    hint = "; text and quantities need quotes" if message.startswith(("Invalid value", "Expected newline")) else ""
    return f"{label}:{place[1]}: is no valid TOML: {message[: place.start()]}{hint}"
