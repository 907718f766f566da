"""Median step times of MLPerf Training: GPT-3 and Llama 3.1 on 8 to 10,752 H100, B200 and GB200.

Nothing is fitted to a row; what logs and configurations leave out is guessed by one rule
(`fabricsim.studies.frame.recipes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim import measured
from fabricsim.studies.frame import recipes
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import scatter, spread_agreement

if TYPE_CHECKING:
    import numpy as np


def rows() -> list[Published]:
    """List the published steps."""
    return recipes.published("mlperf", _groups)


def _groups(record: np.void) -> tuple[str, ...]:
    return str(record["model"]), str(record["run"]).split(" ", maxsplit=1)[0]


STUDY = by_row(
    "mlperf",
    __doc__,
    rows,
    statistics=spread_agreement,
    parameters=lambda: dict(measured.load("mlperf").conditions),
    pictures=scatter("Steps of MLPerf Training", lambda quantity: quantity.split(",")[1].strip()),
)
