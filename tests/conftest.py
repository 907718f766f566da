from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from fabricsim.results.result import RunRecord
from tests.reference import factory

ROOT = Path(__file__).resolve().parents[1]

# Kernels compile on first use and CI machines are slow: a time limit per example would only flicker.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile("ci" if os.environ.get("CI") else "local")

_compiling: list[subprocess.Popen[bytes]] = []

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
        _compiling.extend(_compile_kernels())


def _compile_kernels() -> list[subprocess.Popen[bytes]]:
    """Begin to fill the cache of compiled kernels, while workers collect tests; who needs one waits for it."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        return []
    from fabricsim.jit.compile import is_compiled  # noqa: PLC0415  imports numba

    run = (
        "import sys; from fabricsim.run.pipeline import load, simulate; simulate(load('gpt2-medium-dp', sys.argv[1:]))"
    )
    missing = [name for name in ("packet", "flow") if not is_compiled(name)]
    return [subprocess.Popen([sys.executable, "-c", run, f"engine={name}"]) for name in missing]  # noqa: S603  our own code


def pytest_unconfigure() -> None:
    """Say so if kernels did not compile, if no test has."""
    if any(engine.wait() for engine in _compiling):
        pytest.exit("kernels do not compile", returncode=1)


class Outcome(NamedTuple):
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def fabricsim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run the program's own `main` in an empty folder: ``fabricsim("run", "mine.toml")``."""
    from fabricsim.cli.main import main  # noqa: PLC0415  most tests have no use for it

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fabricsim.extensions._files", {})  # those that it runs are there for this test alone
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})  # other tests have the other cores
    # whether this test happens to be the first that compiles must not show
    monkeypatch.setattr("fabricsim.jit.compile.is_compiled", lambda _engine: True)
    monkeypatch.setattr("fabricsim.cli.main.announce_compilation", lambda _engine: None)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fabricsim", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of captured traces, which do not ship with the project."""
    folder = Path(os.environ.get("FABRICSIM_TRACES") or ROOT.parent / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip("captured traces are not here: set FABRICSIM_TRACES")
    return folder


@pytest.fixture
def two_ranks() -> RunRecord:
    return factory.two_ranks()


@pytest.fixture
def bucketed() -> RunRecord:
    return factory.bucketed()


@pytest.fixture
def pipeline() -> RunRecord:
    return factory.pipeline()
