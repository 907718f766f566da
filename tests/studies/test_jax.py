from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricsim import measured
from fabricsim.run.model_error import MODEL_ERRORS
from fabricsim.studies import jax
from fabricsim.workload.shapes import parameters

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation
    from fabricsim.scenario.job import Job


@pytest.fixture(scope="module")
def study() -> Validation:
    return jax.STUDY.validate()


def row(model: str, **changes: Any) -> np.void:  # noqa: ANN401  cells of a table
    """Give the first row of a model, with some of its cells changed."""
    found = next(record for record in measured.load("jax").rows if record["model"] == model).copy()
    for key, value in changes.items():
        found[key] = value
    return found


def job_of(model: str, **changes: Any) -> Job:  # noqa: ANN401  as above
    return jax.published_run(row(model, **changes)).job()


def test_each_run_is_that_of_its_row() -> None:
    for record in measured.load("jax").rows:
        job = jax.published_run(record).job()
        degrees = job.parallelism
        assert (degrees.ranks, degrees.tensor) == (record["gpus"], record["tensor"])
        assert degrees.fully_sharded == (record["fsdp"] > 1)
        assert (job.global_batch, job.sequence) == (record["global_batch"], record["sequence"])
        assert job.global_batch == job.micro_batch * degrees.data
        assert (job.decoder_sequence or 0) == record["decoder_sequence"]
        assert (job.products == "fp8") == (record["precision"] == "te-fp8")
        assert (job.adapters is not None) == (record["tuning"] == "lora")


@pytest.mark.parametrize(
    ("model", "millions"),
    [
        ("gpt-126m", 125),
        ("gpt-5b", 5_050),
        ("gpt-175b", 174_600),
        ("llama2-7b", 6_738),
        ("t5-1.1-small", 77),
        ("t5-1.1-large", 783),
        ("t5-1.1-xl", 2_850),
        ("t5-1.1-xxl", 11_135),
    ],
)
def test_models_have_their_parameters(model: str, millions: int) -> None:
    """Those of T5 v1.1 are published with its checkpoints: 77 million to 11 billion."""
    assert parameters(job_of(model).model) / 1e6 == pytest.approx(millions, rel=0.005)


@pytest.mark.parametrize("model", ["gpt-126m", "gpt-5b", "gpt-175b", "t5-1.1-large", "t5-1.1-xl"])
@pytest.mark.parametrize("precision", ["bf16", "te-bf16", "te-fp8"])
def test_rules_hold_for_other_rows(model: str, precision: str) -> None:
    job = job_of(model, gpu="h100", precision=precision)

    assert job.attention == ("fused" if model in ("gpt-5b", "gpt-175b") else "unfused")
    assert job.narrow_gathers == (precision == "te-fp8" and job.parallelism.fully_sharded)
    assert not job.dropout


def test_policies_of_configurations_say_what_is_repeated() -> None:
    kept = {model: job_of(model).recompute for model in ("gpt-126m", "gpt-5b", "gpt-175b", "llama2-7b", "t5-1.1-xl")}

    assert list(kept.values()) == ["none", "selective", "full", "none", "none"]
    assert job_of("gpt-5b").parallelism.reshard_after_forward
    assert not job_of("llama2-7b").parallelism.reshard_after_forward


@pytest.mark.slow
def test_steps_are_met_as_the_page_says(study: Validation) -> None:
    found = study.summary["agreement"]

    assert found["all"]["runs"] == len(study.rows) == 13
    assert found["all"]["mean_absolute_error"] < 0.14
    assert found["FSDP"]["mean_absolute_error"] < 0.11
    assert found["H100"]["mean_absolute_error"] < 0.08
    assert found["all"]["largest_absolute_error"] < 0.29


@pytest.mark.slow
def test_the_error_behind_intervals_is_that_of_the_rows(study: Validation) -> None:
    errors = [abs(log(row.predicted / row.measured)) for row in study.rows]

    assert np.quantile(errors, 0.8) / 1.2816 == pytest.approx(MODEL_ERRORS["jax"], abs=0.001)


@pytest.mark.slow
def test_a_picture_is_drawn(study: Validation, tmp_path: Path) -> None:
    (path,) = jax.STUDY.draw(study, tmp_path)

    assert path.stat().st_size > 10_000
