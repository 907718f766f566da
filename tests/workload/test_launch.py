"""What the interval between launches rests on, besides the iterations that gave it (`fabricsim.studies.vtrain`)."""

from __future__ import annotations

import json
import statistics
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fabricsim.scenario.job import KERNEL_LAUNCH
from fabricsim.units import PS_PER_S

US = PS_PER_S // 10**6
_IDLE = 500
"""Microseconds without a launch that are not the time to issue one."""


@pytest.fixture(scope="module")
def launches(traces: Path) -> list[list[dict[str, Any]]]:
    """Of each thread of eight ranks, in the order of time."""
    threads: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for name, events in _ranks(traces / "kineto/dlrm_kineto.tar.gz"):
        for event in events:
            if event.get("name") == "cudaLaunchKernel":
                threads.setdefault((name, event["tid"]), []).append(event)
    return [sorted(thread, key=lambda event: event["ts"]) for thread in threads.values()]


def _ranks(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(".json"):
                yield member.name, json.load(file)["traceEvents"]


def test_an_eager_framework_took_nearly_as_long_between_launches(launches: list[list[dict[str, Any]]]) -> None:
    gaps = [after["ts"] - before["ts"] for thread in launches for before, after in pairwise(thread)]
    interval = statistics.fmean(gap for gap in gaps if gap < _IDLE)

    assert interval == pytest.approx(40, abs=2)
    assert interval == pytest.approx(KERNEL_LAUNCH["eager"] / US, rel=0.2)


def test_a_launch_itself_took_what_recorded_kernels_take(launches: list[list[dict[str, Any]]]) -> None:
    assert statistics.median(event["dur"] for thread in launches for event in thread) * US == KERNEL_LAUNCH["graph"]
