"""Step times that NVIDIA's DGX Cloud recipes expect, on 8 to 2,304 H100 and on GB200.

Llama, GPT-3, Nemotron and Grok in BF16 and FP8. Nothing is fitted to a row; what the recipes leave out is guessed by
one rule (`fabricsim.studies.frame.recipes`).
"""

import numpy as np

from fabricsim.studies.frame import recipes

_BESIDE = {"BF16", "FP8", "H100", "GB200", "Dev"}
"""Words beside the model in the names of recipes."""


def _groups(record: np.void) -> tuple[str, ...]:
    scheme = "FSDP" if record["shards"] else "pipeline" if int(record["pipeline"]) > 1 else "no pipeline"
    return str(record["model"]), scheme


def _model(quantity: str) -> str:
    """Take precision, GPU and repeated runs from the name of a recipe."""
    return " ".join(word for word in quantity.partition(",")[0].split() if word not in _BESIDE)


STUDY = recipes.study("dgxc", __doc__, _groups, "Steps of DGX Cloud recipes", _model)
