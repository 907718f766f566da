"""Files, folders and archives as streams, whatever is wrong with them."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
from pathlib import Path

import pytest

from fabricsim.errors import InputError, TraceError
from fabricsim.files.sources import sources

TEXT = b'{"events": [' + b"1, " * 100_000 + b"1]}"


def contents(*paths: Path, only: str | None = None) -> dict[str, bytes]:
    return {source.name: source.stream.read() for source in sources(paths, only)}


def archive(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, lambda data: lzma.compress(data) * 2])
def test_packing_is_known_by_the_first_bytes(tmp_path: Path, pack: object) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(pack(TEXT))  # type: ignore[operator]  # one of the above
    (read,) = contents(file).values()
    assert read in {TEXT, TEXT * 2}


def test_the_head_is_there_before_the_stream_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(lzma.compress(TEXT))
    for source in sources([tmp_path / "a.json"]):
        assert source.head == TEXT[: len(source.head)]
        assert len(source.head) == 2**16
        assert source.stream.read() == TEXT


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_archives_are_read_member_by_member(tmp_path: Path, mode: str) -> None:
    members = {"job/rank_0.json": TEXT, "job/rank_1.json.gz": gzip.compress(TEXT), "job/.hidden": b"x"}
    file = archive(tmp_path / "job.tar", members, mode)
    assert contents(file) == {"rank_0.json": TEXT, "rank_1.json.gz": TEXT}
    assert list(contents(file, only="*rank_1*")) == ["rank_1.json.gz"]


def test_members_can_lead_nowhere(tmp_path: Path) -> None:
    """Nothing is written, so that a name with dots is only a name."""
    file = archive(tmp_path / "job.tar", {"../../evil.json": TEXT})
    with tarfile.open(tmp_path / "links.tar", "w") as links:
        link = tarfile.TarInfo("rank_0.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        links.addfile(link)
    assert contents(file) == {"evil.json": TEXT}
    with pytest.raises(TraceError, match="there is no file in this archive"):
        contents(tmp_path / "links.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.tar", "links.tar"]


def test_a_folder_gives_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", ".c.json"):
        (tmp_path / name).write_bytes(name.encode())
    assert list(contents(tmp_path)) == ["a.json", "b.json"]


def test_progress_ends_at_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(TEXT)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(TEXT))
    shares: list[float] = []
    for source in sources([tmp_path], progress=shares.append):
        source.stream.read()
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.slow
def test_what_unpacks_beyond_all_proportion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricsim.files.sources._FREELY", 2**20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 * 2**20)))
    with pytest.raises(TraceError, match="unpacks to more than 300 times its size"):
        contents(tmp_path / "bomb.gz")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_what_is_cut_is_said(tmp_path: Path, pack: object) -> None:
    file = tmp_path / "cut"
    data = pack(TEXT)  # type: ignore[operator]  # one of the above
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="the packed file is damaged or cut"):
        contents(file)


def test_a_cut_archive_is_said(tmp_path: Path) -> None:
    file = archive(tmp_path / "job.tar", {"a.json": TEXT, "b.json": TEXT})
    file.write_bytes(file.read_bytes()[: len(TEXT) + 2000])
    with pytest.raises(TraceError, match="damaged or cut"):
        contents(file)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, problem in {
        "none": "no such file",
        "empty": "is empty",
        "folder": "there is no file in this folder",
        "pipe": "is not a regular file",
        "a\0b": "is not a file name",
        "x" * 300: "cannot be read",
    }.items():
        with pytest.raises(TraceError, match=problem):
            contents(tmp_path / name)
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(InputError, match=r"matches 'b\*'"):
        contents(tmp_path / "a", only="b*")


def test_scripts_and_texts_beside_traces_are_passed_over(tmp_path: Path) -> None:
    files = {"job/capture.py": b"print()", "job/rank0.json": TEXT, "README.md": b"# how"}
    (tmp_path / "folder").mkdir()
    for name, data in files.items():
        (tmp_path / "folder" / name.rpartition("/")[2]).write_bytes(data)

    assert list(contents(archive(tmp_path / "job.tar", files))) == ["rank0.json"]
    assert list(contents(tmp_path / "folder")) == ["rank0.json"]
    assert list(contents(tmp_path / "folder" / "capture.py")) == ["capture.py"]  # named by itself
