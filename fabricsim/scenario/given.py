"""What a Python script gives: taken as what is meant by it, or refused with what it is called and the way out."""

import sys
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

import numpy as np

from fabricsim.errors import InputError


def whole(value: object, name: str, least: int = 1) -> int:
    """Take a whole number of at least `least`, of NumPy too, or as a float such as ``1e6``; else an `InputError`."""
    if _is_number(value) and value == int(value) >= least:
        return int(value)
    raise InputError(f"{name} {value!r}: give a whole number, at least {least}")


def number(value: object, name: str) -> float:
    """Take a finite number, of NumPy too; else an `InputError`."""
    if not _is_number(value):
        raise InputError(f"{name} {value!r}: give a number")
    return float(value)


def text(value: object, name: str) -> str:
    """Take a text; else an `InputError`."""
    if not isinstance(value, str):
        raise InputError(f"{name} {value!r}: give a text")
    return value


def require(value: object, kinds: type | tuple[type, ...], name: str, wanted: str) -> None:
    """Raise InputError if a value is of another type than those of `kinds`, which people call `wanted`."""
    if not isinstance(value, kinds):
        raise InputError(f"{name}: this is of type {type(value).__name__}; give {wanted}")


def several(values: object, name: str, least: int = 1) -> list[Any]:
    """Take at least that many values of a list, an array or what else gives some; else an `InputError`."""
    try:
        found = list(cast("Any", values))
    except TypeError:
        found = None
    if found is None or isinstance(values, (str, bytes, Mapping)):
        kind = "one text" if isinstance(values, str) else f"of type {type(values).__name__}"
        way_out = f"write [{values!r}]" if isinstance(values, (str, int, float)) else "give a list"
        raise InputError(f"{name}: {values!r} is {kind}, not several values; {way_out}")
    if len(found) < least:
        raise InputError(f"{name}: there are none; give at least one")
    return found


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(-sys.float_info.max <= (value if isinstance(value, int) else float(value)) <= sys.float_info.max)
