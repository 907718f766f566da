"""Scenarios, a plain solver, and the measuring of rates."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pytest_benchmark.fixture import BenchmarkFixture

    from fabricsim.scenario.scenario import Scenario

REFERENCE = Path(__file__).resolve().parents[1] / "tests" / "reference"
LOOPS = 2_000_000
T = TypeVar("T")
R = TypeVar("R")


def _reference(name: str) -> ModuleType:
    sys.path.insert(0, str(REFERENCE))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(REFERENCE))


@pytest.fixture(scope="session")
def ideal_scenario() -> Callable[..., Scenario]:
    """Make scenarios of round numbers, as the tests do."""
    make: Callable[..., Scenario] = _reference("scenarios").scenario
    return make


@pytest.fixture(scope="session")
def filling() -> ModuleType:
    """Max-min fairness in plain Python."""
    return _reference("filling")


@pytest.fixture(scope="session")
def kineto_traces() -> ModuleType:
    """Made-up traces of PyTorch's profiler."""
    return _reference("kineto_traces")


def _loop() -> float:
    began = time.process_time()
    total = 0
    for i in range(LOOPS):
        total += i & 7
    return time.process_time() - began


@pytest.fixture(scope="session")
def calibration() -> float:
    """CPU seconds of a fixed loop of plain Python on this machine, best of five."""
    return min(_loop() for _ in range(5))


@pytest.fixture
def measured(benchmark: BenchmarkFixture, calibration: float) -> Callable[..., Any]:
    """Run something warm a few times and report its best rate.

    ``measured(run, make, unit, rounds=n)`` calls ``run(make())`` once to warm up and then `rounds`
    times; only `run` counts, and it returns how much it did and anything else. ``extra_info`` gets
    ``<unit>_per_cpu_second`` and ``<unit>_per_loop``: in the time of a fixed loop of plain Python,
    which compares machines.
    """

    def _(run: Callable[[T], tuple[int, R]], make: Callable[[], T], unit: str, *, rounds: int = 3) -> R:
        best = float("inf")
        done = 0

        def timed(subject: T) -> R:
            nonlocal best, done
            began = time.process_time()
            done, answer = run(subject)
            best = min(best, time.process_time() - began)
            return answer

        answer: R = benchmark.pedantic(  # type: ignore[no-untyped-call]  # the plugin has no types
            timed, setup=lambda: ((make(),), {}), rounds=rounds, warmup_rounds=1
        )
        benchmark.extra_info[unit] = done
        benchmark.extra_info["cpu_seconds"] = best
        benchmark.extra_info[f"{unit}_per_cpu_second"] = done / best
        benchmark.extra_info[f"{unit}_per_loop"] = done / best * calibration
        return answer

    return _
