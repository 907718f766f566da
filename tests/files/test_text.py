from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.errors import TraceError
from fabricsim.files import text
from fabricsim.files.lines import MOST_LINE


def read(path: Path) -> list[tuple[int, str]]:
    return list(text.read_lines(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_lines_come_with_numbers_whatever_packs_them(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "log"
    file.write_bytes(pack(b"\xef\xbb\xbfone\r\n\ntwo\xff"))

    assert read(file) == [(1, "one"), (2, ""), (3, "two\ufffd")]


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b\n"), lzma.compress(b"a\n") + b"\0" * 8 + lzma.compress(b"b\n")],
    ids=["gzip", "xz"],
)
def test_packed_streams_in_a_row_are_one_text(tmp_path: Path, packed: bytes) -> None:
    file = tmp_path / "log"
    file.write_bytes(packed)

    assert read(file) == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_large_xz_is_read_whole(tmp_path: Path) -> None:
    lines = [f"line {number} {number**3:x}" for number in range(50_000)]
    file = tmp_path / "log"
    file.write_bytes(lzma.compress("\n".join(lines).encode()))

    assert [line for _, line in text.read_lines(file)] == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"good\nbad\0line\n", ":2: holds binary data"),
        (b"x" * (MOST_LINE + 1), ":1: the line is longer than 64 KiB"),
        (b"a\n" + b"x" * (MOST_LINE + 1) + b"\n", ":2: the line is longer"),
        (gzip.compress(b"some text\n" * 999, mtime=0)[:-20], "damaged or cut"),
        (lzma.compress(b"some text\n" * 999)[:-20], "damaged or cut"),
        (b"\x1f\x8bnot gzip at all", "damaged or cut"),
        (b"\xfd7zXZ\x00not xz at all", "damaged or cut"),
        (lzma.compress(b"a\n") + b"junk after the stream", "damaged or cut"),
    ],
)
def test_unreadable_content_is_one_trace_error(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "log"
    file.write_bytes(content)

    with pytest.raises(TraceError) as error:
        read(file)

    assert message in str(error.value)
    assert str(file) in str(error.value)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "logs.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("log"))

    for path, message in [
        (tmp_path, "is a directory"),
        (tmp_path / "missing", "no such file"),
        (tmp_path / "pipe", "not a regular file"),  # opening it would wait for ever
        (tmp_path / "nul\0byte", "not a file name"),
        (tmp_path / "logs.tar", "is an archive of several files"),
    ]:
        with pytest.raises(TraceError, match=message):
            read(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("text")
    file.chmod(0)

    with pytest.raises(TraceError, match="cannot be read"):
        read(file)


def bomb(block: bytes, blocks: int) -> bytes:
    """xz of `blocks` times `block`: one compressed stream, repeated, as the format allows."""
    return lzma.compress(block, preset=0) * blocks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "message"),
    [(bytes(2**24), "longer than"), (b"x" * 2**24, "longer than"), (b"\n" * 2**24, "empty lines in a row")],
    ids=["zeros", "one line", "empty lines"],
)
def test_bomb_of_one_gibibyte_is_refused(tmp_path: Path, block: bytes, message: str) -> None:
    file = tmp_path / "bomb.xz"
    file.write_bytes(bomb(block, 2**30 // len(block)))

    with pytest.raises(TraceError, match=message):
        read(file)


def test_more_lines_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINES", 3)
    (tmp_path / "log").write_text("a\n" * 4)

    with pytest.raises(TraceError, match=":4: more than 3 lines; cut the log"):
        read(tmp_path / "log")


@pytest.mark.slow
def test_text_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_BYTES", 2**20)
    lines = b"a line of some length, repeated\n" * 2**16
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    packed.write_bytes(gzip.compress(lines, mtime=0))
    plain.write_bytes(lines)

    for file in (packed, plain):
        with pytest.raises(TraceError, match=r"limit 1 MiB unpacked"):
            read(file)


def test_xz_that_asks_for_too_much_memory_is_refused(tmp_path: Path) -> None:
    packed = bytearray(lzma.compress(b"text\n"))
    # Block header from byte 12: its size in words less one, ..., filter 0x21, one byte of properties, dictionary size.
    end = 12 + packed[12] * 4
    packed[packed.index(b"\x21\x01") + 2] = 36  # 1 GiB
    packed[end : end + 4] = zlib.crc32(packed[12:end]).to_bytes(4, "little")
    file = tmp_path / "log.xz"
    file.write_bytes(bytes(packed))

    with pytest.raises(TraceError, match=r"damaged or cut \(Memory usage limit"):
        read(file)


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("[1,0]<stdout>:   8 2 float", "   8 2 float"),
        (" 0:    8 2 float", "    8 2 float"),
        ("[3,12]<stderr>:text", "text"),
        ("host:12:12 [0] NCCL INFO", "host:12:12 [0] NCCL INFO"),
        ("12:34:56 a time stays", "12:34:56 a time stays"),
    ],
)
def test_launcher_prefixes_are_dropped(line: str, rest: str) -> None:
    assert text.without_launcher_prefix(line) == rest
