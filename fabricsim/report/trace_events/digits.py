"""Many lines that differ in numbers alone, as bytes: a column of digits is filled at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Part = bytes | NDArray[np.uint8]

_GROUP = 4  # digits written at once
_BASE = 10**_GROUP
_PS_PER_US = 10**6


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Four digits of 0 to 9999 with leading zeros, and the same with leading spaces, shape ``(10000,)`` each."""
    numbers = np.arange(_BASE)
    digits = numbers[:, None] // 10 ** np.arange(_GROUP)[::-1] % 10
    zeros = (digits + ord("0")).astype(np.uint8)
    spaces = np.where(numbers[:, None] >= 10 ** np.arange(_GROUP)[::-1], zeros, ord(" ")).astype(np.uint8)
    return zeros.view(np.uint32)[:, 0], spaces.view(np.uint32)[:, 0]


def integers(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Write numbers of at least 0 with leading spaces, which JSON allows, shape ``(n, width)``."""
    zeros, spaces = _tables()
    groups = max(1, -(-len(str(int(values.max(initial=0)))) // _GROUP))
    digits = np.empty((len(values), groups), np.uint32)
    rest = values
    for group in range(groups - 1, 0, -1):
        above = rest // _BASE
        part = rest - above * _BASE
        digits[:, group] = np.where(above > 0, zeros[part], spaces[part])
        rest = above
    digits[:, 0] = spaces[rest]
    text = digits.view(np.uint8)
    text[:, -1] |= ord("0") & ~ord(" ")  # a space, in a zero, becomes a 0
    return text


def padded(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Write numbers of at least 0 and below 10^8 with leading zeros, shape ``(n, 8)``, as a name has them."""
    zeros, _ = _tables()
    return np.stack([zeros[part] for part in np.divmod(values, _BASE)], axis=1).view(np.uint8)


def microseconds(times: NDArray[np.int64]) -> list[Part]:
    """Write times of at least 0 ps as us, to the ps."""
    whole = times // _PS_PER_US
    return [integers(whole), b".", padded(times - whole * _PS_PER_US)[:, 2:]]


def lines(count: int, parts: Sequence[Part]) -> memoryview:
    """Join parts to `count` lines: bytes that all have, and columns of digits of shape ``(count, width)``."""
    columns = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part for part in parts]
    widths = [column.shape[-1] for column in columns]
    text = np.empty((count, sum(widths)), np.uint8)
    at = 0
    for column, width in zip(columns, widths, strict=True):
        text[:, at : at + width] = column
        at += width
    return text.reshape(-1).data
