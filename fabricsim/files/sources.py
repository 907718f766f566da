"""Files, folders and archives that nobody has vouched for, opened one stream after the other."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from fabricsim.errors import InputError, TraceError

MOST_BYTES = 64 * 2**30
"""Bytes of the largest file, unpacked."""
MOST_MEMBERS = 100_000
"""Files of the largest archive or folder."""

_HEAD = 64 * 2**10
_CHUNK = 2**20
_XZ_MEMORY = 192 * 2**20  # ``xz -9`` needs 65 MiB; the format lets a hostile header ask for 4 GiB
_TAR_MAGIC, _TAR_PLACE = b"ustar", 257
_DAMAGES = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError)
_BESIDE = frozenset({".py", ".sh", ".md", ".rst", ".ipynb", ".pdf", ".png", ".svg", ".html"})
"""Suffixes of programs and texts that lie beside traces in folders and archives, and are passed over there."""
_FREELY = 256 * 2**20  # unpacked bytes that no ratio is asked of
_MOST_RATIO = 300  # traces pack 10 to 40 times


@dataclass(frozen=True)
class Source:
    """One file, or a member of an archive, unpacked.

    `path`: the file.
    `member`: name in the archive; empty if the file is none.
    `head`: the first 64 KiB, or all if that is less.
    `stream`: its bytes from the start, to be read once and before the next source is taken. `TraceError` where what it
        is packed in is damaged, cut, or grows beyond all proportion.
    """

    path: Path
    member: str
    head: bytes
    stream: BinaryIO

    @property
    def label(self) -> str:
        """Name for messages."""
        return _printable(f"{self.path}:{self.member}" if self.member else str(self.path))

    @property
    def name(self) -> str:
        """Name of the file or member without folders, for what formats put into it."""
        return Path(self.member or self.path).name


def sources(
    paths: Collection[Path | str], only: str | None = None, progress: Callable[[float], None] | None = None
) -> Iterator[Source]:
    """Open files, the files of folders (sorted, not of their folders), and members of tar archives.

    Programs and texts in folders and archives, such as the script that took a trace, are passed over. Packing with gzip
    and xz is known by the first bytes, not by names; so are archives.

    `only`: pattern such as ``"*rank_0*"`` that the name of a file, or of a member with its folders, must match.
    `progress`: called now and then with the share of all bytes that has been read.
    Raises TraceError if a path is missing, no regular file, empty, damaged, or there is nothing in it.
    """
    found = False
    files = [file for path in paths for file in _files(Path(path))]
    meter = _Meter(sum(file.stat().st_size for file in files), progress)
    for file in files:
        with _opened(file, meter) as stream:
            for source in _parts(file, stream):
                if only is None or fnmatchcase(source.member or file.name, only):
                    found = True
                    yield source
    if not found:
        named = ", ".join(map(str, paths))
        unmatched = f"no file of {named} matches {only!r}; give another pattern"
        raise InputError(f"{named}: there is no trace" if only is None else unmatched)


@contextmanager
def one(path: Path) -> Iterator[Source]:
    """Open a file that stands for itself, plain or packed; an archive is none.

    Raises TraceError if it is missing, no regular file, empty, damaged or an archive.
    """
    if path.is_dir():
        raise TraceError(path, "is a directory; name one file in it")
    (file,) = _files(path)
    with _opened(file, _Meter(0, None)) as stream:
        head = _head(stream)
        if _is_archive(head):
            raise TraceError(path, "is an archive of several files; unpack it, and name one of them")
        yield Source(file, "", head, stream)


@dataclass
class _Meter:
    """Adds up what has been read of all files."""

    size: int
    progress: Callable[[float], None] | None
    done: int = 0

    def add(self, count: int) -> None:
        self.done += count
        if self.progress is not None and self.size:
            self.progress(self.done / self.size)


def _printable(name: str) -> str:
    """Write out what a terminal would act on, as the names of members come from whoever packed them."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _files(path: Path) -> list[Path]:
    """Refuse what cannot be a trace, above all pipes and devices, which may never end."""
    if "\0" in str(path):
        raise TraceError(repr(str(path)), "is not a file name; give the path of a trace")
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise TraceError(path, "no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise TraceError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(found.st_mode):
        files = sorted(file for file in path.iterdir() if file.is_file() and not _is_beside(file.name))
        if not files:
            raise TraceError(path, "there is no file in this folder; name a trace, or a folder with one file per rank")
        return files
    if not stat.S_ISREG(found.st_mode):
        raise TraceError(path, "is not a regular file; save its contents to a file first")
    return [path]


@contextmanager
def _opened(path: Path, meter: _Meter) -> Iterator[BinaryIO]:
    try:
        packed = path.open("rb")
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error
    with packed:
        stream = _unpacked(str(path), packed, meter)
        if not _head(stream):
            raise TraceError(path, "is empty; give the whole file, written to its end")
        yield stream


def _unpacked(label: str, packed: BinaryIO, meter: _Meter | None = None) -> BinaryIO:
    """Take off one packing, if there is one."""
    guard = _Guarded(label, packed, meter=meter)
    plain = _buffered(guard)
    magic = _head(plain)
    packing = next((kind for start, kind in _PACKINGS.items() if magic.startswith(start)), None)
    return plain if packing is None else _buffered(_Guarded(label, packing(plain), guard))


def _buffered(raw: _Guarded) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, _CHUNK))


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Guarded(io.RawIOBase):
    """Reads on, counts what comes out, and says in one way what is wrong with it."""

    def __init__(
        self, label: str, stream: _Readable, packed: _Guarded | None = None, meter: _Meter | None = None
    ) -> None:
        self.label, self.stream, self.packed, self.meter = label, stream, packed, meter
        self.total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # narrower than any buffer
        """Fill all of the buffer but at the end, so that a peek shows what there is."""
        filled = 0
        while filled < len(buffer) and (chunk := self._read(len(buffer) - filled)):
            buffer[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
        self.total += filled
        if self.meter is not None:
            self.meter.add(filled)
        if self.total > MOST_BYTES:
            msg = f"more than {MOST_BYTES // 2**30} GiB unpacked are too much for a trace; cut it to fewer iterations"
            raise TraceError(self.label, msg)
        if self.packed is not None and self.total > _FREELY + _MOST_RATIO * self.packed.total:
            msg = (
                f"unpacks to more than {_MOST_RATIO} times its size: no trace does; unpack it yourself if you trust it"
            )
            raise TraceError(self.label, msg)
        return filled

    def _read(self, size: int) -> bytes:
        try:
            return self.stream.read(size)
        except _DAMAGES as error:
            raise TraceError(self.label, f"the packed file is damaged or cut ({error}); copy it again") from error
        except OSError as error:
            raise TraceError(self.label, f"cannot be read: {error.strerror or error}") from error


class _Xz:
    """Unpacks xz, several streams in a row too, within a memory limit (`lzma.open` takes none)."""

    def __init__(self, packed: BinaryIO) -> None:
        self.packed = packed
        self.decoder = self._decoder()
        self.rest = b""

    @staticmethod
    def _decoder() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while not (self.decoder.eof and not self._begin_next()):
            if self.decoder.needs_input and not self.rest:
                self.rest = self.packed.read(_CHUNK)
                if not self.rest:
                    raise EOFError("it ends in the middle")
            out = self.decoder.decompress(self.rest, max_length=size)
            self.rest = b""
            if out:
                return out
        return b""

    def _begin_next(self) -> bool:
        """Take up the stream that follows the one that has ended; False if there is none."""
        rest = self.decoder.unused_data
        while not (rest := rest.lstrip(b"\0")):  # xz pads between streams with zeros
            rest = self.packed.read(_CHUNK)
            if not rest:
                return False
        self.rest, self.decoder = rest, self._decoder()
        return True


_PACKINGS: dict[bytes, Callable[[BinaryIO], _Readable]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed),
    b"\xfd7zXZ\x00": _Xz,
}


def _parts(path: Path, stream: BinaryIO) -> Iterator[Source]:
    head = _head(stream)
    if not _is_archive(head):
        yield Source(path, "", head, stream)
        return
    found = False
    for name, contents in _members(path, stream):
        found = True
        unpacked = _unpacked(_printable(f"{path}:{name}"), contents)
        yield Source(path, name, _head(unpacked), unpacked)
    if not found:
        raise TraceError(path, "there is no file in this archive; pack one trace file per rank")


def _is_beside(name: str) -> bool:
    return name.startswith(".") or Path(name).suffix.lower() in _BESIDE


def _is_archive(head: bytes) -> bool:
    return head[_TAR_PLACE : _TAR_PLACE + len(_TAR_MAGIC)] == _TAR_MAGIC


def _head(stream: BinaryIO) -> bytes:
    return cast("io.BufferedReader", stream).peek(_HEAD)[:_HEAD]


def _members(path: Path, stream: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    """Regular files of an archive; nothing is written anywhere, so their names can do no harm."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for count, member in enumerate(archive):
                if count == MOST_MEMBERS:
                    raise TraceError(path, f"more than {MOST_MEMBERS} files; leave out what is no trace")
                contents = archive.extractfile(member) if member.isfile() and member.size else None
                if contents is not None and not _is_beside(Path(member.name).name):
                    yield member.name, cast("BinaryIO", contents)
    except tarfile.TarError as error:
        raise TraceError(path, f"the archive is damaged or cut ({error}); copy it again") from error
