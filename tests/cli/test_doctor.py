from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim import provenance


def test_it_says_what_a_report_needs(
    fabricsim: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    code, out, _ = fabricsim("doctor", "--json")
    told = json.loads(out)

    assert code == 0
    assert told["versions"] == provenance.versions()
    assert told["machine"]["system"] == platform.platform()
    assert told["kernels"]["cache"] == str(tmp_path / "fabricsim")
    assert told["kernels"]["can be kept"] is True
    assert told["environment"]["NUMBA_CACHE_DIR"] == str(tmp_path)
    assert Path(told["installation"]["fabricsim"], "cli", "doctor.py").is_file()
    assert told["machine"]["cores"] <= told["machine"]["cores of the machine"]
    text = fabricsim("doctor")[1]
    assert str(tmp_path) in text
    assert "extensions: none" in text
