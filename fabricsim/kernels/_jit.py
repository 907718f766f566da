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


def is_compiled() -> bool:
    """Whether an earlier run has filled the cache, so that nothing needs compiling."""
    return any(cache_directory().rglob("*.nbi"))


_CACHE = str(cache_directory())


def _compile(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    before, config.CACHE_DIR = config.CACHE_DIR, _CACHE
    try:
        njit: Any = numba.njit  # its types leave _nrt out
        decorate = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, **options)
        compiled: Callable[..., Any] = decorate(function)
    finally:
        config.CACHE_DIR = before
    return compiled


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first use, cached, without the GIL, division by zero giving inf.

    A kernel owns no arrays, so none of them is counted: counting the references of a dozen arrays at
    each call of a helper took half the time of the engine. It follows that a kernel cannot make one.
    """
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, and always inlined: for what is called for each packet at each link."""
    return _compile(function, forceinline=True)
