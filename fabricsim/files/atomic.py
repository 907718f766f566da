"""Files that are written whole or not at all."""

import itertools
import os
import re
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from fabricsim.errors import InputError

_PARTS: set[Path] = set()  # files that are being written
_NUMBERS = itertools.count()
_PART = re.compile(r".*\.(\w+)-(\d+)-\d+\.part(\.\w+)?")
_IDLE = 600  # seconds without a write: containers do not see one another's processes, though they share a name
_LONGEST = 50  # letters of a name that the name of its part has: of up to 4 bytes, and file systems allow 255


@contextmanager
def whole(path: Path, way_out: str, error: type[InputError] = InputError, *, suffix: str = "") -> Iterator[Path]:
    """Give the path of a file to write beside `path`, whose place it takes in the end.

    `path`: file that is wanted; one of that name is replaced.
    `way_out`: what to do if it cannot be written.
    `error`: raised then.
    `suffix`: of the file beside it, where that matters.
    Raises InputError: or `error`, if the file cannot be written; nothing is left then, and an older one of that name
        still there.
    """
    part = beside(path, suffix)
    try:
        with passing(part):
            yield part
            part.replace(path)
    except OSError as problem:
        raise error(f"{path}: cannot be written: {problem.strerror or problem}; {way_out}") from problem


def beside(path: Path, suffix: str = "") -> Path:
    """Name a file to write beside another one, which no other process or thread writes.

    What processes of this machine that were killed have left of such files in that folder is removed, once it is ten
    minutes old.
    """
    with suppress(OSError):  # a folder that is not there is told of when the file is written
        _tidy(path.parent.absolute())
    return path.with_name(f".{path.name[:_LONGEST]}.{_machine()}-{os.getpid()}-{next(_NUMBERS)}.part{suffix}")


@cache
def _tidy(folder: Path) -> None:
    """Remove what is left by processes that are no more; once for each folder, of which some have many files."""
    if os.name != "posix":  # there no signal asks whether a process lives
        return
    for file in os.scandir(folder):
        found = _PART.fullmatch(file.name)
        idle = found is not None and time.time() - file.stat().st_mtime > _IDLE
        if found and idle and found[1] == _machine() and not _lives(int(found[2])):
            Path(file.path).unlink(missing_ok=True)


@cache
def _machine() -> str:
    """Tell machines apart that share a folder, in a few letters."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        pass
    return True


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
