"""Step times that NVIDIA's DGX Cloud recipes expect, on 8 to 2,304 H100 and on GB200.

Llama, GPT-3, Nemotron and Grok in BF16 and FP8. Nothing is fitted to a row; what the recipes leave out is guessed by
one rule (`fabricsim.studies.frame.recipes`).
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
    return recipes.published("dgxc", _groups)


def _groups(record: np.void) -> tuple[str, ...]:
    scheme = "FSDP" if record["shards"] else "pipeline" if int(record["pipeline"]) > 1 else "no pipeline"
    return str(record["model"]), scheme


STUDY = by_row(
    "dgxc",
    __doc__,
    rows,
    statistics=spread_agreement,
    parameters=lambda: dict(measured.load("dgxc").conditions),
    pictures=scatter("Steps of DGX Cloud recipes", lambda quantity: quantity.split(",")[0]),
)
