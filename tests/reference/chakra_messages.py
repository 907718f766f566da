"""Chakra's messages by the whole schema, put together here from numbers and names, and read message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fabricsim.traces.chakra.schema import SCALARS, Attribute, ChakraNode, Metadata, Tensors

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "ChakraProtoMsg"


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package=_PACKAGE, syntax="proto3")

    def message(name: str, *fields: tuple[int, str, str, bool], choice: int = 0) -> None:
        made = file.message_type.add(name=name)
        if choice:
            made.oneof_decl.add(name="value")
        for number, field, kind, repeated in fields:
            scalar = kind in SCALARS
            made.field.add(
                name=field,
                number=number,
                type=getattr(_FIELD, f"TYPE_{kind.upper()}") if scalar else _FIELD.TYPE_MESSAGE,
                type_name=None if scalar else f".{_PACKAGE}.{kind}",
                label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
                oneof_index=0 if choice and number >= choice else None,
            )

    values = []
    for place, kind in enumerate(SCALARS):
        message(f"{kind}List", (1, "values", kind, True))
        values += [(3 + 2 * place, f"{kind}_val", kind, False), (4 + 2 * place, f"{kind}_list", f"{kind}List", False)]
    message("Attribute", (1, "name", "string", False), (2, "doc_string", "string", False), *values, choice=3)
    message("Metadata", (1, "version", "string", False), (2, "attr", "Attribute", True))
    message("Tensors", *((number, name, "string", False) for number, name in enumerate(Tensors._fields, 1)))
    message(
        "Node",
        (1, "id", "uint64", False),
        (2, "name", "string", False),
        (3, "type", "int32", False),
        (4, "ctrl_deps", "uint64", True),
        (5, "data_deps", "uint64", True),
        (6, "start_time_micros", "uint64", False),
        (7, "duration_micros", "uint64", False),
        (8, "inputs", "Tensors", False),
        (9, "outputs", "Tensors", False),
        (10, "attr", "Attribute", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Metadata", "Node")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in names}


CLASSES = _classes()


def decoded(data: bytes, *, first: bool) -> ChakraNode | Metadata:
    """What the protobuf package makes of a message."""
    message = CLASSES["Metadata" if first else "Node"]()
    message.ParseFromString(data)
    return _metadata(message) if first else _node(message)


def _metadata(message: Message) -> Metadata:
    return Metadata(message.version, tuple(map(_attribute, message.attr)))


def _node(message: Message) -> ChakraNode:
    return ChakraNode(
        message.id,
        message.name,
        message.type,
        tuple(message.ctrl_deps),
        tuple(message.data_deps),
        message.start_time_micros,
        message.duration_micros,
        _tensors(message, "inputs"),
        _tensors(message, "outputs"),
        tuple(map(_attribute, message.attr)),
    )


def _tensors(message: Message, field: str) -> Tensors | None:
    text = getattr(message, field)
    return Tensors(text.values, text.shapes, text.types) if message.HasField(field) else None


def _attribute(message: Message) -> Attribute:
    field = message.WhichOneof("value")
    if field is None:
        return Attribute(message.name, description=message.doc_string)
    value, kind = getattr(message, field), field.rpartition("_")[0]
    if field.endswith("_list"):
        return Attribute(message.name, f"{kind} list", tuple(value.values), message.doc_string)
    return Attribute(message.name, kind, value, message.doc_string)


def encoded(what: ChakraNode | Metadata) -> bytes:
    """Write a message by the protobuf package."""
    if isinstance(what, Metadata):
        message = CLASSES["Metadata"](version=what.version)
    else:
        message = CLASSES["Node"](
            id=what.id,
            name=what.name,
            type=what.type,
            ctrl_deps=what.control,
            data_deps=what.data,
            start_time_micros=what.start,
            duration_micros=what.duration,
            inputs=what.inputs and what.inputs._asdict(),
            outputs=what.outputs and what.outputs._asdict(),
        )
    for attribute in what.attributes:
        made = message.attr.add(name=attribute.name, doc_string=attribute.description)
        if attribute.kind.endswith(" list"):
            values = getattr(made, attribute.kind.replace(" ", "_"))
            values.SetInParent()
            values.values.extend(attribute.value)
        elif attribute.kind:
            setattr(made, f"{attribute.kind}_val", attribute.value)
    return message.SerializeToString(deterministic=True)
