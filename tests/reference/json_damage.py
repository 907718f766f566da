"""JSON files that were damaged on the way, or never were right, drawn by hypothesis."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

_STRANGE = [
    b"\x00",
    b"\xff",
    b"1e999",
    b"NaN",
    b"-1",
    b"9" * 400,
    b"[" * 3000,
    b'{"a":' * 3000,
    b'"',
    b"\\",
    b"]",
    b"}",
]
_VALUES: list[Any] = [
    None,
    True,
    -1,
    2**63,
    10**400,
    1.5,
    1e300,
    "",
    "x" * 300,
    "[0,",
    [],
    [[]],
    [2**70],
    {},
    {"a": []},
]


@st.composite
def damaged_text(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """Cut a sample, flip bits, take pieces out, double them, splice it with another, put in what does not belong."""
    text = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = begin + draw(st.integers(0, 60))
        match draw(st.sampled_from(["cut", "flip", "drop", "double", "splice", "strange"])):
            case "cut":
                del text[begin:]
            case "flip" if begin < len(text):
                text[begin] ^= 1 << draw(st.integers(0, 7))
            case "drop":
                del text[begin:end]
            case "double":
                text[begin:begin] = text[begin:end] * draw(st.integers(1, 50))
            case "splice":
                other = draw(st.sampled_from(samples))
                text[begin:] = other[draw(st.integers(0, len(other))) :]
            case "strange":
                text[begin:begin] = draw(st.sampled_from(_STRANGE))
    return bytes(text)


@st.composite
def wrong_values(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """Put values of other types, or out of all range, into a sample that stays JSON."""
    tree = json.loads(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["value", "drop", "double"])):
            case "value":
                holder[key] = deepcopy(draw(st.sampled_from(_VALUES)))
            case "drop":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.append(deepcopy(holder[key]))
    return json.dumps(tree).encode()


def _places(tree: dict[Any, Any] | list[Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _places(value)
