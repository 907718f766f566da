"""Messages of Chakra execution traces, from and to their bytes.

Field numbers and types are those of the schema of github.com/mlcommons/chakra (schema/protobuf/et_def.proto). A file is
a row of messages, each after its length as varint: one `Metadata`, then `Node` after `Node`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.traces.chakra.protobuf import (
    BYTES,
    SCALARS,
    WireError,
    encoded,
    encoded_repeated,
    encoded_varint,
    fields,
    repeated,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from typing import BinaryIO

    from fabricsim.traces.chakra.protobuf import Value

INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL, STORAGE, BATCH, CHECKPOINT = range(11)
"""Types of a node."""

_MOST_MESSAGE = 16 * 2**20
"""Bytes of the longest message; an optimizer's node of a large model lists its tensors in a few MiB."""
_KINDS = tuple(SCALARS)
_FIRST_VALUE = 3
"""Number of the first value of an attribute: each kind has one for a value and the next for a list of them."""
_VALUES = range(_FIRST_VALUE, _FIRST_VALUE + 2 * len(_KINDS))


class Attribute(NamedTuple):
    """What a node or file says beyond its fields.

    Attributes
    ----------
    name
        Such as ``"comm_size"``.
    kind
        Name of the type of its value, such as ``"int64"``; empty if it has none.
    value
        A list is a tuple.
    description
        In words.
    """

    name: str
    kind: str = ""
    value: Value | tuple[Value, ...] = ""
    description: str = ""


class Metadata(NamedTuple):
    """What a file says of itself."""

    version: str = ""
    attributes: tuple[Attribute, ...] = ()


class Tensors(NamedTuple):
    """Values, shapes and types of what a node reads or writes, as text."""

    values: str = ""
    shapes: str = ""
    types: str = ""


class Node(NamedTuple):
    """An operation; times in µs."""

    id: int = 0
    name: str = ""
    type: int = INVALID
    control: tuple[int, ...] = ()
    data: tuple[int, ...] = ()
    start: int = 0
    duration: int = 0
    inputs: Tensors | None = None
    outputs: Tensors | None = None
    attributes: tuple[Attribute, ...] = ()


def messages(stream: BinaryIO) -> Iterator[bytes]:
    """Cut a file into its messages.

    Raises
    ------
    WireError
        If it ends within one, or one is too long to be true.
    """
    while (length := _length(stream)) is not None:
        if length > _MOST_MESSAGE:
            msg = f"it says that it has {length} bytes; at most {_MOST_MESSAGE // 2**20} MiB are read"
            raise WireError(msg)
        message = stream.read(length)
        if len(message) < length:
            msg = f"it says that it has {length} bytes, and {len(message)} follow"
            raise WireError(msg)
        yield message


def _length(stream: BinaryIO) -> int | None:
    value = shift = 0
    while byte := stream.read(1):
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:  # noqa: PLR2004  the bit that says: more follow
            return value
        if value > _MOST_MESSAGE or shift > 63:  # noqa: PLR2004  the tenth byte is the last of a varint
            msg = "its length is no number"
            raise WireError(msg)
    if shift:
        msg = "it ends within the length of a message"
        raise WireError(msg)
    return None


def decode_metadata(data: bytes) -> Metadata:
    """Read the first message of a file."""
    version, attributes = "", []
    for number, wire, value in fields(data):
        if wire != BYTES or not isinstance(value, bytes):
            continue
        if number == 1:
            version = str(SCALARS["string"].decode(value))
        elif number == 2:  # noqa: PLR2004  numbers of the schema
            attributes.append(_attribute(value))
    return Metadata(version, tuple(attributes))


def decode_node(data: bytes, *, wanted: Container[bytes] | None = None) -> Node:
    """Read one of the other messages.

    Parameters
    ----------
    data
        The message.
    wanted
        Names of the attributes to read, for speed; where given, the text about tensors is left out, too.
    """
    numbers: dict[int, int] = {}  # the last of a field counts
    lists: dict[int, list[tuple[int, int | bytes]]] = {4: [], 5: []}
    texts: dict[int, list[bytes]] = {}
    attributes = []
    for number, wire, value in fields(data):
        if number in lists:
            lists[number].append((wire, value))
        elif isinstance(value, int):
            numbers[number] = value
        elif wire != BYTES:
            continue
        elif number == _ATTRIBUTE:
            if wanted is None or not _is_other(value, wanted):
                attributes.append(_short_attribute(value) if len(value) <= _SHORT else _attribute(value))
        elif number < _ATTRIBUTE:
            texts.setdefault(number, []).append(value)
    of_type = numbers.get(3, 0)
    return Node(
        numbers.get(1, 0),
        _text(texts.get(2)),
        of_type if of_type < _TOP else int(SCALARS["int32"].decode(of_type)),
        tuple(repeated("uint64", lists[4])),  # type: ignore[arg-type]  # of integers
        tuple(repeated("uint64", lists[5])),  # type: ignore[arg-type]  # as above
        numbers.get(6, 0),
        numbers.get(7, 0),
        _tensors(texts.get(8)) if wanted is None else None,
        _tensors(texts.get(9)) if wanted is None else None,
        tuple(attributes),
    )


def _is_other(attribute: bytes, wanted: Container[bytes]) -> bool:
    """Whether an attribute begins with its name, as they are written, and that is none of those wanted."""
    return len(attribute) > 1 and attribute[0] == _NAME_KEY and attribute[2 : 2 + attribute[1]] not in wanted


_NAME_KEY = 1 << 3 | BYTES
_ATTRIBUTE = 10
"""Number of a node's attributes, its last field but for those of storage."""
_TOP = 1 << 31
"""Numbers below are the same in 32 bits with a sign."""
_SHORT = 64
"""Bytes of attributes that are worth keeping: most nodes say the same of themselves."""


def _text(values: list[bytes] | None) -> str:
    """Read a text of which the last counts, though all must be such; empty if it is absent."""
    text = ""
    for value in values or ():
        text = str(SCALARS["string"].decode(value))
    return text


def _tensors(parts: list[bytes] | None) -> Tensors | None:
    """Read the text about tensors; several messages of one field are one, as the format has it."""
    if not parts:
        return None
    texts = {1: "", 2: "", 3: ""}
    for number, wire, value in fields(b"".join(parts)):
        if number in texts and wire == BYTES:
            texts[number] = str(SCALARS["string"].decode(value))
    return Tensors(texts[1], texts[2], texts[3])


def _attribute(data: bytes) -> Attribute:
    name = description = kind = ""
    found: Value | tuple[Value, ...] = ""
    lists = b""  # of the list that was last: pieces of one list add up
    for number, wire, value in fields(data):
        if number in {1, 2} and wire == BYTES:
            text = str(SCALARS["string"].decode(value))
            name, description = (text, description) if number == 1 else (name, text)
        elif number in _VALUES:
            of, is_list = _KINDS[(number - _FIRST_VALUE) // 2], (number - _FIRST_VALUE) % 2
            if is_list and wire == BYTES and isinstance(value, bytes):
                lists = lists + value if kind == f"{of} list" else value
                kind = f"{of} list"
                found = tuple(repeated(of, [(wire, value) for number, wire, value in fields(lists) if number == 1]))
            elif not is_list and wire == SCALARS[of].wire:
                kind, found = of, SCALARS[of].decode(value)
    return Attribute(name, kind, found, description)


_short_attribute = lru_cache(maxsize=4096)(_attribute)


def encode_file_message(message: bytes) -> bytes:
    """Put the length of a message before it, as in a file."""
    return encoded_varint(len(message)) + message


def encode_metadata(metadata: Metadata) -> bytes:
    """Write the first message of a file."""
    return _written(1, "string", metadata.version) + _attributes(2, metadata.attributes)


def encode_node(node: Node) -> bytes:
    """Write one of the other messages; what is 0 or empty is left out, as proto3 does."""
    parts = [
        _written(1, "uint64", node.id),
        _written(2, "string", node.name),
        _written(3, "int32", node.type),
        encoded_repeated(4, "uint64", node.control),
        encoded_repeated(5, "uint64", node.data),
        _written(6, "uint64", node.start),
        _written(7, "uint64", node.duration),
    ]
    for number, tensors in ((8, node.inputs), (9, node.outputs)):
        if tensors is not None:
            texts = b"".join(_written(field, "string", text) for field, text in enumerate(tensors, 1))
            parts.append(encoded(number, BYTES, texts))
    return b"".join(parts) + _attributes(10, node.attributes)


def _written(number: int, kind: str, value: Value) -> bytes:
    return encoded(number, SCALARS[kind].wire, SCALARS[kind].encode(value)) if value else b""


def _attributes(number: int, attributes: tuple[Attribute, ...]) -> bytes:
    return b"".join(encoded(number, BYTES, _encoded_attribute(attribute)) for attribute in attributes)


def _encoded_attribute(attribute: Attribute) -> bytes:
    name, kind, value, description = attribute
    head = _written(1, "string", name) + _written(2, "string", description)
    if not kind:
        return head
    of = kind.removesuffix(" list")
    number = _FIRST_VALUE + 2 * _KINDS.index(of)
    if isinstance(value, tuple):
        return head + encoded(number + 1, BYTES, encoded_repeated(1, of, value))
    return head + encoded(number, SCALARS[of].wire, SCALARS[of].encode(value))  # of several: written though it is 0
