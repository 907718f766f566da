from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "fabricsim"
HASH = """
from fabricsim.kernels.path import flow_hash
print(flow_hash(1, 2, 3, 4), sum(flow_hash._program.stats.cache_hits.values()))
"""

pytestmark = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


def environment(folder: Path) -> Path:
    """A copy of what kernels need, as another environment has it."""
    for name in (
        "__init__.py",
        "errors.py",
        "tables.py",
        "packet_tables.py",
        "transport_tables.py",
        "units.py",
        "provenance.py",
    ):
        target = folder / "fabricsim" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PACKAGE / name, target)  # with a time of its own
    for name in ("kernels", "packet", "transports"):
        shutil.copytree(PACKAGE / name, folder / "fabricsim" / name, copy_function=shutil.copyfile)
    return folder


def hashed(folder: Path, cache: Path) -> tuple[int, int]:
    """What a kernel gives in an environment, and how many of its programs came from the cache."""
    variables = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", HASH]
    run = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603  our own code
    value, hits = run.stdout.split()
    return int(value), int(hits)


def test_environments_with_the_same_sources_share_programs_and_others_do_not(tmp_path: Path) -> None:
    one, other = environment(tmp_path / "one"), environment(tmp_path / "other")

    value, hits = hashed(one, tmp_path)
    assert hits == 0
    assert hashed(other, tmp_path) == (value, 1)

    source = other / "fabricsim" / "kernels" / "path.py"
    source.write_text(source.read_text("utf-8").replace("0x45D9F3B", "0x45D9F3D"), encoding="utf-8")
    changed, hits = hashed(other, tmp_path)
    assert (changed != value, hits) == (True, 0)
    assert hashed(one, tmp_path) == (value, 1)
