"""Whether the HDF5 library comes to an end with a file: what loops inside of it for ever, nothing can interrupt."""

import os
import resource
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fabricsim.results import columns

CPU_SECONDS = 2
"""In which names, shapes and attributes of any sound file are read; a result has a few hundred of them."""
MEMORY = 1 << 28
"""Bytes within which this is done."""
GROUPS = tuple(group for group in vars(columns).values() if isinstance(group, columns.ColumnGroup))
"""Those that the reader looks for by name."""


def ends(path: Path) -> bool:
    """Read names, shapes and attributes in a copy of this process, which the kernel ends if it takes too long."""
    from h5py._objects import phil  # noqa: PLC0415  loaded by the caller already; its lock is nowhere else

    with warnings.catch_warnings(), phil:  # so that no other thread is inside the library
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the copy has no need of
        child = os.fork()
    if child == 0:
        _look(path)
    return os.waitpid(child, 0)[1] == 0


def _look(path: Path) -> NoReturn:
    """Survey a file within limits and end this process, whatever happens; not 0 if it took more than a sound one."""
    code = 0
    try:
        most = _limit()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # h5py prints there what it cannot raise
        with suppress(BaseException):  # whatever it is, it comes again in the process that reads
            survey(path)
        code = int(_peak() > most)
    finally:
        os._exit(code)


def _limit() -> int:
    """Limit what this process takes from here on, and give the most bytes that a sound file leaves it with."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    with suppress(OSError):  # only Linux tells how much is taken, and keeps to a limit
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    return _peak() + MEMORY // 2


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


def survey(path: Path) -> None:
    """Read names, shapes and attributes."""
    import h5py  # noqa: PLC0415  loaded by the caller already

    def look(_: str, found: h5py.Group | h5py.Dataset) -> None:
        for name in found.attrs:
            found.attrs[name]
        getattr(found, "shape", None)

    with h5py.File(path, "r") as file:
        for group in GROUPS:
            for name in (group.index.name, *(column.name for column in group.columns)):
                with suppress(KeyError, RuntimeError):  # one that is damaged does not hide the others
                    _ = f"{group.group}/{name}" in file
        look("/", file)
        file.visititems(look)
