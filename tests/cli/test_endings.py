"""How the program ends when it is not left to finish."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Fabricsim = Callable[..., tuple[int, str, str]]


LONG = ["--set", "folding=off", "--set", "job.global_batch=3072"]
"""Minutes of a thousand ranks."""
COMMANDS = {
    "run": ["run", "gpt3-175b", *LONG, "-o", "out.h5"],
    "compare": ["compare", "gpt3-175b", *LONG, "--transport", "rdma-100g,rdma-200g", "--jobs", "2", "-o", "out"],
    "packets": ["run", "gpt2-xl-dp-16", "--engine", "packet", "-o", "out.h5"],
    "traffic": ["traffic", "permutation", "gpt2-medium-dp", "--size", "100GB", "--engine", "packet", "-o", "out"],
    "validate": ["validate", "dai2024", "-o", "out"],
    "bench": ["bench", "all_reduce", "--cluster", "selene", "--transport", "rdma-200g"],
}


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.2, 1.2, 2.5])
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_ends_a_command_within_a_second(tmp_path: Path, name: str, after: float) -> None:
    command = [sys.executable, "-m", "fabricsim", *COMMANDS[name]]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # noqa: S603  our own words
    time.sleep(after)
    if run.poll() is not None:
        pytest.fail(f"{name} has ended already: {run.stderr.read() if run.stderr else ''}")
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)

    assert time.monotonic() - began < 1.0
    assert run.returncode == 130
    assert err.splitlines()[-1] == "fabricsim: interrupted"
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_seen_to_before_any_command_is_imported() -> None:
    code = (
        "import sys; import fabricsim.__main__; print(*[name for name in sys.modules if name.startswith('fabricsim')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  our own words
    assert run.stdout.split() == ["fabricsim", "fabricsim.__main__"]


@pytest.mark.slow
def test_ctrl_c_while_python_starts_meets_no_code_of_commands() -> None:
    """In the first 40 ms or so Python itself may be interrupted, which prints what it imports."""
    for after in range(0, 160, 20):
        run = subprocess.Popen([sys.executable, "-m", "fabricsim", "list"], stderr=subprocess.PIPE, text=True)
        time.sleep(after / 1000)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
        assert (run.returncode, err) == (130, "fabricsim: interrupted\n") or "fabricsim/cli" not in err


def test_ctrl_c_within_code_from_a_string_ends_with_the_code_all_the_same(tmp_path: Path) -> None:
    """Python remembers a KeyboardInterrupt there, and ends by the signal, whoever has caught it since."""
    inner = "from signal import SIGINT, raise_signal; exec('raise_signal(SIGINT)')"
    code = f"from fabricsim.cli.interrupt import ending_at_once\nwith ending_at_once():\n    {inner}"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  our own words

    assert (run.returncode, run.stderr) == (130, "fabricsim: interrupted\n")


def test_what_is_being_written_goes_when_the_program_is_interrupted(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from signal import SIGINT, raise_signal
from fabricsim.cli.interrupt import ending_at_once
from fabricsim.files.atomic import whole
with ending_at_once(), whole(Path("out.h5"), "") as part:
    part.touch()
    raise_signal(SIGINT)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  our own words

    assert (run.returncode, run.stderr) == (130, "fabricsim: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "code", "told"),
    [(">&-", 2, "fabricsim: standard output is closed; send it to a file or to /dev/null\n"), ("2>&-", 0, "")],
)
def test_a_closed_stream_is_no_traceback(closed: str, code: int, told: str) -> None:
    command = f"{sys.executable} -m fabricsim list models {closed}"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602  our own words

    assert (run.returncode, run.stderr) == (code, told)
    assert ("gpt2-medium" in run.stdout) == (code == 0)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device here that is always full")  # noqa: PTH110
def test_an_output_without_room_is_said_and_not_a_traceback() -> None:
    command = [sys.executable, "-m", "fabricsim", "list", "models"]
    with open("/dev/full", "w") as full:  # noqa: PTH123  a device
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603  our own words

    assert run.returncode == 2
    assert run.stderr == "fabricsim: standard output cannot be written: No space left on device\n"
