from __future__ import annotations

import os
from pathlib import Path

import h5py
import pytest

from fabricsim.errors import ResultError
from fabricsim.results import hdf5_ends, hdf5_reader


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


def test_names_that_the_reader_looks_for_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked: list[str] = []

    class Watched(h5py.File):
        def __contains__(self, name: object) -> bool:
            looked.append(str(name))
            return super().__contains__(name)

    h5py.File(tmp_path / "x.h5", "w").close()
    monkeypatch.setattr(h5py, "File", Watched)

    hdf5_ends.survey(tmp_path / "x.h5")

    assert {"packets/packets", "calls/start", "demand/source"} <= set(looked)


@pytest.mark.slow
def test_what_takes_memory_without_end_is_no_sound_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5_ends, "survey", lambda _: [bytearray(1 << 24) for _ in range(64)])

    assert not hdf5_ends.ends(tmp_path / "x.h5")


def test_the_copy_ends_whatever_goes_wrong_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.getpid()
    monkeypatch.setattr(hdf5_ends, "_limit", lambda: 1 / 0)

    assert hdf5_ends.ends(tmp_path / "x.h5")
    assert os.getpid() == before  # or else two processes would go on from here


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
