"""Writing and reading a result as HDF5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fabricsim as fs
from fabricsim.results.hdf5 import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_write_hdf5(measured: Callable[..., Any], tmp_path: Path) -> None:
    result, file = fs.simulate("gpt2-medium-pp"), tmp_path / "run.h5"

    def run(_nothing: None) -> tuple[int, None]:
        write(result, file)
        return file.stat().st_size, None

    measured(run, lambda: None, "bytes")
    assert fs.read(file) == result
