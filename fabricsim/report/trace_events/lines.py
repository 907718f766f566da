"""Many lines that differ in numbers alone: what they have in common is said once, as templates."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NONE
from fabricsim.units import PS_PER_US

MICROSECONDS = 0
_MOST_DIGITS = 19  # of 64 bits
_MOST_BYTES = 20  # of a number: 19 digits and a point
_POINT = ord(".")
_HUNDRED = np.uint64(100)  # without a sign to look at, a division takes half the time
_PAIRS = np.frombuffer(b"".join(b"%02d" % pair for pair in range(100)), np.uint8)
"""The digits of each number below 100."""
_BLOCK = 16
"""Bytes that are copied at once; those beyond the end of a text are written over by what comes next."""


class Number(NamedTuple):
    """A number of at least 0 in a line.

    `column`: that it is in.
    `digits`: how many it has at least, or MICROSECONDS: it is a time in ps that is written as us, to the ps.
    """

    column: int
    digits: int = 1


Template = list[bytes | Number]


class Lines(NamedTuple):
    """Lines that are not written out yet: the size of their text at most, and what `_write` takes."""

    most: int
    common: NDArray[np.uint8]
    steps: NDArray[np.int64]
    each: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    numbers: NDArray[np.int64]

    def text(self) -> memoryview:
        """Write them out."""
        text = np.empty(self.most, np.uint8)
        return text[: _write(text, *self[1:])].data


def lines(templates: Sequence[Template], which: NDArray[np.int64], numbers: Sequence[NDArray[np.int64]]) -> Lines:
    """Make lines, those of each template together, since they pack well.

    `which`: template of each line, shape ``(n,)``.
    `numbers`: columns of shape ``(n,)``.
    """
    parts = [part for template in templates for part in template]
    texts = [part if isinstance(part, bytes) else b"" for part in parts]
    ends = np.cumsum([len(text) for text in texts])
    fields = [Number(NONE) if isinstance(part, bytes) else part for part in parts]
    steps = np.column_stack([np.concatenate([[0], ends[:-1]]), ends, np.array(fields)])
    firsts = np.cumsum([0, *map(len, templates)])
    most = [sum(len(part) if isinstance(part, bytes) else _MOST_BYTES for part in template) for template in templates]
    which = np.ascontiguousarray(which, np.int64)
    order = np.argsort(which.astype(np.min_scalar_type(len(templates))), kind="stable")
    common = np.frombuffer(b"".join([*texts, bytes(_BLOCK)]), np.uint8)
    size = int(np.array(most)[which].sum()) + _BLOCK
    return Lines(size, common, steps, (firsts, which, order), np.column_stack(numbers))


def compact(value: Any) -> bytes:  # noqa: ANN401  whatever JSON has
    """Write JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


@kernel
def _write(
    text: NDArray[np.uint8],
    common: NDArray[np.uint8],
    steps: NDArray[np.int64],
    each: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    numbers: NDArray[np.int64],
) -> int:
    """Write lines into `text`, and give how many bytes they take.

    `steps`: where a text in `common` begins and ends, and the column and digits of a number; shape ``(steps, 4)``.
    `each`: the first step of each template, the template of each line, and the order of lines.
    """
    firsts, which, order = each
    at = 0
    for line in order:
        for step in range(firsts[which[line]], firsts[which[line] + 1]):
            begin, end, column, digits = steps[step]
            for block in range(begin, end, _BLOCK):
                for byte in range(block, block + _BLOCK):  # no index counts from the end: that would keep it from SIMD
                    text[np.uint64(at - begin + byte)] = common[np.uint64(byte)]
            at += end - begin
            if column == NONE:
                continue
            number = numbers[line, column]
            if digits == MICROSECONDS:
                whole = number // PS_PER_US
                at = _write_number(text, at, whole, 1)
                text[at] = _POINT
                at = _write_number(text, at + 1, number - whole * PS_PER_US, 6)
            else:
                at = _write_number(text, at, number, digits)
    return at


@kernel
def _write_number(text: NDArray[np.uint8], at: int, number: int, least: int) -> int:
    """Write a number with so many digits at least, and give where it ends."""
    digits, above = 1, 10
    while digits < _MOST_DIGITS and number >= above:
        digits, above = digits + 1, above * 10
    end = place = at + max(digits, least)
    left = np.uint64(number)
    while place > at + 1:
        place -= 2
        rest = left // _HUNDRED
        pair = 2 * (left - rest * _HUNDRED)
        text[place], text[place + 1] = _PAIRS[pair], _PAIRS[pair + 1]
        left = rest
    if place > at:
        text[at] = _PAIRS[2 * left + 1]
    return end
