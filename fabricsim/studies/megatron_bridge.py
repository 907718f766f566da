"""Performance summaries of Megatron-Bridge and NeMo: dense models and experts in BF16, FP8, MXFP8 and NVFP4.

Nothing is fitted to a row; what the summaries leave out is guessed by one rule
(`fabricsim.studies.frame.recipes`).
"""

from fabricsim.studies.frame import recipes

STUDY = recipes.study(
    "megatron-bridge",
    __doc__,
    recipes.by_run,
    "Steps of Megatron-Bridge and NeMo",
    lambda quantity: quantity.split(",")[0].split(" ", maxsplit=1)[-1],
)
