from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Kernels compile on first use and CI machines are slow: a time limit per example would only flicker.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of captured traces, which do not ship with the project."""
    folder = Path(os.environ.get("FABRICSIM_TRACES") or ROOT.parent / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip("captured traces are not here: set FABRICSIM_TRACES")
    return folder
