"""Performance summaries of Megatron-Bridge and NeMo: dense models and experts in BF16, FP8, MXFP8 and NVFP4.

Nothing is fitted to a row; what the summaries leave out is guessed by one rule
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
    return recipes.published("megatron-bridge", _groups)


def _groups(record: np.void) -> tuple[str, ...]:
    return str(record["model"]), str(record["run"]).split(" ", maxsplit=1)[0]


STUDY = by_row(
    "megatron-bridge",
    __doc__,
    rows,
    statistics=spread_agreement,
    parameters=lambda: dict(measured.load("megatron-bridge").conditions),
    pictures=scatter(
        "Steps of Megatron-Bridge and NeMo", lambda quantity: quantity.split(",")[0].split(" ", maxsplit=1)[-1]
    ),
)
