"""Cold start: what a new process takes before it does anything."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def of_children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.benchmark(timer=of_children)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-c", "import fabricsim; print(fabricsim.__version__)"), "."),
        (("-m", "fabricsim", "--help"), "validate"),
        (("-m", "fabricsim", "list"), "gpt2-medium-dp"),
        (("-m", "fabricsim", "run", "gpt2-medium-dp"), "Iteration time"),
    ],
    ids=["import", "help", "list", "run"],
)
def test_cold_start(measured: Callable[..., Any], arguments: tuple[str, ...], said: str) -> None:
    def run(_nothing: None) -> tuple[int, str]:
        return 1, subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603  our own

    assert said in measured(run, lambda: None, "starts", timer=of_children)
