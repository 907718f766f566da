"""The timeline of an iteration of 1,024 ranks: events per second of CPU time, in bounded memory."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from fabricsim.report.trace_events.writer import write_timeline
from fabricsim.run.pipeline import load, simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fabricsim.results.result import RunRecord

SETTINGS = (
    'job.model={include="gpt2-medium",layers=16}', "cluster.hosts=128", "cluster.gpus_per_host=8",
    'cluster.intra_host="nvlink"', "cluster.gpu=a100-sxm-40gb", "cluster.nics_per_host=1", "collectives=ideal",
    "job.micro_batch=1", "job.global_batch=1024", "job.parallelism={tensor=2,pipeline=8,data=64}", "folding=off",
)  # fmt: skip
BESIDES = 150e6
"""Bytes that writing may take beside the result."""


@pytest.fixture(scope="module")
def run() -> RunRecord:
    return simulate(load("gpt2-medium-dp", list(SETTINGS)))


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_timeline(measured: Callable[..., int], run: RunRecord, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    write_timeline(run, path)
    with gzip.open(path) if suffix == ".json.gz" else path.open("rb") as lines:
        events = sum(1 for _ in lines) - 2

    def write(_nothing: None) -> tuple[int, int]:
        write_timeline(run, path)
        return events, path.stat().st_size

    assert measured(write, lambda: path.unlink(missing_ok=True), "events") == path.stat().st_size
    assert events > len(run.ops)


def test_memory_stays_small_beside_the_result(run: RunRecord, tmp_path: Path) -> None:
    tracemalloc.start()
    write_timeline(run, tmp_path / "run.json")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < BESIDES
