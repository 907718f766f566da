"""Readers of Chakra, GOAL and logs of NCCL; that of Kineto is in test_kineto.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import fabricsim as fs
from fabricsim.collectives.lowering import Lowering
from fabricsim.traces.chakra import writer as chakra
from fabricsim.traces.export import exported
from fabricsim.traces.goal import writer as goal
from fabricsim.traces.readers import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fabricsim.traces.trace import Trace

CALLS = 5000


@pytest.fixture(scope="module")
def job() -> Trace:
    """Make a trace of a training job, its collectives written out as messages."""
    program = fs.program("gpt2-medium-pp")
    return exported(program, "job", Lowering(program, {}))


@pytest.mark.parametrize("form", ["chakra", "goal"])
def test_read(measured: Callable[..., Any], tmp_path: Path, job: Trace, form: str) -> None:
    if form == "goal":
        goal.write(job, tmp_path / "job.goal")
    else:
        chakra.write(job, tmp_path / "job")
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]

    def run(_nothing: None) -> tuple[int, Trace]:
        return sum(path.stat().st_size for path in files), read(files)

    trace: Trace = measured(run, lambda: None, "bytes")
    assert trace.form == form
    assert len(trace.recordings) == len(job.recordings)
    for written, found in zip(job.recordings, trace.recordings, strict=True):
        assert len(found.nodes) >= len(written.nodes) > 0


def _log(rank: int) -> str:
    said = f"node{rank}:{100 + rank}:{200 + rank} [0] NCCL INFO "
    comm = f"comm 0x7f{rank}0 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xabc"
    calls = (
        f"{said}AllReduce: opCount {number:x} sendbuff 0x7f00 recvbuff 0x7f00 count {1024 + number % 7} datatype 7 "
        f"op 0 root 0 comm 0x7f{rank}0 [nranks=2] stream 0x55aa"
        for number in range(CALLS)
    )
    return "\n".join(
        [f"{said}ncclCommInitRank {comm} - Init START", f"{said}ncclCommInitRank {comm} - Init COMPLETE", *calls]
    )


def test_read_nccl_log(measured: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "nccl.log"
    file.write_text("\n".join(["NCCL version 2.21.5+cuda12.4", *map(_log, range(2)), ""]), encoding="utf-8")

    def run(_nothing: None) -> tuple[int, Trace]:
        return file.stat().st_size, read([file])

    trace: Trace = measured(run, lambda: None, "bytes")
    assert trace.form == "nccl_log"
    for recording in trace.recordings:
        sizes = [recording.communications[number].size for number in recording.nodes["communication"] if number >= 0]
        assert sizes == [4 * (1024 + number % 7) for number in range(CALLS)]
