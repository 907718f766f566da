from __future__ import annotations

import pytest

from fabricsim import measured
from fabricsim.run.pipeline import load
from fabricsim.studies.dai_logs import STUDY, settings
from fabricsim.workload.shapes import parameters, stage_blocks


def test_the_last_stage_has_the_parameters_that_the_log_prints() -> None:
    (row, *_) = measured.load("dai-logs").rows
    job = load("dai-logs", settings(row)).scenario.job
    assert job is not None
    last = stage_blocks(job.model, 4, job.parallelism)[-1]

    assert sum(block.parameters for block in last) == 54_869_250
    assert parameters(job.model) == pytest.approx(334e6, rel=0.01)


def test_runs_have_the_ranks_of_their_logs() -> None:
    for row in measured.load("dai-logs").rows:
        scenario = load("dai-logs", settings(row)).scenario
        assert scenario.job is not None
        assert scenario.job.parallelism.ranks == scenario.cluster.ranks == row["gpus"]


@pytest.mark.slow
def test_timers_of_a_pipeline_add_up_to_its_iteration() -> None:
    found = STUDY.validate()
    own = {
        row.quantity.partition(": ")[2]: row
        for row in found.rows
        if row.quantity.startswith("Frontera, BERT large, TP2")
    }
    parts = [row for name, row in own.items() if name != "iteration"]

    assert abs(own["iteration"].error) < 0.2
    for side in ("measured", "predicted"):
        assert sum(getattr(row, side) for row in parts) == pytest.approx(getattr(own["iteration"], side), rel=0.05)
