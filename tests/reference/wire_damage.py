"""Damage to protocol buffers that leaves them whole: lengths still fit, so that what is inside gets read."""

from __future__ import annotations

from io import BytesIO
from random import Random

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fabricsim.traces.chakra.schema import WireError, encode_file_message, messages

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
Field = tuple[int, int, int | bytes]
"""Number, wire type, and an int for a varint, else the bytes."""
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_PLAIN = (VARINT, FIXED64, BYTES, FIXED32)
_VALUES = (0, 1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"\xff",
    b"\0",
    b"x" * 300,
    b"\x08" * 40,
    b"[]",
    b'[{"pg_name": "0", "ranks": [0, 1]}]',
    b"-1",
    b"9" * 99,
)
_DEPTH = 6


def damage(chance: Random, data: bytes) -> bytes:
    """Change one message of a stream of messages that each follow their length; what is no such stream stays."""
    try:
        whole = list(messages(BytesIO(data)))
    except WireError:
        return data
    if not whole:
        return data
    place = chance.randrange(len(whole))
    match chance.randrange(12):
        case 0:
            del whole[place]
        case 1:
            whole.insert(chance.randint(0, len(whole)), whole[place])
        case 2:
            whole[place] = whole[chance.randrange(len(whole))]
        case _:
            whole[place] = _message(chance, whole[place], 0)
    return b"".join(map(encode_file_message, whole))


def fields(data: bytes) -> list[Field]:
    """Take a message apart, without groups."""
    found = UnknownFieldSet(Empty.FromString(data))
    kept = [(field.field_number, field.wire_type, field.data) for field in found if field.wire_type in _PLAIN]
    return [
        (number, wire, value.to_bytes(_WIDTHS[wire], "little") if wire in _WIDTHS else value)
        for number, wire, value in kept
    ]


def encoded_varint(value: int) -> bytes:
    """Write the low 64 bits of a number."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encoded(number: int, wire: int, value: bytes) -> bytes:
    """Write a field whose value is written already."""
    key = encoded_varint(number << 3 | wire)
    return key + encoded_varint(len(value)) + value if wire == BYTES else key + value


def _message(chance: Random, data: bytes, depth: int) -> bytes:
    """Change one field, or one of the message that it holds."""
    try:
        found = fields(data)
    except DecodeError:
        return chance.choice(_TEXTS)
    if not found or depth > _DEPTH:
        return chance.choice(_TEXTS)
    place = chance.randrange(len(found))
    match chance.randrange(10):
        case 0:
            del found[place]
        case 1:
            found.insert(chance.randint(0, len(found)), found[place])
        case 2:
            number, wire, value = found[place]
            found[place] = (chance.choice((1, 2, 3, 5, 10, number + 1, 2**29 - 1)), wire, value)
        case 3:
            found[place] = (found[place][0], *_other(chance))
        case _:
            found[place] = _field(chance, found[place], depth)
    return b"".join(map(_encoded, found))


def _field(chance: Random, field: Field, depth: int) -> Field:
    number, wire, value = field
    if isinstance(value, int):
        near = (value + chance.choice((-1, 1))) % 2**64
        return number, wire, chance.choice((*_VALUES, near, near, near, chance.getrandbits(chance.randint(1, 64))))
    if wire != BYTES:
        return number, wire, chance.randbytes(_WIDTHS[wire])
    return number, wire, chance.choice(_TEXTS) if chance.random() < 0.2 else _message(chance, value, depth + 1)


def _other(chance: Random) -> tuple[int, int | bytes]:
    """Give a value of any wire type."""
    wire = chance.choice((VARINT, FIXED64, BYTES, FIXED32))
    if wire == VARINT:
        return wire, chance.choice(_VALUES)
    return wire, chance.choice(_TEXTS) if wire == BYTES else chance.randbytes(_WIDTHS[wire])


def _encoded(field: Field) -> bytes:
    number, wire, value = field
    return encoded(number, wire, encoded_varint(value) if isinstance(value, int) else value)
