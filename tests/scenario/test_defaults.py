"""Defaults of a job that follow the year of its model, and what a run says of them."""

from __future__ import annotations

import pytest

from fabricsim.run.pipeline import simulate
from fabricsim.scenario.defaults import left_to_defaults
from fabricsim.scenario.job import KERNEL_LAUNCH, Job
from fabricsim.scenario.load import from_tables, load
from fabricsim.scenario.model import Model

PLAIN = {
    "name": "plain",
    "cluster": {"include": "dgx-a100", "hosts": 1},
    "fabric": "single-switch",
    "transport": "rdma-200g",
    "job": {"micro_batch": 1, "global_batch": 1, "sequence": 512},
}
OLD, NEW = ("fp16", "full", "unfused", False), ("bf16", "none", "fused", True)
KEYS = ("precision", "recompute", "attention", "fused_accumulation")


def job_of(model: object, **more: object) -> Job:
    job = from_tables({**PLAIN, "job": {**PLAIN["job"], "model": model, **more}}).job
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("model", "usual"),
    [
        ("llama3-8b", NEW),
        ("bert-base", OLD),
        ({"include": "gpt2-medium", "year": 2022}, OLD),
        ({"include": "gpt2-medium", "year": 2023}, NEW),
    ],
)
def test_defaults_follow_the_year_of_the_model(model: object, usual: tuple[object, ...]) -> None:
    job = job_of(model)

    assert tuple(getattr(job, key) for key in KEYS) == usual
    said, launch = left_to_defaults(job)
    assert all(key in said for key in KEYS)
    assert str(job.model.year) in said
    assert "45.5 us" in launch


@pytest.mark.parametrize("family", ["gpt", "bert", "t5", "llama"])
def test_a_family_has_the_year_of_its_first_model(family: str) -> None:
    keys = ("layers", "hidden", "heads", "vocabulary", "positions")
    model = Model.model_validate({"name": "one", "family": family, **dict.fromkeys(keys, 1)})

    assert model.year == {"gpt": 2019, "bert": 2018, "t5": 2019, "llama": 2023}[family]


def test_what_is_written_is_not_said() -> None:
    job = job_of("llama3-8b", precision="fp16", recompute="full", kernel_launch="3us")

    (said,) = left_to_defaults(job)
    assert "precision" not in said
    assert "recompute" not in said
    assert "attention fused" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        ({"overlap": "none"}, False),
        ({"overlap": "ddp"}, False),
        ({"parallelism": {"data": 8, "zero": 1}}, True),
        ({"parallelism": {"data": 8, "zero": 3}}, False),
        ({"parallelism": {"data": 1, "tensor": 8}}, False),
    ],
)
def test_it_is_said_when_gradients_are_reduced_if_that_is_left_out(more: dict[str, object], said: bool) -> None:  # noqa: FBT001  a case
    job = job_of("llama3-8b", **{"global_batch": 8, "parallelism": {"data": 8}, **more})

    assert any("overlap none: gradients are reduced after" in each for each in left_to_defaults(job)) == said


def test_a_run_prints_its_defaults_and_keeps_them() -> None:
    result = simulate(load("gpt2-medium-dp"))

    assert result.notes[:3] == left_to_defaults(load("gpt2-medium-dp").scenario.job)  # type: ignore[arg-type]


def test_recorded_kernels_are_issued_faster() -> None:
    assert job_of("gpt2-medium", launch="graph").kernel_launch == KERNEL_LAUNCH["graph"] < KERNEL_LAUNCH["eager"]
