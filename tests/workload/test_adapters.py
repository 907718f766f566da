"""Low-rank adapters against counts by hand."""

from __future__ import annotations

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.run.pipeline import load
from fabricsim.scenario.job import Job
from fabricsim.workload.adapters import adapter_tensors, trained_parameters
from fabricsim.workload.fit import fullest
from fabricsim.workload.flops import model_flops
from fabricsim.workload.operations import block_work
from fabricsim.workload.shapes import parameters, stage_blocks
from fabricsim.workload.work import Operation

_ADAPTED = ["job.model.include=llama2-70b", "job.model.positions=8192", "job.adapters={rank=16}"]


def job_of(*settings: str) -> Job:
    job = load("recipes", ["job.parallelism.context=1", "job.parallelism.data=8", *settings]).scenario.job
    assert job is not None
    return job


def test_adapters_have_the_parameters_of_their_rank() -> None:
    job = job_of(*_ADAPTED)

    assert adapter_tensors(job) == (8192 * 16, 16 * (8192 + 2 * 1024), 8192 * 16, 16 * 8192)
    assert sum(map(sum, trained_parameters(job))) == 80 * 16 * (8192 + 10240 + 8192 + 8192)


def test_a_third_of_the_work_of_frozen_weights_is_left_out() -> None:
    whole, adapted = job_of(*_ADAPTED[:2]), job_of(*_ADAPTED)
    weights = parameters(whole.model) - whole.model.vocabulary * whole.model.hidden
    saved = 2 * weights * whole.global_batch * whole.sequence
    added = 6 * sum(map(sum, trained_parameters(adapted))) * whole.global_batch * whole.sequence

    assert model_flops(whole) - model_flops(adapted) == pytest.approx(saved - added, rel=1e-4)


def test_only_adapters_have_gradients() -> None:
    job = job_of(*_ADAPTED)
    layer = next(block for block in stage_blocks(job.model, 1)[0] if block.kind == "layer")
    names = {item.name for item in block_work(layer, job).backward if isinstance(item, Operation) and item.weight}

    assert names == {"adapter in weight gradient", "adapter out weight gradient"}


@pytest.mark.parametrize(("products", "width"), [("fp8", 1), ("nvfp4", 9 / 16)])
def test_memory_is_that_of_frozen_weights(products: str, width: float) -> None:
    job = job_of(*_ADAPTED, "cluster.gpu.include=gb200", f"job.products={products}")
    need = fullest(job)[1]
    ends = 2 * job.model.vocabulary * 8192 + 8192  # embedding, norm and logits stay as they are, and so do adapters
    adapters = sum(map(sum, trained_parameters(job)))

    assert need.weights == width * (parameters(job.model) - ends) + 2 * ends + 2 * adapters
    assert need.gradients == 2 * adapters


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"job\.adapters"):
        job_of(*_ADAPTED, "job.parallelism.zero=3", "job.products=fp8")


def test_frozen_weights_are_shared_out_too() -> None:
    whole, shared = (fullest(job_of(*_ADAPTED, f"job.parallelism.zero={zero}"))[1] for zero in (0, 3))

    assert shared.weights == -(-whole.weights // 8)
    assert shared.gradients == -(-whole.gradients // 8)


def test_inputs_of_adapters_are_dropped_in_a_kernel_of_their_own() -> None:
    layers = [
        block_work(stage_blocks(job.model, 1)[0][1], job)
        for job in (job_of(*_ADAPTED), job_of(*_ADAPTED, "job.adapters.dropout=true"))
    ]
    moved = [
        sum(item.traffic for item in (*layer.forward, *layer.backward) if isinstance(item, Operation))
        for layer in layers
    ]

    inputs = 2 * 8192 * 8192  # of QKV and projection: read and written in bf16 both ways, with a mask of one byte
    assert moved[1] - moved[0] == inputs * 2 * (2 + 2 + 1)
    assert layers[1].stored - layers[0].stored == inputs
