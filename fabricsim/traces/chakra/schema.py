"""Messages of Chakra execution traces, from and to their bytes.

Field numbers and types are those of the schema of github.com/mlcommons/chakra (schema/protobuf/et_def.proto). A file is
a row of messages, each after its length as varint: one `Metadata`, then `Node` after `Node`.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL, STORAGE, BATCH, CHECKPOINT = range(11)
"""Types of a node."""

_MOST_MESSAGE = 16 * 2**20
"""Bytes of the longest message; an optimizer's node of a large model lists its tensors in a few MiB."""
_MOST_ATTRIBUTES = 2**20
_SHORT = 64  # bytes of attributes that are worth keeping: most nodes say the same of themselves
SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Types of an attribute's value: each has a field for one value and the next for a list of them."""

Value = int | float | bool | str | bytes
"""Of an attribute."""


class WireError(ValueError):
    """Bytes that are no message."""


class Attribute(NamedTuple):
    """What a node or file says beyond its fields.

    `name`: such as ``"comm_size"``.
    `kind`: name of the type of its value, such as ``"int64"``; empty if it has none.
    `value`: a list is a tuple.
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


class ChakraNode(NamedTuple):
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


# name of the field and its type, by number from 1; a list if the type ends in *
_TENSORS = ("values string", "shapes string", "types string")
_METADATA = ("version string", "attributes bytes*")
_NODE = (
    *("id uint64", "name string", "type int32", "control uint64*", "data uint64*", "start uint64", "duration uint64"),
    *("inputs Tensors", "outputs Tensors", "attributes bytes*"),
)
_ATTRIBUTE = (
    *("name string", "description string"),
    *(f"{kind}{suffix}" for kind in SCALARS for suffix in (f"_value {kind}", f"_list {kind}s")),
)
_ONE_OF = 2  # from this place on at most one field of an attribute is set


class Classes(NamedTuple):
    """The classes of the protobuf package for the schema.

    Attributes are bytes to nodes and metadata, which look the same in a file: so those that nobody wants cost little.
    """

    metadata: Callable[..., Any]
    node: Callable[..., Any]
    attribute: Callable[..., Any]
    damage: type[Exception]


@lru_cache
def classes() -> Classes:
    """Make the classes; the package is loaded only then."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: PLC0415  slow to load

    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    lists = {f"{kind}s": (f"values {kind}*",) for kind in SCALARS}
    messages = {"Tensors": _TENSORS, "Metadata": _METADATA, "Node": _NODE, "Attribute": _ATTRIBUTE, **lists}
    for name, fields in messages.items():
        added = file.message_type.add(name=name)
        for place, text in enumerate(fields):
            field, kind = text.removesuffix("*").split()
            made = added.field.add(name=field, number=place + 1)
            made.label = of.LABEL_REPEATED if text.endswith("*") else of.LABEL_OPTIONAL
            if kind in messages:
                made.type, made.type_name = of.TYPE_MESSAGE, f".chakra.{kind}"
            else:
                made.type = of.Type.Value(f"TYPE_{kind.upper()}")
            if name == "Attribute" and place >= _ONE_OF:
                made.oneof_index = 0
        if name == "Attribute":
            added.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    metadata, node, attribute = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in ("Metadata", "Node", "Attribute")
    )
    return Classes(metadata, node, attribute, message.DecodeError)


def messages(stream: BinaryIO) -> Iterator[bytes]:
    """Cut a file into its messages. Raises WireError if it ends within one, or one is too long to be true."""
    while (length := _length(stream)) is not None:
        if length > _MOST_MESSAGE:
            raise WireError(f"it says that it has {length} bytes; at most {_MOST_MESSAGE // 2**20} MiB are read")
        message = stream.read(length)
        if len(message) < length:
            raise WireError(f"it says that it has {length} bytes, and {len(message)} follow")
        yield message


def _length(stream: BinaryIO) -> int | None:
    value = shift = 0
    while byte := stream.read(1):
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:  # noqa: PLR2004  the bit that says: more follow
            return value
        if value > _MOST_MESSAGE or shift > 63:  # noqa: PLR2004  the tenth byte is the last of a varint
            raise WireError("its length is no number")
    if shift:
        raise WireError("it ends within the length of a message")
    return None


def _parsed(kind: Callable[..., Any], data: bytes) -> Any:  # noqa: ANN401  a message, whose class is made at run time
    message = kind()
    try:
        message.MergeFromString(data)
    except classes().damage as error:
        raise WireError("it is damaged: its fields are not those of the schema, or end too early") from error
    return message


def is_metadata(data: bytes) -> bool:
    """Whether a message is one of metadata and nothing else, with something in it."""
    if data[:1] not in _FIRST_OF_METADATA:  # so that the package is not loaded for most other files
        return False
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415  as in `classes`

    try:
        decode_metadata(data)
        return not len(UnknownFieldSet(_parsed(classes().metadata, data)))
    except WireError:
        return False


_FIRST_OF_METADATA = (b"\x0a", b"\x12")  # before the lengths of its fields


def decode_metadata(data: bytes) -> Metadata:
    """Read the first message of a file."""
    message = _parsed(classes().metadata, data)
    return Metadata(message.version, _attributes(message.attributes))


def decode_node(data: bytes, *, wanted: Container[bytes] | None = None) -> ChakraNode:
    """Read one of the other messages.

    `wanted`: names of the attributes to read, for speed; if given, the text about tensors is left out, too.
    """
    message = _parsed(classes().node, data)
    return ChakraNode(
        message.id,
        message.name,
        message.type,
        tuple(message.control),
        tuple(message.data),
        message.start,
        message.duration,
        _tensors(message, "inputs") if wanted is None else None,
        _tensors(message, "outputs") if wanted is None else None,
        _attributes(message.attributes, wanted),
    )


def _tensors(message: Any, field: str) -> Tensors | None:  # noqa: ANN401  as above
    text = getattr(message, field)
    return Tensors(text.values, text.shapes, text.types) if message.HasField(field) else None


def _attributes(parts: Sequence[bytes], wanted: Container[bytes] | None = None) -> tuple[Attribute, ...]:
    if len(parts) > _MOST_ATTRIBUTES:
        raise WireError(f"it has more than {_MOST_ATTRIBUTES} attributes")
    kept = parts if wanted is None else [part for part in parts if not _is_other(part, wanted)]
    return tuple([_short_attribute(part) if len(part) <= _SHORT else _attribute(part) for part in kept])


def _is_other(attribute: bytes, wanted: Container[bytes]) -> bool:
    """Whether an attribute begins with its name, as they are written, and that is none of those wanted."""
    return len(attribute) > 1 and attribute[0] == _NAME_KEY and attribute[2 : 2 + attribute[1]] not in wanted


_NAME_KEY = 1 << 3 | 2  # before the length of a name


def _attribute(data: bytes) -> Attribute:
    message = _parsed(classes().attribute, data)
    field = message.WhichOneof("value")
    if field is None:
        return Attribute(message.name, description=message.description)
    kind, _, form = field.partition("_")
    value = getattr(message, field)
    if form == "list":
        return Attribute(message.name, f"{kind} list", tuple(value.values), message.description)
    return Attribute(message.name, kind, value, message.description)


_short_attribute = lru_cache(maxsize=4096)(_attribute)


def encode_file_message(message: bytes) -> bytes:
    """Put the length of a message before it, as in a file."""
    length, out = len(message), bytearray()
    while length >= 0x80:  # noqa: PLR2004  as in `_length`
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + message


def encode_metadata(metadata: Metadata) -> bytes:
    """Write the first message of a file."""
    attributes = map(_encoded_attribute, metadata.attributes)
    return _written(classes().metadata(version=metadata.version, attributes=attributes))


def encode_node(node: ChakraNode) -> bytes:
    """Write one of the other messages."""
    tensors = {
        key: text._asdict() for key, text in (("inputs", node.inputs), ("outputs", node.outputs)) if text is not None
    }
    fields = node._asdict() | {"attributes": map(_encoded_attribute, node.attributes)}
    return _written(classes().node(**(fields | tensors)))


def _encoded_attribute(attribute: Attribute) -> bytes:
    message = classes().attribute(name=attribute.name, description=attribute.description)
    kind, _, is_list = attribute.kind.partition(" ")
    if is_list:
        values = getattr(message, f"{kind}_list")
        values.SetInParent()  # though it is empty
        values.values.extend(attribute.value)
    elif kind:
        setattr(message, f"{kind}_value", attribute.value)
    return _written(message)


def _written(message: Any) -> bytes:  # noqa: ANN401  as above
    written: bytes = message.SerializeToString(deterministic=True)
    return written
