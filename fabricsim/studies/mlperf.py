"""Median step times of MLPerf Training: GPT-3 and Llama 3.1 on 8 to 10,752 H100, B200 and GB200.

Nothing is fitted to a row; what logs and configurations leave out is guessed by one rule
(`fabricsim.studies.frame.recipes`).
"""

from fabricsim.studies.frame import recipes

STUDY = recipes.study(
    "mlperf", __doc__, recipes.by_run, "Steps of MLPerf Training", lambda quantity: quantity.split(",")[1].strip()
)
