"""What a process may give a fabric: numbers and groups that are checked before anything is posted."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import SupportsIndex

import numpy as np

from fabricsim.errors import SimulationError

_LARGEST = 2**53  # bytes; float64 counts them one by one up to here
_LAST_PORT = 2**31 - 1


def whole(value: SupportsIndex | float, what: str) -> int:
    """Take a whole number, also as a float such as ``1e6``; anything else is a `SimulationError`."""
    if isinstance(value, (float, np.floating)):
        if value.is_integer():
            return int(value)
    else:
        with suppress(TypeError):
            return operator.index(value)
    msg = f"{what} is a whole number, not {value!r}"
    raise SimulationError(msg)


def within(value: SupportsIndex | float, what: str, least: int, most: int) -> int:
    """Take a whole number of `least` to `most`; anything else is a `SimulationError`."""
    number = whole(value, what)
    if not least <= number <= most:
        msg = f"{what} is {least} to {most}, not {number}"
        raise SimulationError(msg)
    return number


def checked_group(ranks: Iterable[int]) -> tuple[int, ...]:
    """Take at least one rank, and each once; anything else is a `SimulationError`."""
    try:
        members = tuple(ranks)
    except TypeError:
        msg = f"a group is several ranks, such as range(8), not {ranks!r}"
        raise SimulationError(msg) from None
    group = tuple(whole(rank, "a rank") for rank in members)
    if len(set(group)) != len(group) or not group:
        msg = f"a group needs at least one rank and each rank once, not {list(group)}"
        raise SimulationError(msg)
    return group


def checked_port(port: int) -> int:
    """Take the number of a port; anything else is a `SimulationError`."""
    return within(port, "a port", 0, _LAST_PORT)


def checked_latency(latency: int) -> int:
    """Take a latency of 0 ps or more; anything else is a `SimulationError`."""
    number = whole(latency, "a latency in ps")
    if number < 0:
        msg = f"a latency of {number} ps would deliver before it is sent; it must be 0 or more"
        raise SimulationError(msg)
    return number


def checked_weight(weight: float, engine: str) -> float:
    """Take a weight above 0, which for the packet engine is 1; anything else is a `SimulationError`."""
    number = isinstance(weight, (int, float, np.integer, np.floating))
    if not (number and 0 < weight <= sys.float_info.max):
        msg = f"a weight of {weight!r} gives no share; it must be a number above 0"
        raise SimulationError(msg)
    if engine != "flow" and weight != 1:
        msg = f'a weight of {weight!r} has no effect in the packet engine: leave it out, or set engine = "flow"'
        raise SimulationError(msg)
    return float(weight)


def checked_size(size: int, what: str) -> int:
    """Take a size of 1 byte to 8 PiB; anything else is a `SimulationError`."""
    number = whole(size, f"the size of {what}, in bytes,")
    if number < 1:
        msg = f"{what} of {number} bytes moves nothing: it has at least 1 byte"
        raise SimulationError(msg)
    if number > _LARGEST:
        msg = f"{what} of {number} bytes is too large: at most 2**53 bytes (8 PiB)"
        raise SimulationError(msg)
    return number
