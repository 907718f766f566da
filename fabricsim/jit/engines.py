"""What takes long to compile, and whom to tell."""

from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path

ENGINES = {
    "flow": ("engine/flow/kernels/main_loop.py", "advance"),
    "packet": ("engine/packet/kernels/main_loop.py", "advance"),
    "reference": ("engine/program/dispatch.py", "handle"),
}
"""By engine, of the kernels that Python enters one that takes long to compile: file and name."""
announce: Callable[[str], object] | None = None
"""Called with the name of an engine before its kernels are compiled, if they are not kept yet."""


def announce_if_long(file: Path, kernel: str) -> None:
    """Announce that a kernel of a file is compiled, if it is one that takes long."""
    if announce is not None and parent_process() is None:  # several workers would say it several times
        for engine, (inner, name) in ENGINES.items():
            if kernel == name and file.as_posix().endswith(f"fabricsim/{inner}"):
                announce(engine)
