"""Texts that were damaged on the way, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

PLACE = st.integers(0, 2**20)
STRANGE = st.sampled_from(
    [
        b"\x00",
        b"\xff\xfe",
        b"-1",
        b"1e999",
        b"nan",
        b"9" * 18,
        b"9" * 400,
        b"\n",
        b"\r\n\r\n",
        b"{" * 300,
        b"[" * 300,
        b'"',
        b"/*",
        b"//",
        b"\t",
        b" ",
        b",",
        "\u0661".encode(),  # a digit, but none of ASCII
    ]
)


@st.composite
def damaged(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """Take a sample and cut it, flip bits, double or drop pieces, splice it with another, put in strange ones."""
    text = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(PLACE) % (len(text) + 1)
        end = begin + draw(st.integers(0, 40))
        match draw(st.sampled_from(["cut", "flip", "drop", "double", "splice", "strange", "replace"])):
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
                at = draw(PLACE) % (len(other) + 1)
                text[begin:] = other[at:]
            case "strange":
                text[begin:begin] = draw(STRANGE)
            case "replace":
                text[begin:end] = draw(STRANGE)
    return bytes(text)
