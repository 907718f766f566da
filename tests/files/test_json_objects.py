from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.files import json_objects
from fabricsim.files.json_objects import ObjectList
from fabricsim.files.sources import Source

OPENING = re.compile(rb'\{"a": \[')
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=8)


def listed(text: bytes, **more: Any) -> ObjectList:  # noqa: ANN401
    return ObjectList(Source(Path("f.json"), "", text[: 2**16], BytesIO(text)), OPENING, **more)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(json_objects, "_CHUNK", 7)
        yield


@pytest.mark.usefixtures("small_chunks")
class TestInSmallPieces:
    @pytest.mark.slow
    @given(OBJECTS, st.booleans())
    def test_gives_what_json_gives(self, objects: list[Any], wide: bool) -> None:  # noqa: FBT001
        text = json.dumps({"a": objects, "b": 1}, ensure_ascii=False, indent=2 if wide else None)
        text = text.replace('{\n  "a": [', '{"a": [') if wide else text
        found = listed(text.encode())
        assert [json.loads(one) for one in found] == objects
        assert json.loads(b"{" + found.rest.strip().removeprefix(b",")) == {"b": 1}

    @pytest.mark.slow
    @given(OBJECTS, st.data())
    def test_a_list_that_is_cut_gives_what_is_whole_or_an_error(self, objects: list[Any], data: st.DataObject) -> None:
        text = json.dumps({"a": objects}, ensure_ascii=False).encode()[:-2]
        text = text[: data.draw(st.integers(len('{"a": ['), len(text)))]
        found = listed(text, may_end=True)
        whole = [json.loads(one) for one in found]
        assert whole == objects[: len(whole)]
        assert found.cut
        with pytest.raises(TraceError, match=f"is cut after item {len(whole)} of its list"):
            list(listed(text))

    def test_deeper_than_any_pattern(self) -> None:
        deep = b'{"x":' * 100 + b"1" + b"}" * 100
        assert list(listed(b'{"a": [' + deep + b"]}")) == [deep]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"b": [1]}', "no list"),
        (b'{"a": [{"x": 1}, 2]}', "item 1 of its list is no object"),
        (b'{"a": [' + b"{" * 1000, "item 0 of its list is nested too deep"),
        (b'{"a": [{"' + b"x" * (json_objects.MOST_OBJECT + 1), "more than 16 MiB"),
    ],
)
def test_mistakes(text: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        list(listed(text))
