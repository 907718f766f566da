"""Scenarios, a plain solver, and the measuring of rates."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from pytest_benchmark.fixture import BenchmarkFixture

    from fabricsim.scenario.scenario import Scenario

REFERENCE = Path(__file__).resolve().parents[1] / "tests" / "reference"
TURNS = 12
"""How often each benchmark is measured, with all others in between."""
BUDGET = 0.1
"""CPU seconds that the rounds of a benchmark take together in each turn, at least."""
SHORTEST = 0.02
"""CPU seconds of a round, at least: shorter runs are made several times in one."""
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
        _keep_memory()
        config.option.benchmark_timer = "time.process_time"
        config.option.benchmark_disable_gc = True


def _keep_memory() -> None:
    """Have memory that is freed stay with this process: at times new pages cost a virtual machine ten times as much."""
    with suppress(OSError, AttributeError):  # glibc alone has it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-4, 0)  # M_MMAP_MAX: no mapping for one large array
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nothing is given back


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


class Turns:
    """The benchmarks of a session, which are measured in turns.

    CPU time does not count other processes, but it does grow, by up to 1.7, while another one, of another virtual
    machine, too, is on the other thread of the same core: for seconds, or for a minute. So the rounds of a benchmark
    are spread over all the time that its session takes. Each turn counts as the median of its rounds, and a benchmark
    as its least turn. The least of single rounds would be luck: at times the other process is away for one.
    """

    def __init__(self) -> None:
        self._again: list[Callable[[], None]] = []

    def take(self, again: Callable[[], None]) -> None:
        """Measure by `again` now and in each later turn."""
        again()
        self._again.append(again)

    def rest(self, say: Callable[[str], None]) -> None:
        """Take the turns behind the first one."""
        for turn in range(2, TURNS + 1 if self._again else 0):
            say(f"turn {turn} of {TURNS}: {len(self._again)} benchmarks")
            for again in self._again:
                again()


@pytest.fixture(scope="session")
def turns(pytestconfig: pytest.Config) -> Iterator[Turns]:
    """Measure once more what has been measured, when all tests are through."""
    taken = Turns()
    yield taken
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    with pytestconfig.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        taken.rest(reporter.write_line)


def _timed(run: Callable[[T], R], subject: T, timer: Callable[[], float]) -> float:
    """Time a round without Python's collector."""
    gc.disable()
    began = timer()
    run(subject)
    took = timer() - began
    gc.enable()
    return took


@pytest.fixture
def measured(benchmark: BenchmarkFixture, turns: Turns) -> Callable[..., Any]:
    """Run something warm many times and report its best rate.

    ``measured(run, make, unit)`` calls ``run(make())`` once to warm up and then in each of the `Turns` until rounds of
    `BUDGET` are made; only `run` counts, and it returns how much it did and anything else. A round is the mean of as
    many runs as `SHORTEST` takes. ``extra_info`` gets
    ``<unit>_per_cpu_second``. `timer` is that of the benchmark, if it has its own.
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

        def again() -> None:
            gc.collect()  # parts of a fabric refer to one another
            rounds, left = list[float](), BUDGET
            while left > 0:
                runs = [_timed(run, make(), timer)]
                while sum(runs) < SHORTEST:
                    runs.append(_timed(run, make(), timer))
                rounds.append(sum(runs) / len(runs))
                left -= sum(runs)
            benchmark.stats.update(median(rounds))
            best = min(benchmark.stats.stats.data)  # `min` would be kept
            benchmark.extra_info |= {unit: done, f"{unit}_per_cpu_second": done / best}

        if benchmark.disabled:
            return benchmark.pedantic(run, setup=warm)[1]  # type: ignore[no-any-return, no-untyped-call]
        run(make())  # compiles
        done, answer = benchmark.pedantic(run, setup=warm)  # type: ignore[no-untyped-call]
        benchmark.stats.stats.data.clear()  # that was one run
        turns.take(again)
        return answer

    return _
