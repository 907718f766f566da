"""How the program ends when it is not left to finish."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fabricsim = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("command", [["run", "-o", "out.h5"], ["compare", "--transport", "tcp-10g", "-o", "out"]])
def test_interrupt_is_quiet(
    fabricsim: Fabricsim, small: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    from fabricsim.engine.fabric import Fabric  # noqa: PLC0415  numba comes with it

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Fabric, "replay", interrupted)

    assert fabricsim(command[0], small.name, *command[1:]) == (130, "", "")
    assert [path.name for path in small.parent.iterdir()] == [small.name]


@pytest.mark.parametrize("arguments", [["list", "models"], ["--help"]])
def test_a_reader_that_has_gone_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "fabricsim", *arguments]
        run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603  our own words
    finally:
        os.close(write)

    assert run.stderr == ""
    assert run.returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device here that is always full")  # noqa: PTH110
def test_an_output_without_room_is_said_and_not_a_traceback() -> None:
    command = [sys.executable, "-m", "fabricsim", "list", "models"]
    with open("/dev/full", "w") as full:  # noqa: PTH123  a device
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603  our own words

    assert run.returncode == 2
    assert run.stderr == "fabricsim: standard output cannot be written: No space left on device\n"
