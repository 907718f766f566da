from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="session")
def jobs() -> ModuleType:
    """Small captured jobs made by hand."""
    folder = str(Path(__file__).parents[1] / "reference")
    sys.path.insert(0, folder)
    try:
        return import_module("captured_jobs")
    finally:
        sys.path.remove(folder)
