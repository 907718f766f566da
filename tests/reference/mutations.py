"""Damage to trace files, by accident or on purpose: bytes, lines, numbers, values of JSON, packings and archives.

One function does it, with a `random.Random` that says what: hypothesis gives one that it can shrink (`damaged`), a long
run a seeded one, and a fuzzer one made of its input.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import tarfile
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.reference import wire_damage

STRANGE = (
    b"\x00",
    b"\xff\xfe",
    b"\xff" * 10,  # the longest varint, and too long for 64 bits
    b"-1",
    b"1e999",
    b"NaN",
    b"Infinity",
    b"9" * 18,
    b"9" * 400,
    b"0x",
    b"[" * 3000,
    b'{"a":' * 3000,
    b'"',
    b"\\",
    b"\\ud800",
    b"]}",
    b"\n",
    b"\r\n\r\n",
    b"\t",
    b",",
    b"{" * 300,
    b"/*",
    b"//",
    b" ",
    "\u0661".encode(),  # a digit, but none of ASCII
)
"""What does not belong into a trace."""

NUMBERS = (b"-1", b"0", b"1", b"2147483648", b"9223372036854775808", b"1e308", b"1e999", b"-0.0", b"nan", b"0.5")
"""What may stand in the place of any number."""

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    10**400,
    1.5,
    1e300,
    float("nan"),
    "",
    "x" * 300,
    "-1",
    "[0,",
    [],
    [[]],
    [2**70, -1],
    list(range(3000)),
    {},
    {"a": []},
)
"""What may stand in the place of any value of JSON."""

BOMB = 512 * 2**20
"""Bytes that a bomb unpacks to: more than `fabricsim.files.sources` lets pass without asking for a ratio."""

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORD = re.compile(rb"[^\s,:;\[\](){}\"]+")
_MOST = 256 * 2**10  # bytes of what comes out, before packing
_DEPTH = 20


def mutate(chance: Random, samples: Sequence[bytes], *, jobs: bool = False) -> bytes:
    """Damage one of `samples` once or a few times, and sometimes pack it, well or badly.

    With `jobs` what is packed may be the files of several ranks.
    """
    data = chance.choice(samples)
    for _ in range(chance.choice(_TIMES)):
        data = chance.choice(_DAMAGES)(chance, data, samples)[:_MOST]
    if chance.random() > _PACKED:
        return data
    return chance.choice((*_PACKINGS, *((_job,) * 3 if jobs else ())))(chance, data, samples)


_TIMES = (1, 1, 1, 2, 3, 4)  # what is damaged often is seldom read to its end
_PACKED = 0.1


def damaged(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Samples damaged as hypothesis decides."""
    return st.builds(mutate, st.randoms(use_true_random=False), st.just(samples))


def _cut(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as all damages
    return data[: chance.randint(0, len(data))]


def _flip(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    text = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 20))):
        if text:
            text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
    return bytes(text)


def _piece(chance: Random, data: bytes) -> tuple[int, int]:
    begin = chance.randint(0, len(data))
    return begin, min(begin + chance.choice((1, 8, 60, 600)), len(data))


def _drop(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    begin, end = _piece(chance, data)
    return data[:begin] + data[end:]


def _repeat(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    begin, end = _piece(chance, data)
    return data[:begin] + data[begin:end] * chance.choice((2, 3, 100)) + data[end:]


def _splice(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    other = chance.choice(samples)
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def _insert(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    begin, end = _piece(chance, data)
    return data[:begin] + chance.choice(STRANGE) + data[chance.choice((begin, end)) :]


def _number(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    """Put another number in the place of one: of the file, a near one, a random one, or a strange one."""
    match, other = _somewhere(chance, _NUMBER, data), _somewhere(chance, _NUMBER, data)
    if match is None or other is None:
        return data
    match chance.randrange(4):
        case 0:
            number = other[0]
        case 1:
            number = b"%d" % (int(other[0].partition(b".")[0][:_DIGITS] or 0) + chance.choice((-1, 1)))
        case 2:
            number = b"%d" % chance.randint(0, 2 ** chance.randint(1, 80))
        case _:
            number = chance.choice(NUMBERS)
    return data[: match.start()] + number + data[match.end() :]


_DIGITS = 30


def _word(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Put another word of the file or of a sample in the place of one."""
    match, other = _somewhere(chance, _WORD, data), _somewhere(chance, _WORD, chance.choice((data, *samples)))
    if match is None or other is None:
        return data
    return data[: match.start()] + other[0][:_LONGEST] + data[match.end() :]


_LONGEST = 200


def _somewhere(chance: Random, what: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    """Find what stands at or after a place that chance gives, or else the first of all."""
    return what.search(data, chance.randint(0, len(data))) or what.search(data)


def _lines(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    """Double, drop, swap or join lines."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    place = chance.randrange(len(lines) - 1)
    match chance.randrange(4):
        case 0:
            lines.insert(chance.randrange(len(lines)), lines[place])
        case 1:
            del lines[place]
        case 2:
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
        case _:
            lines[place] = lines[place].rstrip(b"\r\n")
    return b"".join(lines)


def _json(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Change one value of JSON, of the file or of one of its lines."""
    begin, end = 0, len(data)
    if not data.startswith((b"{", b"[")) or chance.random() < 0.5:
        line = chance.choice(data.splitlines(keepends=True) or [b""])
        begin = data.find(line)
        end = begin + len(line)
    try:
        value = json.loads(data[begin:end])
        written = json.dumps(_changed(chance, value, 0)).encode()
    except (ValueError, RecursionError):
        return _number(chance, data, samples)
    return data[:begin] + written + (b"\n" if data[begin:end].endswith(b"\n") else b"") + data[end:]


def _changed(chance: Random, value: Any, depth: int) -> Any:  # noqa: ANN401  any JSON
    """Walk down to some value, and change it."""
    if not isinstance(value, (dict, list)) or not value or depth > _DEPTH or chance.random() < 0.15:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        return _changed_object(chance, value, depth)
    place = chance.randrange(len(value))
    match chance.randrange(8):
        case 0:
            return value[:place] + value[place + 1 :]
        case 1:
            return value[:place] + [value[place]] * chance.choice((2, 50)) + value[place:]
        case 2:
            return [*value, chance.choice(VALUES)]
    return [*value[:place], _changed(chance, value[place], depth + 1), *value[place + 1 :]]


def _changed_object(chance: Random, value: dict[str, Any], depth: int) -> dict[str, Any]:
    key = chance.choice(sorted(value))
    match chance.randrange(8):
        case 0:
            return {other: below for other, below in value.items() if other != key}
        case 1:
            return {**value, key: value[chance.choice(sorted(value))]}
    return {**value, key: _changed(chance, value[key], depth + 1)}


def _wire(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Change one field of protocol buffers, and lengths with it; of text a word."""
    return wire_damage.damage(chance, data) if b"\0" in data else _word(chance, data, samples)


_DAMAGES: tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...] = (
    _cut,
    _flip,
    _drop,
    _repeat,
    _splice,
    _insert,
    _number,
    _number,
    _lines,
    _word,
    _wire,
    _wire,
    _json,
    _json,
    _json,
)


def _gzip(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as all packings
    return gzip.compress(data, 1, mtime=0)


def _xz(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    return lzma.compress(data, preset=0)


def _torn(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Damage what is packed."""
    packed = chance.choice((_gzip, _xz, _tar))(chance, data, samples)
    return chance.choice((_cut, _flip, _drop, _insert))(chance, packed, [data])


def _doubly(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    return gzip.compress(chance.choice((_gzip, _xz, _tar))(chance, data, samples), 1, mtime=0)


def _job(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Pack the files of several ranks, of which one is damaged, and perhaps others are of other jobs."""
    count, damaged = chance.randint(2, 4), chance.randrange(2)
    others = [chance.choice((chance.choice(samples), data)) for _ in range(count)]
    contents = [data if rank == damaged else _of_rank(other, rank) for rank, other in enumerate(others)]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for rank, content in enumerate(contents):
            member = tarfile.TarInfo(f"trace.{rank}.et")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _of_rank(data: bytes, rank: int) -> bytes:
    return re.sub(rb'("rank": ?)\d+', rb"\g<1>%d" % rank, data)


def _tar(chance: Random, data: bytes, samples: Sequence[bytes]) -> bytes:  # noqa: ARG001  as above
    """Pack an archive with members that are no files of a trace, or want to be elsewhere."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as tar:
        for name in chance.sample(_NAMES, chance.randint(1, 4)):
            member = tarfile.TarInfo(name)
            member.type = chance.choice(_TYPES)
            member.linkname = chance.choice(_NAMES)
            member.mode = 0o7777
            content = chance.choice((data, b"", data[: len(data) // 2]))
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    packed = bytearray(stream.getvalue())
    if chance.random() < 0.2:
        packed[124:136] = b"77777777777\x00"
    return bytes(packed)


_NAMES = (
    "trace.json",
    "rank_0/trace.json",
    "../../escaped",
    "/tmp/fabricsim_escaped",  # noqa: S108  what nothing may write
    "a/../../../escaped",
    "trace\nname",
    ".hidden",
    "x" * 300,
    "CON",
)
_TYPES = (tarfile.REGTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
          tarfile.CHRTYPE, tarfile.DIRTYPE, b"Z")  # fmt: skip

_PACKINGS: tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...] = (
    _gzip,
    _xz,
    _torn,
    _torn,
    _doubly,
    _tar,
    _tar,
)


@cache
def bombs() -> tuple[bytes, ...]:
    """Small files that unpack to `BOMB` bytes: of spaces, of brackets, of empty lines, in gzip, in xz, and in both."""
    times = BOMB // 2**20
    packed = [gzip.compress(filler * 2**20, 9, mtime=0) * times for filler in (b"[", b"\n", b"0")]
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=9, mtime=0) as file:  # all others are of many streams
        for _ in range(times):
            file.write(b" " * 2**20)
    xz = lzma.compress(b" " * 2**20) * times
    return (stream.getvalue(), *packed, xz, gzip.compress(xz, mtime=0), gzip.compress(packed[0], mtime=0))
