"""Reading a large Kineto trace: rate and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.traces.readers import read
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, LAUNCH, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from fabricsim.traces.trace import Trace

SIZE = int(os.environ.get("FABRICSIM_KINETO_BYTES") or 8 * 2**20)
MOST_MEMORY = 2**30
_MEASURE = """
import re, sys
from pathlib import Path
from fabricsim.traces.readers import read
read(sys.argv[1:])
(peak,) = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak) * 1024)  # ru_maxrss begins with that of the parent
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, kineto_traces: ModuleType) -> tuple[Path, int]:
    """Make a trace; gives it and its operations."""
    file = tmp_path_factory.mktemp("kineto") / "rank3.json"
    return file, kineto_traces.write(file, SIZE)


def test_read(measured: Callable[..., Any], made: tuple[Path, int]) -> None:
    file, operations = made

    def run(path: Path) -> tuple[int, Trace]:
        return path.stat().st_size, read([path])

    trace: Trace = measured(run, lambda: file, "bytes")
    (recording,) = trace.recordings
    assert Counter(recording.nodes["kind"].tolist()) == {
        LAUNCH: operations,
        COMPUTE: operations * 9 // 10,
        COMMUNICATION: operations // 10,
        WAIT: operations // 1000,
    }
    assert len(recording.steps) == operations // 1000
    sizes = [recording.communications[number].size for number in recording.nodes["communication"] if number >= 0]
    assert sizes == [2 * (1000 + number % 7) for number in range(0, operations, 10)]


def test_memory(tmp_path: Path, kineto_traces: ModuleType) -> None:
    """The peak of a process that does nothing else, compiled kernels and libraries included."""
    file = tmp_path / "rank3.json"
    kineto_traces.write(file, max(SIZE, 64 * 2**20))
    command = [sys.executable, "-c", _MEASURE, str(file)]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603  our own

    assert 0 < peak < MOST_MEMORY
    print(f"peak memory {peak / 2**20:.0f} MiB for {file.stat().st_size / 2**20:.0f} MiB")  # noqa: T201  with -s
