"""Records of flows and laws for tests of one law alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fabricsim.transports.dispatch import built_in

Make = Callable[..., np.ndarray[Any, Any]]


def _row(kind: np.dtype[Any], fields: dict[str, float]) -> np.ndarray[Any, Any]:
    table = np.zeros(1, np.dtype((np.record, kind)))
    for name, value in fields.items():
        table[name] = value
    return table


def make_flow(**fields: float) -> np.ndarray[Any, Any]:
    """Make a table of one flow: zero, but for the fields given."""
    return _row(built_in().flow, fields)


def make_law(**fields: float) -> np.ndarray[Any, Any]:
    """Make a table of one law: zero, but for the fields given."""
    return _row(built_in().law, fields)
