from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from fabricsim.results.result import RunRecord


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    # tests are no packages: a helper module beside them is found by its folder
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    try:
        return import_module("factory")
    finally:
        sys.path.remove(folder)


@pytest.fixture
def two_ranks(factory: ModuleType) -> RunRecord:
    return factory.two_ranks()


@pytest.fixture
def bucketed(factory: ModuleType) -> RunRecord:
    return factory.bucketed()


@pytest.fixture
def pipeline(factory: ModuleType) -> RunRecord:
    return factory.pipeline()
