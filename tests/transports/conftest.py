from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabricsim.transports.dispatch import built_in

Make = Callable[..., np.ndarray[Any, Any]]


def _row(kind: np.dtype[Any], fields: dict[str, float]) -> np.ndarray[Any, Any]:
    table = np.zeros(1, np.dtype((np.record, kind)))
    for name, value in fields.items():
        table[name] = value
    return table


@pytest.fixture(scope="session")
def make_flow() -> Make:
    """Make a table of one flow: zero, but for the fields given."""
    return lambda **fields: _row(built_in().flow, fields)


@pytest.fixture(scope="session")
def make_law() -> Make:
    """Make a table of one law: zero, but for the fields given."""
    return lambda **fields: _row(built_in().law, fields)
