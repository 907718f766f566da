from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import pytest

from fabricsim.errors import ResultError
from fabricsim.results import hdf5_ends, hdf5_reader

if TYPE_CHECKING:
    from pathlib import Path


def spin(_: Path) -> None:
    while True:
        pass


def test_a_sound_file_ends(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("a").attrs["b"] = 1

    assert hdf5_ends.ends(tmp_path / "x.h5")


def test_a_file_that_is_none_ends(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"nothing")

    assert hdf5_ends.ends(tmp_path / "x.h5")


@pytest.mark.slow
def test_what_loops_is_ended_by_its_cpu_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5_ends, "CPU_SECONDS", 1)
    monkeypatch.setattr(hdf5_ends, "survey", spin)

    assert not hdf5_ends.ends(tmp_path / "x.h5")


def test_the_reader_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.h5").write_bytes(b"nothing")
    monkeypatch.setattr(hdf5_reader, "ends", lambda _: False)

    with pytest.raises(ResultError, match="does not come to an end"), hdf5_reader.open_result(tmp_path / "x.h5"):
        pass
