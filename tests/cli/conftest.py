from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fabricsim.cli.main import main


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
    monkeypatch.chdir(tmp_path)
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


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario that runs in milliseconds: two ranks on two hosts."""
    file = tmp_path / "small.toml"
    file.write_text(
        'extends = "gpt2-medium-dp"\n'
        "cluster.hosts = 2\n"
        "job.micro_batch = 1\n"
        "job.global_batch = 2\n"
        "job.parallelism.data = 2\n",
        encoding="utf-8",
    )
    return file


@pytest.fixture
def result(small: Path, fabricsim: Callable[..., Outcome]) -> Path:
    """The result file of the small scenario."""
    assert fabricsim("run", small.name, "-o", "small.h5").code == 0
    return small.with_name("small.h5")
