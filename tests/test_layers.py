from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("importlinter", reason="import-linter is not installed: pip install 'fabricsim[lint]'")


def test_imports_keep_the_contracts() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  our own words

    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 broken" in run.stdout
