"""Bounded reading of text that nobody has vouched for: logs, plain or packed with gzip or xz."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar, cast

from fabricsim.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 256 * 2**20
"""Most bytes of text that are read from one file, unpacked."""
MAX_LINE = 64 * 2**10
"""Longest line, bytes."""
MAX_LINES = 4_000_000
"""Most lines of one file: bounds the time that a file of empty lines costs."""

_CHUNK = 64 * 2**10
_XZ_MEMORY = 192 * 2**20  # ``xz -9`` needs 65 MiB; the format lets a hostile header ask for 4 GiB
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
Table_co = TypeVar("Table_co", covariant=True)
_LAUNCHER = re.compile(r"\s*(?:\[\d{1,9},\d{1,9}\](?:<\w{1,9}>)?:|\d{1,9}:(?=\s|$))")


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Lines of a text file with their numbers from 1, without line ends.

    Packed files are known by their first bytes, not by their names. Bytes that are not UTF-8 come
    out as replacement characters.

    Parameters
    ----------
    path
        A regular file: plain text, gzip or xz.

    Yields
    ------
    tuple of int and str
        Line number and line.

    Raises
    ------
    TraceError
        Where the file is missing, no regular file, empty, binary, damaged, or exceeds `MAX_BYTES`,
        `MAX_LINE` or `MAX_LINES`.
    """
    path = Path(path)
    try:
        _check_regular(path)
        with path.open("rb") as stream:
            yield from _split(path, _unpacked(stream))
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        msg = f"the packed file is damaged or cut ({error}); copy it again"
        raise TraceError(path, msg) from error
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error


class TableReader(Protocol[Table_co]):
    """Takes a file line by line; `finish` gives the table, or says why there is none."""

    path: Path

    def take(self, number: int, line: str) -> None: ...  # noqa: D102  as the class says

    def finish(self) -> Table_co: ...  # noqa: D102  as the class says


def read_table(reader: TableReader[Table_co]) -> Table_co:
    """Give a reader all lines of its file; raises what `read_lines` and the reader raise."""
    for number, line in read_lines(reader.path):
        reader.take(number, line)
    return reader.finish()


def without_launcher_prefix(line: str) -> str:
    """Drop what mpirun (``[1,0]<stdout>:``) or srun (``0:``) put before a line."""
    match = _LAUNCHER.match(line)
    return line[match.end() :] if match else line


def _check_regular(path: Path) -> None:
    """Refuse what cannot be a log, above all pipes and devices, which may never end."""
    if "\0" in str(path):
        raise TraceError(repr(str(path)), "is not a file name; give the path of a log")
    if path.is_dir():
        raise TraceError(path, "is a directory; name one file in it")
    if not path.exists():
        raise TraceError(path, "no such file; check the path")
    if not path.is_file():
        raise TraceError(path, "is not a regular file; save its contents to a file first")
    size = path.stat().st_size
    if size == 0:
        raise TraceError(path, "is empty; give a file that was written to its end")
    if size > MAX_BYTES:
        raise TraceError(path, _too_large(f"{size} bytes"))


def _too_large(what: str) -> str:
    return f"{what} are too much for a log (limit {MAX_BYTES // 2**20} MiB unpacked); cut it to the part with the table"


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    """Chunks of at most 64 KiB, so that a bomb is met before it fills memory."""
    head = stream.read(len(_XZ_MAGIC))
    stream.seek(0)
    if head.startswith(_XZ_MAGIC):
        yield from _xz_chunks(stream)
        return
    source = cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if head.startswith(_GZIP_MAGIC) else stream
    while chunk := source.read(_CHUNK):
        yield chunk


def _xz_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Unpack xz, several streams in a row too, within a memory limit (`lzma.open` takes none)."""
    packed = b""
    while packed := packed or stream.read(_CHUNK):
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not decoder.eof:
            if decoder.needs_input and not packed and not (packed := stream.read(_CHUNK)):
                msg = "it ends in the middle"
                raise EOFError(msg)
            yield decoder.decompress(packed, max_length=_CHUNK)
            packed = b""
        packed = decoder.unused_data.lstrip(b"\0")  # xz pads between streams with zeros


def _split(path: Path, chunks: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    number, total, rest = 0, 0, b""
    for chunk in chunks:
        total += len(chunk)
        if total > MAX_BYTES:
            raise TraceError(path, _too_large(f"more than {MAX_BYTES} bytes"))
        if b"\0" in chunk:
            msg = "holds binary data, not text; give the text that the benchmark printed"
            raise TraceError(path, msg, number + 1 + chunk[: chunk.index(b"\0")].count(b"\n"))
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, _decoded(path, number, line)
        if len(rest) > MAX_LINE:
            _decoded(path, number + 1, rest)
    if rest:
        yield number + 1, _decoded(path, number + 1, rest)


def _decoded(path: Path, number: int, line: bytes) -> str:
    if len(line) > MAX_LINE:
        msg = f"the line is longer than {MAX_LINE // 2**10} KiB: no log; give the text that the benchmark printed"
        raise TraceError(path, msg, number)
    if number > MAX_LINES:
        raise TraceError(path, f"more than {MAX_LINES} lines; cut the log to the part with the table", number)
    return line.decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")
