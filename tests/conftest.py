from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from fabricsim.scenario.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]

# Kernels compile on first use and CI machines are slow: a time limit per example would only flicker.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, max_examples=40)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Tables are as wide as it says; pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples if slow tests are left out."""
    if config.option.markexpr == "not slow":
        settings.load_profile("quick")


def pytest_collection_finish() -> None:
    """Leave what was imported to no collector: a look through all of it takes a quarter of a second."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as the program itself does


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite on all cores, where pytest-xdist is installed; part of it runs in this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.collectonly
    in_parallel = config.pluginmanager.has_plugin("xdist") and config.option.numprocesses is None
    if getattr(config.option, "cov_source", None):
        in_parallel = False  # pytest-cov has begun already, in this process
    if not (whole and in_parallel) or config.option.usepdb or hasattr(config, "workerinput"):
        return
    workers = config.hook.pytest_xdist_auto_num_workers(config=config)
    if workers > 1:
        config.option.numprocesses = workers
        # A worker keeps to neighbouring tests, which share fixtures, until another has none left.
        config.option.dist = "worksteal"
        _compile_kernels()


def _compile_kernels() -> None:
    """Fill the cache of compiled kernels, so that not every worker compiles them."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        return
    from fabricsim.jit.compile import is_compiled  # noqa: PLC0415  imports numba

    run = (
        "import sys; from fabricsim.run.pipeline import load, simulate; simulate(load('gpt2-medium-dp', sys.argv[1:]))"
    )
    missing = [name for name in ("flow", "packet") if not is_compiled(name)]
    engines = [subprocess.Popen([sys.executable, "-c", run, f"engine={name}"]) for name in missing]  # noqa: S603  our own code
    codes = [engine.wait() for engine in engines]
    if any(codes):
        pytest.exit("kernels do not compile", returncode=1)


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of captured traces, which do not ship with the project."""
    folder = Path(os.environ.get("FABRICSIM_TRACES") or ROOT.parent / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip("captured traces are not here: set FABRICSIM_TRACES")
    return folder


def _reference(name: str) -> ModuleType:
    # tests are no packages: a helper module among them is found by its folder
    folder = str(Path(__file__).parent / "reference")
    sys.path.insert(0, folder)
    try:
        return import_module(name)
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="session")
def modules() -> ModuleType:
    """What modules of the project hold."""
    return _reference("modules")


@pytest.fixture(scope="session")
def filling() -> ModuleType:
    """Max-min fairness in plain Python."""
    return _reference("filling")


@pytest.fixture(scope="session")
def ring() -> ModuleType:
    """A ring collective in plain Python."""
    return _reference("ring")


@pytest.fixture(scope="session")
def worlds() -> ModuleType:
    """The compiled world without hosts and SimPy."""
    return _reference("worlds")


@pytest.fixture(scope="session")
def training() -> ModuleType:
    """A small training job in three dimensions, by hand."""
    return _reference("training")


@pytest.fixture(scope="session")
def packet_cases() -> ModuleType:
    """Small networks of packets, drawn from a seed."""
    return _reference("packet_cases")


@pytest.fixture(scope="session")
def packet_runs() -> ModuleType:
    """The compiled packet engine without hosts' programs and SimPy, and the reference."""
    return _reference("packet_runs")


@pytest.fixture(scope="session")
def ideal_scenario() -> Callable[..., Scenario]:
    """Makes scenarios of round numbers: ``ideal_scenario(hosts, topology, channels=1, ...)``."""
    make: Callable[..., Scenario] = _reference("scenarios").scenario
    return make


@pytest.fixture(scope="session")
def measure() -> Callable[..., float]:
    """Runs one collective on an idle fabric: ``measure(scenario, "all_reduce", ranks, size)``, seconds."""
    run: Callable[..., float] = _reference("scenarios").measure
    return run


@pytest.fixture(scope="session")
def chakra_messages() -> ModuleType:
    """Chakra's messages by the protobuf package."""
    return _reference("chakra_messages")


@pytest.fixture(scope="session")
def jobs() -> ModuleType:
    """Small captured jobs made by hand."""
    return _reference("captured_jobs")


@pytest.fixture(scope="session")
def kineto_traces() -> ModuleType:
    """Made-up traces of PyTorch's profiler."""
    return _reference("kineto_traces")


@pytest.fixture(scope="session")
def format_page() -> ModuleType:
    """What makes the page of the file format."""
    return _reference("format_page")


@pytest.fixture(scope="session")
def mutations() -> ModuleType:
    """Damage to trace files of any form."""
    return _reference("mutations")


@pytest.fixture(scope="session")
def fuzz_uses() -> ModuleType:
    """What is done with traces that have been read."""
    return _reference("fuzz_uses")


@pytest.fixture(scope="session")
def trace_samples() -> ModuleType:
    """One small sample or two of each form of traces and logs."""
    return _reference("trace_samples")
