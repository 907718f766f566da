"""Where compiled programs are kept, and under which name.

numba keeps what it compiled by path and time of the source file, so that a second environment with
the same fabricsim compiles all over again. Here the programs of a module have a folder that is named by
the digest of all that they are made of (`fabricsim.jit.digest`), so that whoever has the same
sources uses them. A program is one file, which begins with the digest of its place and of the rest: what is
damaged or of another place is compiled anew, and so is what another user could have written. What cannot be kept
is compiled in memory. What has not been used for a month goes when a program is saved (`fabricsim.jit.unused`).
"""

import functools
import hashlib
import inspect
import io
import os
import pickle
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.environment import _rebuild_env
from numba.core.serialize import dumps

from fabricsim.errors import FabricsimWarning
from fabricsim.files.atomic import passing
from fabricsim.jit.digest import PACKAGE, digest, digest_of, digest_of_kernels, sources
from fabricsim.jit.engines import announce_if_long
from fabricsim.jit.unused import mark_used, remove_unused

_BEGAN = time.time()
"""When this process read its first kernel, seconds since the epoch."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_HOME = "~/.cache", "there is no home directory"
_ROOM = 2**20
"""Bytes that the programs of an engine need, about."""
_FORMAT = 2
"""Of the files, so that versions of fabricsim that keep their programs in other ways do not take them for damaged."""


def cache_directory() -> Path | None:
    """Where compiled kernels are kept between runs; None if there is no place."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "fabricsim"
    except RuntimeError:  # there is no home
        return None


@functools.cache
def programs_of(source: Path) -> Path | None:
    """Where the programs of a module's kernels are kept; None if a file was changed after this process read it."""
    base = cache_directory()
    if base is None or not source.is_file():
        return None
    if any(path.stat().st_mtime > _BEGAN for path in sources(source)):
        return None
    return base / digest(source)


class ProgramCache(NullCache):
    """Compiled programs of one kernel, shared by all environments and processes that have the same sources.

    `function`: that of the kernel which Python enters.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        source = Path(inspect.getfile(function)).resolve()
        self._source, self._name = source, function.__name__
        self._folder = programs_of(source)
        self._stem = f"{source.stem}.{function.__qualname__}-{digest_of(function.__code__)}"
        self._function = function
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self._cells = hashlib.sha256(dumps(cells)).hexdigest() if cells else ""

    @property
    def cache_path(self) -> str | None:
        """Folder of the programs."""
        return None if self._folder is None else str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401  numba's
        """Load a program; the types and functions that numba compiles with, a long list, stay unloaded."""
        path = self._path(sig, target_context.codegen())
        content = None if path is None else _read(path)
        if path is None or content is None:
            announce_if_long(self._source, self._name)
            return None
        mark_used(path.parent)
        return CompileResult._rebuild(target_context, *_Unpickler(io.BytesIO(content)).load())  # noqa: SLF001  as numba's cache does

    @functools.cached_property
    def _outside(self) -> str:
        """What else tells a kernel of a user apart: its module, to which programs refer, and what it calls there.

        `fabricsim.jit.digest.sources` looks into files of this package only.
        """
        if self._source.is_relative_to(PACKAGE):
            return ""
        return f"{self._function.__module__} {digest_of_kernels([self._function])}"

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401  numba's
        """Save a program if that can be."""
        path = self._path(sig, data.codegen)
        if path is None:
            if cache_directory() is None:
                _note_once(*_NO_HOME)
            return
        try:
            _write(path, dumps(data._reduce()))  # noqa: SLF001  as numba's cache does
            remove_unused(path.parent.parent)
        except OSError as error:
            _note_once(str(path.parent.parent), error.strerror)

    def _path(self, signature: Any, codegen: Any) -> Path | None:  # noqa: ANN401  numba's
        """File of a program: by types, processor, and values that the kernel is a closure over."""
        if self._folder is None:
            return None
        key = repr((_FORMAT, str(signature), codegen.magic_tuple(), self._cells, self._outside, sys.version_info[:2]))
        return self._folder / f"{self._stem}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.nbc"


class _Unpickler(pickle.Unpickler):
    """Reads what numba's `dumps` wrote: our own bytes, by the digest that they begin with."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  any class or function
        found = super().find_class(module, name)
        return _environment if found is _rebuild_env else found


def _environment(module: str, constants: Any, name: str) -> Any:  # noqa: ANN401  numba's
    """Rebuild what a compiled function has beside its code, of which it reads the constants only.

    The module of a user's kernel has another name once a comment was edited; numba would look for that of before.
    """
    return _rebuild_env(module if module in sys.modules else __name__, constants, name)


def can_keep() -> bool:
    """Try whether programs can be kept; if not, that is noted."""
    base = cache_directory()
    if base is None:
        _note_once(*_NO_HOME)
        return False
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
    except OSError as error:
        _note_once(str(base), error.strerror)
        return False
    return True


def _read(path: Path) -> bytes | None:
    """Read what `_write` wrote; None if it is not there, damaged, or another user than root could have written it."""
    try:
        if not path.is_file():  # a pipe would have us wait
            return None
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in {0, os.getuid()} or status.st_mode & _OTHERS_MAY_WRITE:
                return None
            check, content = file.read(hashlib.sha256().digest_size), file.read()
    except OSError:
        return None
    return content if _check(path, content) == check else None


def _write(path: Path, content: bytes) -> None:
    """Write a file all at once, for whoever may read the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    with passing(Path(name)):
        with os.fdopen(handle, "wb") as file:
            file.write(_check(path, content) + content)
        Path(name).chmod(0o644)
        Path(name).replace(path)


def _check(path: Path, content: bytes) -> bytes:
    """Digest a program with its place, so that one of other sources is not taken for it."""
    return hashlib.sha256(f"{path.parent.name}/{path.name}\n".encode() + content).digest()


@functools.cache  # one note, whatever the number of kernels
def _note_once(place: str, why: str) -> None:
    variable = "NUMBA_CACHE_DIR" if os.environ.get("NUMBA_CACHE_DIR") else "XDG_CACHE_HOME"
    way_out = f"set {variable} to a folder that can be written"
    text = f"compiled kernels cannot be kept, so that each run compiles them: {place}: {why}; {way_out}"
    warnings.warn(text, FabricsimWarning, stacklevel=2)
