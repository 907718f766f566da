"""Protocol buffers on the wire: fields of a message, taken apart and put together without a schema.

Source: "Encoding", protobuf.dev/programming-guides/encoding. What a reader does not know it skips, as the format asks.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_OPEN, _CLOSE = 3, 4
_MOST_NESTED = 100
"""Groups within groups; the protobuf library's own limit."""
_MOST_VARINT = 10
"""Bytes of the longest varint."""
_MOST_FIELDS = 2**20
_KEY_BITS = 32
_FIRST_KEY = 1 << 3
"""Of field 1; there is no field 0."""
_CONTINUED = 0x80
"""Bit of a varint's byte that says: more follow."""
_64_BITS = 2**64 - 1
_CUT, _LONG = "a number is cut", f"a number has more than {_MOST_VARINT} bytes"

Field = tuple[int, int, int | bytes]
"""Number, wire type, and an int of 64 bits for a varint, else the bytes."""


class WireError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; returns its low 64 bits and where it ends."""
    value = shift = 0
    for place in range(at, min(at + _MOST_VARINT, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return value & _64_BITS, place + 1
        shift += 7
    raise WireError(_CUT if len(data) < at + _MOST_VARINT else _LONG)


def fields(data: bytes) -> Iterator[Field]:
    """Take a message apart, in the order of its bytes.

    Raises
    ------
    WireError
        If it is cut, or is no message.
    """
    at, end = 0, len(data)
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return
        key = data[at]
        at += 1
        if not _FIRST_KEY <= key < _CONTINUED:
            key, at = _key(data, at - 1)
        wire = key & 7
        # a short text or message and a small number, as most are, cost no call
        short = data[at] if at < end else _CONTINUED
        if wire == BYTES and short < _CONTINUED and short < end - at:
            first = at + 1
            at = first + short
            yield key >> 3, wire, data[first:at]
        elif wire == VARINT and short < _CONTINUED:
            at += 1
            yield key >> 3, wire, short
        elif wire == VARINT:
            value, at = varint(data, at)
            yield key >> 3, wire, value
        elif wire == _OPEN:
            at = _after_group(data, at, key >> 3)
        else:
            first, at = _extent(data, at, wire)
            yield key >> 3, wire, data[first:at]
    if at < end:
        msg = f"a message has more than {_MOST_FIELDS} fields"
        raise WireError(msg)


def _key(data: bytes, at: int) -> tuple[int, int]:
    key, at = varint(data, at)
    if not _FIRST_KEY <= key < 1 << _KEY_BITS:
        msg = f"a field has the number {key >> 3}"
        raise WireError(msg)
    return key, at


def _extent(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """Find where a value of some bytes begins and ends."""
    if wire == BYTES:
        length, at = (data[at], at + 1) if at < len(data) and data[at] < _CONTINUED else varint(data, at)
    elif wire in {FIXED64, FIXED32}:
        length = 8 if wire == FIXED64 else 4
    else:
        msg = f"a field has the wire type {wire}"
        raise WireError(msg)
    if length > len(data) - at:
        msg = f"a field of {length} bytes is cut"
        raise WireError(msg)
    return at, at + length


def _after_group(data: bytes, at: int, number: int) -> int:
    """Skip a group, an obsolete kind of message whose end is marked by a field."""
    inside = [number]
    while inside:
        key, at = _key(data, at)
        number, wire = key >> 3, key & 7
        if wire == _OPEN:
            inside.append(number)
            if len(inside) > _MOST_NESTED:
                msg = f"more than {_MOST_NESTED} groups are nested"
                raise WireError(msg)
        elif wire == _CLOSE:
            if inside.pop() != number:
                msg = "a group ends that has not begun"
                raise WireError(msg)
        elif wire == VARINT:
            _, at = varint(data, at)
        else:
            _, at = _extent(data, at, wire)
    return at


class Scalar(NamedTuple):
    """A type of numbers, text or bytes.

    Attributes
    ----------
    wire
        Its wire type.
    decode
        From what `fields` gives to the value.
    encode
        From the value to its bytes (without their length).
    """

    wire: int
    decode: Callable[[int | bytes], Value]
    encode: Callable[[Value], bytes]


Value = int | float | bool | str | bytes
"""Of a field that is no message."""


def encoded_varint(value: int) -> bytes:
    """Write the low 64 bits of a number as varint."""
    value &= _64_BITS
    out = bytearray()
    while value >= _CONTINUED:
        out.append(value & 0x7F | _CONTINUED)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded(number: int, wire: int, value: bytes) -> bytes:
    """Write a field whose value is written already."""
    key = encoded_varint(number << 3 | wire)
    return key + encoded_varint(len(value)) + value if wire == BYTES else key + value


def _integer(bits: int, *, signed: bool) -> Scalar:
    top, span = 1 << (bits - 1), 1 << bits

    def decode(value: int | bytes) -> Value:
        low = int(value) & (span - 1)  # a longer number is cut, as by the protobuf library
        return low - span if signed and low & top else low

    return Scalar(VARINT, decode, lambda value: encoded_varint(int(value)))


def _zigzag(bits: int) -> Scalar:
    def decode(value: int | bytes) -> Value:
        low = int(value) & ((1 << bits) - 1)
        return low >> 1 ^ -(low & 1)

    def encode(value: Value) -> bytes:
        return encoded_varint(int(value) << 1 if int(value) >= 0 else ~(int(value) << 1))

    return Scalar(VARINT, decode, encode)


def _packed(wire: int, form: str) -> Scalar:
    packing = struct.Struct(form)

    def decode(value: int | bytes) -> Value:
        number: int | float = packing.unpack(value)[0]  # type: ignore[arg-type]  # bytes, as `wire` says
        return number

    return Scalar(wire, decode, packing.pack)


def _text(value: int | bytes) -> str:
    try:
        return str(value, "utf-8")  # type: ignore[arg-type]  # bytes, as its wire type says
    except UnicodeDecodeError as error:
        msg = "a text is not in UTF-8"
        raise WireError(msg) from error


SCALARS: dict[str, Scalar] = {
    "double": _packed(FIXED64, "<d"),
    "float": _packed(FIXED32, "<f"),
    "int32": _integer(32, signed=True),
    "int64": _integer(64, signed=True),
    "uint32": _integer(32, signed=False),
    "uint64": _integer(64, signed=False),
    "sint32": _zigzag(32),
    "sint64": _zigzag(64),
    "fixed32": _packed(FIXED32, "<I"),
    "fixed64": _packed(FIXED64, "<Q"),
    "sfixed32": _packed(FIXED32, "<i"),
    "sfixed64": _packed(FIXED64, "<q"),
    "bool": Scalar(VARINT, bool, lambda value: encoded_varint(int(value))),
    "string": Scalar(BYTES, _text, lambda value: str(value).encode()),
    "bytes": Scalar(BYTES, lambda value: bytes(value), lambda value: bytes(value)),  # type: ignore[arg-type]  # noqa: PLW0108  bytes
}
"""The scalar types by their names in a schema."""


def repeated(kind: str, values: Iterable[tuple[int, int | bytes]]) -> list[Value]:
    """Read a repeated field, packed or not.

    Parameters
    ----------
    kind
        Name in `SCALARS`.
    values
        Wire types and values of the fields of its number; those of another wire type are skipped.
    """
    scalar, out = SCALARS[kind], []
    for wire, value in values:
        if wire == scalar.wire:
            out.append(scalar.decode(value))
        elif wire == BYTES and isinstance(value, bytes):
            parts = _varints(value) if scalar.wire == VARINT else _pieces(scalar.wire, value)
            out += parts if kind == "uint64" else [scalar.decode(part) for part in parts]
    return out


def _pieces(wire: int, data: bytes) -> list[int | bytes]:
    """Cut numbers of a fixed length apart."""
    pieces: list[int | bytes] = []
    at = 0
    while at < len(data):
        first, at = _extent(data, at, wire)
        pieces.append(data[first:at])
    return pieces


def _varints(data: bytes) -> list[int]:
    """Read varints that stand one after the other; their low 64 bits."""
    if data.isascii():  # each has one byte
        return list(data)
    values = []
    value = shift = 0
    for byte in data:
        if byte < _CONTINUED:
            values.append((value | byte << shift) & _64_BITS)
            value = shift = 0
        else:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift == 7 * _MOST_VARINT:
                raise WireError(_LONG)
    if shift:
        raise WireError(_CUT)
    return values


def encoded_repeated(number: int, kind: str, values: Iterable[Value]) -> bytes:
    """Write a repeated field: numbers packed, as proto3 does, text and bytes one by one."""
    scalar = SCALARS[kind]
    parts = [scalar.encode(value) for value in values]
    if scalar.wire == BYTES:
        return b"".join(encoded(number, BYTES, part) for part in parts)
    return encoded(number, BYTES, b"".join(parts)) if parts else b""
