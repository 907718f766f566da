"""The one way to compile a kernel.

numba's cache notices a change only in the file of the entry kernel, so a changed helper in another
file would be served stale. The cache folder therefore carries a digest of all kernel sources and
record types, of numba's version and of the bounds-check flag.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import config as _config

if TYPE_CHECKING:
    from collections.abc import Callable

config: Any = _config  # its attributes are made at run time
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = {"flow": "kernels", "packet": "packet"}
"""Folder of the main loop of each engine."""
_SOURCES = [
    *sorted(source for folder in ("kernels", "packet", "transports") for source in (_PACKAGE / folder).glob("*.py")),
    _PACKAGE / "tables.py",
    _PACKAGE / "packet_tables.py",
]


def _digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {config.BOUNDSCHECK}".encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Where compiled kernels are kept between runs."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fabricsim" / _digest()


def is_compiled(engine: str = "flow") -> bool:
    """Whether an earlier run has filled the cache with the kernels of an engine, so that nothing needs compiling."""
    return any(cache_directory().glob(f"{_FOLDERS[engine]}_*/replay.advance-*.nbi"))


_CACHE = str(cache_directory())


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first use, cached, without the GIL, division by zero giving inf.

    A kernel owns no arrays, so none of them is counted: counting the references of a dozen arrays at
    each call of a helper took half the time of the engine. It follows that a kernel cannot make one.
    """
    before, config.CACHE_DIR = config.CACHE_DIR, _CACHE
    try:
        compiled: Callable[..., Any] = _njit(cache=True)(function)
    finally:
        config.CACHE_DIR = before
    return compiled


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, but for kernels to call only.

    It becomes part of the machine code of those, and gets none of its own, nor a cache: that halves the
    time that a deep tree of kernels takes to compile.
    """
    dispatcher: Callable[..., Any] = _link_only(_njit()(function))
    return dispatcher


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `inner`, and always inlined: for what is called for each packet at each link."""
    dispatcher: Callable[..., Any] = _link_only(_njit(forceinline=True)(function))
    return dispatcher


def _njit(**options: bool) -> Any:  # noqa: ANN401  numba's decorators have no types
    njit: Any = numba.njit  # its types leave _nrt out
    return njit(nogil=True, error_model="numpy", _nrt=False, **options)


def _link_only(dispatcher: Any) -> Any:  # noqa: ANN401  as above
    """Have a function typed and lowered for its callers, and no more."""

    def customize(flags: Any) -> Any:  # noqa: ANN401  as above
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags

    def add_overload(result: Any) -> None:  # noqa: ANN401  as above
        # Callers know a function by its entry point, for which anything will do that there is only one of.
        token = object()
        dispatcher.targetctx.insert_user_function(token, result.fndesc, [result.library])
        dispatcher.overloads[tuple(result.signature.args)] = result._replace(entry_point=token)

    if not config.DISABLE_JIT:
        dispatcher._compiler._customize_flags = customize  # noqa: SLF001  what numba's own cfunc does
        dispatcher.add_overload = add_overload
    return dispatcher
