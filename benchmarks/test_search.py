"""What a layout costs in a search: Llama 3 70B on 256 H100."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.run.pipeline import load
from fabricsim.run.search.search import Extent, Found, search

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: dict[str, Any] = {
    "folding": "close",
    "cluster.hosts": 32,
    "job.model": "llama3-70b",
    "job.global_batch": 512,
    "job.parallelism": {"tensor": 8, "pipeline": 4, "data": 8, "virtual_stages": 5},
}
ONE: dict[str, list[Any]] = {
    "job.parallelism.tensor": [8],
    "job.parallelism.pipeline": [4],
    "job.parallelism.context": [1],
    "job.parallelism.virtual_stages": [5],
    "job.micro_batch": [1],
    "job.recompute": ["none"],
    "job.schedule": ["1f1b"],
}


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_layout(measured: Callable[..., Found], tmp_path: Path, zero: int) -> None:
    """Layouts simulated per CPU second: that of the scenario, and one that shards gradients or parameters, too."""
    loaded = load("llama3-405b", SETTINGS)

    def run(folder: Path) -> tuple[int, Found]:
        found = search(loaded, folder, given={**ONE, "job.parallelism.zero": [zero]}, extent=Extent(exhaustive=True))
        return found.simulated, found

    found = measured(run, lambda: Path(tempfile.mkdtemp(dir=tmp_path)), "layouts")

    assert [row["status"] for row in found.rows] == ["done"] * found.layouts
    assert all(row["bound_s"] <= row["iteration_time_s"] for row in found.rows)
