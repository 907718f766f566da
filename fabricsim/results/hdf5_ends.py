"""Whether the HDF5 library comes to an end with a file: what loops inside of it for ever, nothing can interrupt."""

from __future__ import annotations

import os
import resource
import signal
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CPU_SECONDS = 5
"""In which names, shapes and attributes of any sound file are read; a result has a few hundred of them."""


def ends(path: Path) -> bool:
    """Read names, shapes and attributes in a copy of this process, which the kernel ends if it takes too long."""
    from h5py._objects import phil  # noqa: PLC0415  loaded by the caller already; its lock is nowhere else

    with warnings.catch_warnings(), phil:  # so that no other thread is inside the library
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the copy has no need of
        child = os.fork()
    if child == 0:
        with suppress(BaseException):  # whatever it is, it comes again in the process that reads
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            survey(path)
        os._exit(0)
    return not os.WIFSIGNALED(os.waitpid(child, 0)[1])


def survey(path: Path) -> None:
    """Read names, shapes and attributes."""
    import h5py  # noqa: PLC0415  loaded by the caller already

    def look(_: str, found: h5py.Group | h5py.Dataset) -> None:
        for name in found.attrs:
            found.attrs[name]
        getattr(found, "shape", None)

    with h5py.File(path, "r") as file:
        look("/", file)
        file.visititems(look)
