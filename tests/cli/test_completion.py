"""Completion of commands, options and names by a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fabricsim.scenario import library


def completed(words: str) -> list[str]:
    """What bash is told of the last of some words."""
    asked = {"_FABRICSIM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "fabricsim"]
    return subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603  our own words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fabricsim sw", ["sweep"]),
        ("fabricsim run --uncert", ["--uncertainty"]),
        ("fabricsim run gpt2-medium-", ["gpt2-medium-dp", "gpt2-medium-pp"]),
        ("fabricsim run mine.to", []),
        ("fabricsim run x --engine p", ["packet"]),
        ("fabricsim bench all_reduce --cluster dgx-a", ["dgx-a100"]),
        ("fabricsim replay t --transport ", library.names("transports")),
    ],
)
def test_a_shell_is_told_what_fits(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_has_it_installed(tmp_path: Path) -> None:
    """The script is found by bash itself, with the one of `fabricsim` on the path."""
    program = f'#!/bin/sh\nexec {sys.executable} -m fabricsim "$@"\n'
    (tmp_path / "fabricsim").write_text(program)
    (tmp_path / "fabricsim").chmod(0o755)
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ask = 'COMP_WORDS=(fabricsim run gpt2-x); COMP_CWORD=2; _fabricsim_completion fabricsim; echo "${COMPREPLY[@]}"'

    install = ["bash", "-c", f"{sys.executable} -m fabricsim --install-completion; true"]
    subprocess.run(install, env=environment, check=True, capture_output=True)  # noqa: S603  our own words
    asking = ["bash", "-c", f". {tmp_path}/.bashrc; {ask}"]
    run = subprocess.run(asking, env=environment, capture_output=True, text=True, check=True)  # noqa: S603  as above

    assert run.stdout.split() == ["gpt2-xl-dp-16"]
