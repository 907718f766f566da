"""Chakra's messages against the whole schema, read message by message."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.files.sources import sources
from fabricsim.traces.chakra import schema
from fabricsim.traces.chakra.schema import SCALARS, WireError
from tests.reference import chakra_messages

_WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
_VALUES = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "bool": st.booleans(),
    "string": _WORDS,
    "bytes": st.binary(max_size=12),
}


def _values(kind: str) -> st.SearchStrategy[object]:
    if kind in _VALUES:
        return _VALUES[kind]
    bits = int(kind[-2:])
    signed = not kind.startswith(("u", "fixed"))
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


@st.composite
def _attributes(draw: st.DrawFn) -> schema.Attribute:
    name, description = draw(_WORDS), draw(st.just("") | _WORDS)
    kind = draw(st.sampled_from(["", *SCALARS]))
    if not kind:
        return schema.Attribute(name, description=description)
    if draw(st.booleans()):
        return schema.Attribute(name, kind, draw(_values(kind)), description)
    return schema.Attribute(name, f"{kind} list", tuple(draw(st.lists(_values(kind), max_size=4))), description)


_NUMBERS = st.integers(0, 2**64 - 1)
_DEPENDENCIES = st.lists(_NUMBERS, max_size=5).map(tuple)
_SEVERAL = st.lists(_attributes(), max_size=3).map(tuple)
_TENSORS = st.none() | st.builds(schema.Tensors, _WORDS, _WORDS, _WORDS)
_NODES = st.builds(
    schema.ChakraNode,
    _NUMBERS,
    _WORDS,
    st.integers(-(2**31), 2**31 - 1),
    _DEPENDENCIES,
    _DEPENDENCIES,
    _NUMBERS,
    _NUMBERS,
    _TENSORS,
    _TENSORS,
    _SEVERAL,
)
_METADATA = st.builds(schema.Metadata, _WORDS, _SEVERAL)


@pytest.mark.slow
@settings(max_examples=60)
@given(node=_NODES)
def test_nodes_are_as_the_package_has_them(node: schema.ChakraNode) -> None:
    data = chakra_messages.encoded(node)
    assert schema.decode_node(data) == node == chakra_messages.decoded(data, first=False)
    assert schema.encode_node(node) == data


@pytest.mark.slow
@settings(max_examples=30)
@given(metadata=_METADATA)
def test_metadata_is_as_the_package_has_it(metadata: schema.Metadata) -> None:
    data = chakra_messages.encoded(metadata)
    assert schema.decode_metadata(data) == metadata == chakra_messages.decoded(data, first=True)
    assert schema.encode_metadata(metadata) == data


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.lists(_NODES.map(schema.encode_node), min_size=1, max_size=2).map(b"".join), flips=st.data())
def test_damaged_and_joined_messages_are_as_the_package_has_them(data: bytes, flips: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(flips.draw(st.integers(0, 2)) if data else 0):
        damaged[flips.draw(st.integers(0, len(data) - 1))] ^= 1 << flips.draw(st.integers(0, 7))
    try:
        wanted = chakra_messages.decoded(bytes(damaged), first=False)
    except DecodeError:
        with pytest.raises(WireError):
            schema.decode_node(bytes(damaged))
    else:
        assert repr(schema.decode_node(bytes(damaged))) == repr(wanted)  # NaN is not equal to itself


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05ab",  # a field is cut
        b"\x08\xff",  # a number is
        b"\x08" + b"\xff" * 10 + b"\x01",  # a number of too many bytes
        b"\x0f",  # no wire type
        b"\x02\x00",  # field 0
        b"\x0b\x14",  # the end of another group
        b"\x0b" * 200,
        b"\x12\x02\xff\xfe",  # no UTF-8
        b"\x52\x03\x0a\x01\xff",  # the same within an attribute
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(WireError, match="damaged"):
        schema.decode_node(data)


def test_unknown_fields_are_skipped() -> None:
    unknown = b"".join(
        [
            b"\xc0\x0c\x05",  # field 200, a number
            b"\xca\x0c\x04more",
            b"\xd5\x0c" + bytes(4),
            b"\xd9\x0c" + bytes(8),
            b"\xe3\x0c\x08\x01\xe4\x0c",  # a group
            b"\x0d" + bytes(4),  # an id of another wire type
        ]
    )
    node = schema.ChakraNode(7, "step", schema.COMP)
    assert schema.decode_node(unknown + schema.encode_node(node) + unknown) == node


def test_attributes_that_are_not_wanted_are_left_out() -> None:
    known, other = schema.Attribute("tid", "int64", 3), schema.Attribute("op_schema", "string", "f() -> int")
    nameless = schema.Attribute("", "int64", 4)
    data = schema.encode_node(schema.ChakraNode(7, attributes=(other, known, nameless), inputs=schema.Tensors("[1]")))
    assert schema.decode_node(data, wanted={b"tid"}) == schema.ChakraNode(7, attributes=(known, nameless))


def test_a_number_may_stand_in_more_bytes_than_it_needs() -> None:
    assert schema.decode_node(b"\x08\x85\x80\x00").id == 5


def test_repeated_numbers_need_not_be_packed() -> None:
    assert schema.decode_node(b"\x28\x01\x2a\x02\x02\x03\x28\x04").data == (1, 2, 3, 4)


def test_too_many_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_MOST_ATTRIBUTES", 100)
    assert len(schema.decode_node(b"\x52\x00" * 100).attributes) == 100
    with pytest.raises(WireError, match="more than 100 attributes"):
        schema.decode_node(b"\x52\x00" * 101)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (b"\x05ab", "5 bytes, and 2 follow"),
        (b"\x80", "within the length"),
        (b"\xff" * 9, "no number"),
        (b"\x80\x80\x80\x09", "at most 16 MiB"),
    ],
)
def test_what_is_no_file(file: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        list(schema.messages(io.BytesIO(file)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("archive", "only"),
    [
        ("chakra/feeder_tests_trace.tar.gz", None),
        ("chakra_llama/stage_llama_dp2tp2pp2.tar.xz", "*.et"),
        ("astrasim/examples.tar.xz", "*.et"),
    ],
)
def test_real_files_are_as_the_package_has_them(traces: Path, archive: str, only: str | None) -> None:
    for source in sources([traces / archive], only):
        for number, message in enumerate(schema.messages(source.stream)):
            mine = schema.decode_node(message) if number else schema.decode_metadata(message)
            assert mine == chakra_messages.decoded(message, first=not number)
            assert (schema.encode_node(mine) if number else schema.encode_metadata(mine)) == message
