"""Files that are written whole or not at all."""

from __future__ import annotations

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
    with whole(target, "name another", name="other.txt") as part:
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


def test_the_error_is_that_of_the_kind_of_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ResultError, match="cannot be written: No such file"),
        whole(tmp_path / "none" / "out.h5", "make it", ResultError) as part,
    ):
        part.write_bytes(b"")
