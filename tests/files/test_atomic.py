"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabricsim.errors import InputError, ResultError
from fabricsim.files.atomic import whole


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with whole(target, "no way") as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def fail(target: Path, problem: Exception) -> None:
    with whole(target, "name another", suffix=".txt") as part:
        part.write_text("half")
        raise problem


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (OSError(28, "No space left on device"), "out.txt: cannot be written: No space left on device; name another"),
        (ValueError("damaged"), "damaged"),
    ],
)
def test_nothing_is_left_of_what_fails(tmp_path: Path, problem: Exception, message: str) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises((InputError, ValueError), match=f"{message}$"):
        fail(target, problem)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.txt", "old")]


def test_two_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with whole(target, "no way") as one, whole(target, "no way") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert target.read_text() == "one", "which ended last"
    assert [*tmp_path.iterdir()] == [target]


@pytest.mark.slow
def test_processes_write_one_file_at_the_same_time(tmp_path: Path) -> None:
    """Each of two, many times; it is always that of one of them, and neither fails."""
    program = """
import sys
from pathlib import Path
from fabricsim.files.atomic import whole
for _ in range(300):
    with whole(Path(sys.argv[1]), "no way") as part:
        part.write_text(sys.argv[2] * 10_000)
"""
    target = tmp_path / "out.txt"
    both = [subprocess.Popen([sys.executable, "-c", program, str(target), letter]) for letter in "ab"]  # noqa: S603  our own words
    assert [each.wait() for each in both] == [0, 0]
    assert target.read_text() in {"a" * 10_000, "b" * 10_000}
    assert [*tmp_path.iterdir()] == [target]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from fabricsim.files.atomic import whole
with whole(Path({str(tmp_path / "out.txt")!r}), "no way") as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode  # noqa: S603  our own words
    (left,) = tmp_path.iterdir()
    recent = left.with_name(left.name.replace(".out", ".new"))
    recent.write_text("perhaps of another container")
    foreign = tmp_path / ".out.txt.0badcafe-1-0.part"
    foreign.write_text("of another machine")
    for each in (left, foreign):
        os.utime(each, (0, 0))
    with whole(tmp_path / "out.txt", "no way") as part, whole(tmp_path / "else.txt", "no way") as other:
        part.write_text("whole")
        other.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "else.txt", foreign.name, recent.name}


def test_the_error_is_that_of_the_kind_of_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ResultError, match="cannot be written: No such file"),
        whole(tmp_path / "none" / "out.h5", "make it", ResultError) as part,
    ):
        part.write_bytes(b"")
