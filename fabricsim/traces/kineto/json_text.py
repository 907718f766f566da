"""JSON walked over byte by byte: where a value ends, which of some names a word is, and numbers without rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUT, NO_JSON, TOO_DEEP = -1, -2, -3
"""In place of a position: the text ends too early, is no JSON, is too deeply nested."""
MOST_NESTED = 62
"""Brackets within brackets; the kinds of the open ones are bits of an int64."""
PS_PER_US = 1_000_000
WORD = 8
"""Bytes of a name that are looked at."""

_MOST_DIGITS = 18
_BASE = 10
_TOO_LARGE = 1e17  # us
_SIZE_SHIFT = 56
_MOST_SIZE = 127

QUOTE, _BACKSLASH, OBJECT, END_OF_OBJECT, END_OF_LIST = b'"\\{}]'
_MINUS, _PLUS, _POINT, _ZERO, _EXPONENT, _OLD_EXPONENT = b"-+.0eE"
_PLAIN, SPACE, _MARK, _OPENS, _CLOSES, COMMA, COLON = range(7)
_ENDS = np.array([False, True, False, False, True, True, False])  # of each kind, whether it ends a number or word
KIND = np.zeros(256, np.int8)  # of each byte between strings
for _kind, _bytes in {
    SPACE: b" \t\n\r",
    _MARK: b'"',
    _OPENS: b"[{",
    _CLOSES: b"]}",
    COMMA: b",",
    COLON: b":",
}.items():
    KIND[[*_bytes]] = _kind


def signature_of(name: str) -> int:
    """Give the `signature` of a name."""
    text = np.frombuffer(name.encode(), np.uint8)
    return sum(int(byte) << 8 * i for i, byte in enumerate(text[:WORD])) ^ len(text) << _SIZE_SHIFT


def table_of(values: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give signatures and values of names, for `looked_up`."""
    return np.array([*map(signature_of, values)], np.int64), np.array([*values.values()], np.int64)


@kernel
def past_space(text, position, end):
    """Give the place of the first byte from `position` on that is no space."""
    while position < end and KIND[text[position]] == SPACE:
        position += 1
    return position


@kernel
def past_string(text, position, end):
    """Give the place after the closing quotation mark; `position` is after the opening one."""
    while position < end:
        byte = text[position]
        if byte == QUOTE:
            return position + 1
        position += 1 + (byte == _BACKSLASH)
    return CUT


@kernel
def past_value(text, position, end):
    """Give the place after a value, or one of CUT, NO_JSON and TOO_DEEP; `position` is at its first byte."""
    kind = KIND[text[position]]
    if kind == _MARK:
        return past_string(text, position + 1, end)
    if kind == _OPENS:
        return past_brackets(text, position + 1, end, np.int64(text[position] == OBJECT))
    start = position
    while position < end:
        kind = KIND[text[position]]
        if kind != _PLAIN:
            return position if position > start and _ENDS[kind] else NO_JSON
        position += 1
    return CUT


@kernel
def past_brackets(text, position, end, kinds):
    """Give the place after what has been opened; `kinds` is 1 for an object, 0 for a list."""
    depth = 1
    while position < end:
        byte = text[position]
        kind = KIND[byte]
        position += 1
        if kind == _MARK:
            position = past_string(text, position, end)
            if position < 0:
                return CUT
        elif kind == _OPENS:
            if depth == MOST_NESTED:
                return TOO_DEEP
            kinds = (kinds << 1) | (byte == OBJECT)
            depth += 1
        elif kind == _CLOSES:
            if (kinds & 1) != (byte == END_OF_OBJECT):
                return NO_JSON
            kinds >>= 1
            depth -= 1
            if depth == 0:
                return position
    return CUT


@kernel
def signature(text, position, size):
    """Give the first bytes of a name and its length as one number, which tells apart all names that matter."""
    word = np.int64(min(size, _MOST_SIZE)) << _SIZE_SHIFT
    for i in range(min(size, WORD)):
        word ^= np.int64(text[position + i]) << (8 * i)
    return word


@kernel
def looked_up(text, position, size, signatures, values):
    """Look up a name; NONE if it is not in the table."""
    wanted = signature(text, position, size)
    for i in range(len(signatures)):
        if signatures[i] == wanted:
            return values[i]
    return np.int64(NONE)


@kernel
def _digit(text, position):
    value = np.int64(text[position]) - _ZERO
    return value if 0 <= value < _BASE else np.int64(NONE)


@kernel
def integer(text, position, end):
    """Read an integer that fits; otherwise NONE."""
    negative = position < end and text[position] == _MINUS
    position += negative
    value = np.int64(0)
    if position == end or end - position > _MOST_DIGITS:
        return np.int64(NONE)
    while position < end:
        digit = _digit(text, position)
        if digit == NONE:
            return np.int64(NONE)
        value = value * _BASE + digit
        position += 1
    return -value if negative else value


@kernel
def micros(text, position, end):
    """Read µs as digits: floats have too few bits. Gives whole µs, the rest in ps, and whether it is a number."""
    negative = position < end and text[position] == _MINUS
    position += negative
    whole, rest = np.int64(0), np.int64(0)
    digits = 0
    while position < end and _digit(text, position) != NONE:
        whole = whole * _BASE + _digit(text, position)
        digits += 1
        position += 1
        if digits > _MOST_DIGITS:
            return whole, rest, False
    if digits == 0:
        return whole, rest, False
    if position < end and text[position] == _POINT:
        position += 1
        unit = np.int64(PS_PER_US // _BASE)
        while position < end and _digit(text, position) != NONE:
            rest += unit * _digit(text, position)
            unit //= _BASE
            position += 1
    if position < end and (text[position] == _EXPONENT or text[position] == _OLD_EXPONENT):
        position += 1
        lower = position < end and text[position] == _MINUS
        position += lower or (position < end and text[position] == _PLUS)
        exponent = integer(text, position, end)
        if exponent < 0:
            return whole, rest, False
        value = (whole + rest / PS_PER_US) * float(_BASE) ** (-exponent if lower else exponent)
        if not value < _TOO_LARGE:
            return whole, rest, False
        whole = np.int64(value)
        rest = np.int64(np.rint((value - whole) * PS_PER_US))
        position = end
    if negative:
        whole, rest = -whole, -rest
    return whole, rest, position == end
