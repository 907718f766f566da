from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Outcome


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario that runs in milliseconds: two ranks on two hosts."""
    file = tmp_path / "small.toml"
    file.write_text(
        'extends = "gpt2-medium-dp"\n'
        "cluster.hosts = 2\n"
        "job.micro_batch = 1\n"
        "job.global_batch = 2\n"
        "job.parallelism.data = 2\n",
        encoding="utf-8",
    )
    return file


@pytest.fixture
def result(small: Path, fabricsim: Callable[..., Outcome]) -> Path:
    """The result file of the small scenario."""
    assert fabricsim("run", small.name, "-o", "small.h5").code == 0
    return small.with_name("small.h5")
