"""Files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabricsim.errors import InputError

_PARTS: set[Path] = set()  # files that are being written


@contextmanager
def whole(path: Path, way_out: str, error: type[InputError] = InputError, *, name: str = "") -> Iterator[Path]:
    """Give the path of a file to write beside `path`, whose place it takes in the end.

    `path`: file that is wanted; one of that name is replaced.
    `way_out`: what to do if it cannot be written.
    `error`: raised then.
    `name`: of the file beside it, where its suffix matters.
    Raises InputError: or `error`, if the file cannot be written; nothing is left then, and an older one of that name
        still there.
    """
    part = path.with_name(name or f"{path.name}.part")
    try:
        with passing(part):
            yield part
            part.replace(path)
    except OSError as problem:
        msg = f"{path}: cannot be written: {problem.strerror or problem}; {way_out}"
        raise error(msg) from problem


@contextmanager
def passing(part: Path) -> Iterator[None]:
    """Remove a file after the block, or when the process is ended within it, unless it has been moved away."""
    _PARTS.add(part)
    try:
        yield
    finally:
        part.unlink(missing_ok=True)
        _PARTS.discard(part)


def drop_parts() -> None:
    """Remove the files that are being written, for a process that ends in their midst."""
    for part in tuple(_PARTS):
        part.unlink(missing_ok=True)
