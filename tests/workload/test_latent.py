"""Latent attention against counts by hand."""

from __future__ import annotations

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.run.pipeline import load
from fabricsim.scenario.job import Job
from fabricsim.workload.flops import model_flops
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import parameters, stage_blocks
from fabricsim.workload.work import Operation

_SETTINGS = ["job.model.include=deepseek-v3", "job.sequence=4096", "job.parallelism.context=1"]


def job_of(*settings: str) -> Job:
    job = load("recipes", [*_SETTINGS, "job.parallelism.data=8", *settings]).scenario.job
    assert job is not None
    return job


def test_a_layer_has_the_matrices_of_the_report() -> None:
    job = job_of()
    down = 7168 * 1536 + 7168 * (512 + 64)
    up = 1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128)
    attention = down + up + 128 * 128 * 7168 + 1536 + 512
    layer = stage_blocks(job.model, 1)[0][1]

    assert layer.parameters == attention + 2 * 7168 + 3 * 7168 * 18432
    assert parameters(job.model) == pytest.approx(671e9, rel=1e-3)


def test_scores_have_positions_and_values_none() -> None:
    job = job_of()
    work = block_work(stage_blocks(job.model, 1)[0][1], job)
    forward, backward = (
        next(item for item in items if isinstance(item, Operation) and item.kernel.startswith("attention"))
        for items in (work.forward, work.backward)
    )
    scores = 128 * 4096**2 // 2  # causal

    assert forward.flops == 2 * scores * (192 + 128)
    assert backward.flops == 2 * scores * (3 * 192 + 2 * 128)


def test_flops_are_those_of_what_a_token_passes_and_the_scores() -> None:
    job = job_of("job.global_batch=8")
    attention = 7168 * 2112 + 1536 * 24576 + 512 * 32768 + 16384 * 7168
    experts = 7168 * 256 + 9 * 3 * 7168 * 2048
    active = 61 * attention + 58 * experts + 3 * 3 * 7168 * 18432 + 129280 * 7168  # 36.6 billion without the embedding
    scores = 3 * 2 * 61 * 128 * 4096 * (192 + 128)

    assert model_flops(job) / (8 * 4096) == pytest.approx(6 * active + scores, rel=1e-6)


def test_queries_keys_and_values_are_made_again_in_place_of_kept() -> None:
    kept, again = (
        block_work(stage_blocks(job.model, 1)[0][1], job)
        for job in (job_of("job.recompute=none"), job_of("job.recompute=latent"))
    )
    added = [item for item in again.backward if isinstance(item, Operation)]
    for item in kept.backward:
        if isinstance(item, Operation):
            added.remove(item)

    up = 1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128)
    assert again.forward == kept.forward
    assert sum(item.flops for item in added) == 2 * 4096 * up
    assert kept.stored - again.stored == 2 * 4096 * 128 * (128 + 64 + 128 + 64 + 128)


@pytest.mark.parametrize(("precision", "width"), [("fp8", 1), ("mxfp8", 2 * 33 / 32)])
def test_factors_of_8_bits_are_kept_even_if_their_sources_are_made_again(precision: str, width: float) -> None:
    settings = "cluster.gpu.include=gb300", "job.recompute=latent"
    jobs = job_of(*settings), job_of(*settings, f"job.attention_products={precision}")
    again, narrow = (block_work(stage_blocks(job.model, 1)[0][1], job) for job in jobs)

    assert narrow.stored - again.stored == width * 4096 * 128 * (128 + 64 + 128 + 64 + 128)


@pytest.mark.parametrize("settings", [["job.model.include=llama3-8b"], ["job.attention=unfused"]])
def test_only_fused_latent_attention_is_made_again(settings: list[str]) -> None:
    with pytest.raises(ScenarioError, match=r"job\.recompute"):
        job_of("job.recompute=latent", *settings)
