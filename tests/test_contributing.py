"""CONTRIBUTING: what it names is there, and its commands can be given as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = TEXT.split("```sh\n")[1].split("```")[0]
INLINE = re.findall(r"`((?:\.ci/|pytest |python )[^`]+)`", TEXT)
COMMANDS = [command.strip() for line in [*BLOCK.splitlines(), *INLINE] for command in line.split("  #")[0].split("&&")]
TOOLS = {"ruff", "mypy", "lint-imports", "pytest"}


@pytest.mark.slow
def test_contributing_names_what_there_is() -> None:
    """Files and folders that it names, and names in capitals that some module defines."""
    named = re.findall(
        r"`((?:fabricsim|tests|docs|workloads|scenario|records|engine|transports|topology|traces)/[\w/.]*)`", TEXT
    )
    named = [name for name in named if name != "fabricsim/workloads" and "NAME" not in name]  # of the wheel; a pattern
    constants = set(re.findall(r"`([A-Z_]{4,})`", TEXT)) - {"FABRICSIM_TRACES", "FABRICSIM_PEERS"}
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "fabricsim").rglob("*.py"))

    assert [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "fabricsim"))] == []
    assert {name for name in constants if not re.search(rf"^{name}\b", code, re.MULTILINE)} == set()
    assert set(
        re.findall(r"^def ([a-z]+)\(function", (ROOT / "fabricsim/jit/compile.py").read_text(), re.MULTILINE)
    ) == {
        "kernel",
        "inlined",
        "rare",
    }


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 10
    assert ".ci/changed" in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_files_tools_and_extras_that_there_are(command: str) -> None:
    program, *arguments = shlex.split(command)
    tool = Path(program).name
    offered = {
        entry.name for each in distributions() for entry in each.entry_points if entry.group == "console_scripts"
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    packages = " ".join(each for names in extras.values() for each in names)

    if program.startswith(".ci/"):
        assert os.access(ROOT / program, os.X_OK)
    elif tool in TOOLS:
        assert tool in offered or {"lint-imports": "import-linter"}.get(tool, tool) in packages
    else:
        assert program == "." or tool in {"python", "python3", "pip"}
    for extra in re.findall(r"\.\[([\w,]+)\]", command):
        assert set(extra.split(",")) <= extras.keys()
    paths = [word for word in arguments if "/" in word and not word.startswith((".venv", "-"))]
    assert [word for word in paths if not (ROOT / word).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("pytest ")])
def test_pytest_takes_the_options_of_a_command(command: str) -> None:
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed: pip install 'fabricsim[bench]'")
    arguments = [
        sys.executable,
        "-m",
        *shlex.split(command),
        "--collect-only",
        *(["--cov-report="] if "--cov" in command else []),  # a report reads all files
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "-o",
        f"testpaths={Path(__file__).relative_to(ROOT)}",  # in place of the whole suite
    ]

    run = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  our own page

    assert run.returncode == 0, run.stdout + run.stderr
