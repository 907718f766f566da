from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim import measured
from fabricsim.studies import fsdp

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study() -> Validation:
    return fsdp.STUDY.validate()


def test_each_run_is_that_of_its_row() -> None:
    for record in measured.load("fsdp").rows:
        job = fsdp.published_run(record).job()
        degrees = job.parallelism
        assert degrees.ranks == record["gpus"]
        assert (job.global_batch, job.micro_batch, job.sequence) == tuple(
            record[key] for key in ("global_batch", "micro_batch", "sequence")
        )
        assert (job.model.layers, job.model.hidden, job.model.heads) == tuple(
            record[key] for key in ("layers", "hidden", "heads")
        )
        assert (degrees.zero, degrees.reshard_after_forward) == (3, record["reshard"] == "yes")
        assert (job.precision, job.products or "bf16") == ("bf16", record["products"])


def test_runs_of_short_and_long_sequences_are_met(study: Validation) -> None:
    found = study.summary["agreement"]

    assert found["all"]["runs"] == len(study.rows) == 104
    assert found["all"]["mean_absolute_error"] < 0.08
    assert found["llm-foundry, A100, up to 4096 tokens"]["mean_absolute_error"] < 0.10
    assert found["llm-foundry, H100, up to 4096 tokens"]["mean_absolute_error"] < 0.10
    for gpu in ("A100", "H100"):
        assert found[f"llm-foundry, {gpu}, above 4096 tokens"]["mean_absolute_error"] < 0.10


def test_a_picture_is_drawn(study: Validation, tmp_path: Path) -> None:
    (path,) = fsdp.STUDY.draw(study, tmp_path)

    assert path.stat().st_size > 10_000
