from __future__ import annotations

import inspect
import platform
from importlib import metadata

import pytest

from fabricsim import provenance


def test_versions_name_the_software_in_a_fixed_order() -> None:
    versions = provenance.versions()
    assert list(versions)[:2] == ["fabricsim", "python"]
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == metadata.version("numpy")


def test_sources_that_were_never_installed_have_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert inspect.unwrap(provenance.version)() == provenance.UNKNOWN
