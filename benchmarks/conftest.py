"""Scenarios, a plain solver, and the measuring of rates."""

from __future__ import annotations

import gc
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
BUDGET = 0.6
"""CPU seconds that the rounds of a benchmark take together, about; what comes before each counts a third."""
FEWEST, MOST = 4, 2000
STEADY, PATIENCE = 1.01, 4
"""A minimum is taken for one once the three quickest rounds differ by less, or as many budgets are spent."""
T = TypeVar("T")
R = TypeVar("R")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the largest cases, a round of which takes seconds."""
    parser.addoption("--large", action="store_true", help="run the largest cases too, whose rounds take seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the largest cases unless they are asked for."""
    large = [] if config.getoption("--large") else [item for item in items if item.get_closest_marker("large")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Measure CPU time, so that runs can be compared on a busy machine, without Python's collector."""
    config.addinivalue_line("markers", "large: a round takes seconds; only with --large")
    if config.pluginmanager.has_plugin("benchmark"):
        config.option.benchmark_timer = "time.process_time"
        config.option.benchmark_disable_gc = True


def _reference(name: str) -> ModuleType:
    sys.path.insert(0, str(REFERENCE))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(REFERENCE))


@pytest.fixture(scope="session")
def ideal_scenario() -> Callable[..., Scenario]:
    """Make scenarios of round numbers, as the tests do."""
    make: Callable[..., Scenario] = _reference("scenarios").ideal_scenario
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


def _timed(run: Callable[[T], R], subject: T, timer: Callable[[], float]) -> tuple[float, R]:
    """Time a round without Python's collector."""
    gc.disable()
    began = timer()
    answer = run(subject)
    took = timer() - began
    gc.enable()
    return took, answer


def _steady(rounds: list[float]) -> bool:
    quickest, *_, third = sorted(rounds)[:3]
    return third <= STEADY * quickest


@pytest.fixture
def measured(benchmark: BenchmarkFixture, calibration: float) -> Callable[..., Any]:
    """Run something warm many times and report its best rate.

    ``measured(run, make, unit)`` calls ``run(make())`` twice to warm up and then as often as `BUDGET` allows; only
    `run` counts, and it returns how much it did and anything else. Many short rounds have a minimum that the load of
    the machine hardly moves; more of them follow until it is steady. ``extra_info`` gets ``<unit>_per_cpu_second`` and
    ``<unit>_per_loop``: in the time of a fixed loop of plain Python, which compares machines. `timer` is that of the
    benchmark, if it has its own.
    """

    def _(
        run: Callable[[T], tuple[int, R]],
        make: Callable[[], T],
        unit: str,
        *,
        timer: Callable[[], float] = time.process_time,
    ) -> R:
        def warm() -> tuple[tuple[T], dict[str, Any]]:
            return (make(),), {}

        if benchmark.disabled:
            return benchmark.pedantic(run, setup=warm)[1]  # type: ignore[no-any-return, no-untyped-call]
        run(make())  # compiles
        began = timer()
        subject = make()
        made = timer() - began
        took, (done, _) = _timed(run, subject, timer)
        rounds = min(max(int(BUDGET / max(took, made / 3, 1e-6)), FEWEST), MOST)
        _, answer = benchmark.pedantic(run, setup=warm, rounds=rounds)  # type: ignore[no-untyped-call]
        left = PATIENCE * BUDGET
        while left > 0 and not _steady(benchmark.stats.stats.data):
            took, _ = _timed(run, make(), timer)
            benchmark.stats.update(took)
            left -= max(took, made / 3)
        best = benchmark.stats.stats.min
        benchmark.extra_info |= {
            unit: done,
            f"{unit}_per_cpu_second": done / best,
            f"{unit}_per_loop": done / best * calibration,
        }
        return answer

    return _
