from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from fabricsim.results.result import RunRecord


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    # results made by hand live with the tests of results
    folder = str(Path(__file__).parents[1] / "results")
    sys.path.insert(0, folder)
    try:
        return import_module("factory")
    finally:
        sys.path.remove(folder)


@pytest.fixture
def two_ranks(factory: ModuleType) -> RunRecord:
    return factory.two_ranks()


@pytest.fixture
def pipeline(factory: ModuleType) -> RunRecord:
    return factory.pipeline()
