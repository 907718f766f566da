"""Where compiled programs are kept, and under which name.

numba keeps what it compiled by path and time of the source file, so that a second environment with
the same fabricsim compiles all over again. The cache folder carries a digest of all kernel sources:
within it, a source's name in the package says all.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core import caching as _caching
from numba.core import config as _config

if TYPE_CHECKING:
    from collections.abc import Callable

caching: Any = _caching  # numba has no types
config: Any = _config  # as above
PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("kernels", "packet", "transports")
"""Folders of the package with kernels; the digest covers their files."""


class _InPackage(caching._CacheLocator):  # type: ignore[misc]  # noqa: SLF001  what numba's own derive from
    """Place of a kernel of this package; others are kept as numba does."""

    def __init__(self, function: Callable[..., Any], source: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = str(source)  # numba's warnings name it
        self._folder = str(Path(config.CACHE_DIR) / source.parent.name)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _InPackage | None:
        source = Path(py_file).resolve()
        if source.parent.parent != PACKAGE or source.parent.name not in FOLDERS:
            return None
        locator = cls(py_func, source)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None  # numba then looks for another place
        return locator

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return "as the digest says"

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Places(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_InPackage, *caching.CompileResultCacheImpl._locator_classes]  # noqa: RUF012, SLF001  as numba's


class ProgramCache(caching.FunctionCache):  # type: ignore[misc]
    """Compiled programs of one kernel, shared by all environments and processes that have the same sources."""

    _impl_class = _Places

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401  numba's
        """Load a program; the types and functions that numba compiles with, a long list, stay unloaded."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401  numba's
        """Save a program; one process at a time, or two would number their files alike."""
        with (Path(self.cache_path) / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().save_overload(sig, data)
