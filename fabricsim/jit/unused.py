"""Compiled programs of versions that nobody runs any more are removed."""

import functools
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

_DAY = 24 * 3600
_KEPT = 30 * _DAY  # how long programs are kept after their last use, s
_MOST = 100  # folders that one process removes, so that no run has to wait for it
_OURS = re.compile(r"[0-9a-f]{16}")  # name of a folder of programs (`fabricsim.jit.digest.digest`)


def mark_used(folder: Path) -> None:
    """Date a folder of programs, once a day: disks are often told not to note when a file was read."""
    with suppress(OSError):  # it may only be read
        if time.time() - folder.stat().st_mtime > _DAY:
            os.utime(folder)


@functools.cache  # once per process
def remove_unused(base: Path) -> None:
    """Remove programs that this user has compiled and nobody has used for a month.

    `base`: folder of the folders of programs; what else is in there stays.
    """
    with suppress(OSError):
        unused = [folder for folder in base.iterdir() if _OURS.fullmatch(folder.name) and _is_unused(folder)]
        for folder in sorted(unused)[:_MOST]:
            _remove(folder)


def _is_unused(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and time.time() - status.st_mtime > _KEPT


def _remove(folder: Path) -> None:
    with suppress(OSError):  # another process was first, or there is more in it than programs
        for path in (*folder.glob("*.nbc"), *folder.glob(".writing-*")):
            path.unlink()
        folder.rmdir()
