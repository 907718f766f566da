"""What a goodput says in words."""

from __future__ import annotations

import pytest
from rich.console import Console

from fabricsim.report.goodput_text import goodput_text

HOUR = 3600.0


@pytest.mark.parametrize(
    ("waiting", "said"), [(0.0, "9 failures, in the mean of all draws 10; "), (HOUR, "9 failures; ")]
)
def test_no_mean_of_failures_if_spares_are_waited_for(waiting: float, said: str) -> None:
    told = {"name": "a", "gpus": 8, "seed": 0, "iterations": 3, "iteration_s": 1.0, "failures": 9, "notes": []}
    told |= {"time_s": 100 * HOUR, "mtbf_of_job_s": 10 * HOUR, "interval_s": HOUR, "best_interval_s": HOUR}
    told |= {"training_s": 90 * HOUR, "checkpoints_s": 0.0, "lost_work_s": 0.0, "detection_and_restart_s": 0.0}
    told |= {"waiting_for_spares_s": waiting, "goodput": 0.9, "expected": 0.9}
    console = Console(width=200)
    with console.capture() as captured:
        console.print(goodput_text(told))

    assert said in captured.get()
