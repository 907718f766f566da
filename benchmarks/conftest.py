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
LOOPS = 200_000
BUDGET = 0.6
"""CPU seconds that the rounds of a benchmark take together on an undisturbed core, about."""
BATCH = 0.1
"""CPU seconds of rounds between two looks at how fast the core is."""
PATIENCE = 8
"""Budgets after which a benchmark ends also if the core was never undisturbed for long."""
AS_FAST = 1.04
"""A core is undisturbed if a fixed loop takes less than this times its best."""
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


class Pace:
    """How fast this core is now, by a fixed loop of plain Python.

    CPU time does not count other processes, but it does grow, by up to 1.7, while another one, of another virtual
    machine, too, is on the other thread of the same core. That comes and goes within seconds.
    """

    def __init__(self) -> None:
        self.best = min(self._loop() for _ in range(50))
        """CPU seconds of the loop, at best."""

    def is_undisturbed(self) -> bool:
        """Say whether the loop takes what it takes at best."""
        took = self._loop()
        self.best = min(self.best, took)
        return took < AS_FAST * self.best

    @staticmethod
    def _loop() -> float:
        began = time.process_time()
        total = 0
        for i in range(LOOPS):
            total += i & 7
        return time.process_time() - began


@pytest.fixture(scope="session")
def pace() -> Pace:
    """Watch the core that benchmarks run on."""
    return Pace()


def _timed(run: Callable[[T], R], subject: T, timer: Callable[[], float]) -> tuple[float, R]:
    """Time a round without Python's collector."""
    gc.disable()
    began = timer()
    answer = run(subject)
    took = timer() - began
    gc.enable()
    return took, answer


@pytest.fixture
def measured(benchmark: BenchmarkFixture, pace: Pace) -> Callable[..., Any]:
    """Run something warm many times and report its best rate.

    ``measured(run, make, unit)`` calls ``run(make())`` once to warm up and then until rounds of `BUDGET` were made on
    an undisturbed core; only `run` counts, and it returns how much it did and anything else. ``extra_info`` gets
    ``<unit>_per_cpu_second`` and ``<unit>_per_loop``: in the time of a fixed loop of plain Python, which compares
    machines. `timer` is that of the benchmark, if it has its own.
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
        done, answer = benchmark.pedantic(run, setup=warm)  # type: ignore[no-untyped-call]
        undisturbed, left, spent = pace.is_undisturbed(), BUDGET, 0.0
        while left > 0 and spent < PATIENCE * BUDGET:
            began, batch = timer(), 0.0
            while batch < BATCH and timer() - began < 3 * BATCH:  # making them takes time, too
                took, _ = _timed(run, make(), timer)
                benchmark.stats.update(took)
                batch += took
            before, undisturbed = undisturbed, pace.is_undisturbed()
            used = max(batch, (timer() - began) / 3)
            spent += used
            left -= used * (before and undisturbed)
        best = benchmark.stats.stats.min
        benchmark.extra_info |= {
            unit: done,
            f"{unit}_per_cpu_second": done / best,
            f"{unit}_per_loop": done / best * pace.best,
        }
        return answer

    return _
