from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.job import Job, Model
from fabricsim.scenario.library import path
from fabricsim.workload.memory import Memory, in_flight, stage_memory
from fabricsim.workload.parameter_counts import chunk_parameters, virtual_stages
from fabricsim.workload.shapes import parameters, stage_blocks
from tests.reference.jobs import make_model

GB = 10**9
USABLE = 0.95 * 79.25 * 2**30
"""Bytes for a job on workloads/gpus/a100-sxm-80gb."""


def job(model: object, micro_batches: int = 1, **changes: Any) -> Job:  # noqa: ANN401  any field
    degrees = changes.pop("parallelism", {})
    table = {"micro_batch": 1, "sequence": 2048, "recompute": "none", **changes}
    table["global_batch"] = table["micro_batch"] * micro_batches * degrees.get("data", 1)
    return Job.model_validate({"model": model, "parallelism": degrees, **table})


def shipped(name: str) -> Model:
    return Model.model_validate(tomllib.loads(path("models", name).read_text("utf-8")))


def fullest(stages: Iterable[Memory]) -> int:
    return max(stage.total for stage in stages)


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["gpt2-medium", "bert-large", "t5-base", "llama3-8b", "mixtral-8x7b", "deepseek-moe-16b"]
)
@pytest.mark.parametrize(
    "degrees",
    [
        {},
        {"tensor": 2},
        {"data": 4, "expert": 2},
        {"pipeline": 2},
        {"tensor": 2, "data": 4, "sequence_parallel": True, "expert": 8, "expert_tensor": 1},
    ],
)
def test_closed_counts_are_those_of_the_blocks(name: str, degrees: dict[str, int]) -> None:
    model = shipped(name)
    if model.experts is None:
        degrees = {key: degree for key, degree in degrees.items() if not key.startswith("expert")}
    table = {"decoder_sequence": 128} if model.family == "t5" else {}
    made = job(model, parallelism=degrees, sequence=128, **table)
    blocks = stage_blocks(model, virtual_stages(made), made.parallelism)

    assert [[(sum(block.tensors), sum(block.experts)) for block in chunk] for chunk in blocks] == [
        [(block.dense, block.experts) for block in chunk] for chunk in chunk_parameters(made)
    ]


# ---- model states -------------------------------------------------------------------------------

ZERO_PAPER = {0: 120.0, 1: 31.4, 2: 16.6, 3: 1.88}
"""GB per GPU of 7.5 billion parameters over 64 ranks (Rajbhandari et al., arXiv 1910.02054, figure 1)."""


@pytest.mark.parametrize("zero", ZERO_PAPER)
def test_states_are_those_of_the_zero_paper(zero: int) -> None:
    shape = {"layers": 36, "hidden": 4096, "heads": 32, "vocabulary": 51200, "positions": 2048}
    model = make_model("gpt2-medium", **shape)
    degrees = {"data": 64, "zero": zero}

    (need,) = stage_memory(job(model, parallelism=degrees))

    assert need.states / GB == pytest.approx(ZERO_PAPER[zero] * parameters(model) / 7.5e9, rel=5e-3)


@pytest.mark.parametrize(
    ("precision", "gradients", "apart", "shared"),
    [("fp16", None, 20, (4, 16)), ("bf16", "fp32", 18, (6, 12)), ("fp32", None, 16, (8, 8))],
)
def test_bytes_per_parameter_are_those_of_megatron_core(
    precision: str, gradients: str | None, apart: int, shared: tuple[int, int]
) -> None:
    # Megatron Core user guide, "Distributed Optimizer": bytes per parameter, and fixed + per rank ones
    model = make_model("gpt2-medium")
    count = parameters(model)
    table = {"precision": precision, "gradient_precision": gradients, "sequence": 1}
    (alone,) = stage_memory(job(model, **table))
    (spread,) = stage_memory(job(model, parallelism={"data": 8, "zero": 1}, **table))

    assert (alone.states + alone.step) / count == pytest.approx(apart)
    assert (spread.states + spread.step) / count == pytest.approx(shared[0] + shared[1] / 8, rel=1e-6)


@pytest.mark.slow
@given(zero=st.integers(0, 3), data=st.integers(1, 64))
def test_a_higher_zero_stage_never_needs_more(zero: int, data: int) -> None:
    model = make_model("gpt2-medium")
    lower, higher = (
        stage_memory(job(model, parallelism={"data": data, "zero": stage}))[0] for stage in (max(zero - 1, 0), zero)
    )
    assert higher.states <= lower.states
    assert higher.activations == lower.activations


# ---- activations --------------------------------------------------------------------------------


def per_layer(model: object, **changes: Any) -> float:  # noqa: ANN401  any field
    """Bytes of activations of one layer, over ``s b h``."""
    few, many = (job({**model, "layers": layers}, **changes) for layers in (2, 3))
    hidden = many.model.hidden * many.sequence * many.micro_batch
    return (stage_memory(many)[0].activations - stage_memory(few)[0].activations) / hidden


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_of_a_layer_are_those_of_korthikanti(tensor: int) -> None:
    # arXiv 2205.05198, table 2: bytes of one layer over s b h
    model = make_model("gpt2-medium", hidden=6144, heads=64, positions=2048, vocabulary=51200).model_dump()
    scores = 5 * 64 * 2048 / 6144
    degrees = {"parallelism": {"tensor": tensor}}
    split = {"parallelism": {"tensor": tensor, "sequence_parallel": tensor > 1}}

    assert per_layer(model, **degrees) == pytest.approx(10 + 24 / tensor + scores / tensor)
    assert per_layer(model, **split) == pytest.approx((34 + scores) / tensor)
    assert per_layer(model, **split, recompute="selective") == pytest.approx(34 / tensor)
    assert per_layer(model, **degrees, recompute="full") == pytest.approx(2)


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_interleaving_holds_more_by_the_published_factor(stages: int, chunks: int) -> None:
    # arXiv 2205.05198, section 4.2.3: 1 + (p - 1) / (p v) times the activations of all layers
    if stages == 1 < chunks:
        return
    layers = stages * chunks
    degrees = {"pipeline": stages, "virtual_stages": chunks}
    made = job(make_model("gpt2-medium", layers=layers), micro_batches=4 * stages, parallelism=degrees)

    factor = 1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1
    assert len(in_flight(made, 0)) == pytest.approx(factor * layers)
    assert {chunk for stage in range(stages) for chunk in in_flight(made, stage)} == set(range(chunks))


@pytest.mark.parametrize(("schedule", "held"), [("gpipe", [6, 6, 6]), ("1f1b", [3, 2, 1]), ("zb-h1", [3, 3, 3])])
def test_schedules_hold_what_is_in_flight(schedule: str, held: list[int]) -> None:
    degrees = {"pipeline": 3}
    made = job(make_model("gpt2-medium", layers=3), micro_batches=6, parallelism=degrees, schedule=schedule)

    assert [len(in_flight(made, stage)) for stage in range(3)] == held


@pytest.mark.parametrize(("recompute", "kept"), [("none", 34), ("full", 2)])
def test_weight_passes_need_the_inputs_of_products_recomputed_or_not(recompute: str, kept: int) -> None:
    # Qi et al., arXiv 2401.10241, table 1: a layer of a GPT keeps (34 + 5 a s / h) s b h bytes from its forward pass to
    # its backward pass, and 32 s b h from there to its weight pass; stage i of p has p - i of the first and i of these,
    # and once a backward pass has ended one of the first less and one of these more
    shape = {"layers": 8, "vocabulary": 128, "hidden": 1024, "heads": 16, "positions": 2048}
    table = {"schedule": "zb-h1", "recompute": recompute, "attention": "fused", "elementwise": "fused"}
    made = job(make_model("gpt2-medium", **shape), micro_batches=16, parallelism={"pipeline": 4}, **table)

    sbh, sums = 2048 * 1024, 4 * 16 * 2048 * (recompute == "none")
    for stage in (1, 2):  # without embedding and head
        moments = (
            2 * (before * (kept * sbh + sums) + behind * 32 * sbh)
            for before, behind in ((4 - stage, stage), (3 - stage, stage + 1))
        )
        assert stage_memory(made)[stage].activations == max(moments)


KORTHIKANTI = {
    "megatron-22b": ({"tensor": 8}, 4, 1),
    "megatron-175b": ({"tensor": 8, "pipeline": 8, "virtual_stages": 3}, 1, 64),
    "megatron-530b": ({"tensor": 8, "pipeline": 35, "virtual_stages": 3}, 1, 280),
    "megatron-1t": ({"tensor": 8, "pipeline": 64}, 1, 512),
}
"""Degrees, micro-batch and micro-batches of arXiv 2205.05198, table 3."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KORTHIKANTI)
def test_models_of_korthikanti_fit_80_gb_as_published(name: str) -> None:
    # figure 1: with tensor parallelism alone none of the four fits an A100 of 80 GB; with sequence parallelism and
    # selective recomputation all do, as with full recomputation (the runs of table 5)
    degrees, size, batches = KORTHIKANTI[name]
    model = shipped(name)
    split = {**degrees, "sequence_parallel": True}

    assert fullest(stage_memory(job(model, batches, micro_batch=size, parallelism=degrees))) > 80 * GB
    for spread, recompute in ((split, "selective"), (degrees, "full")):
        made = job(model, batches, micro_batch=size, parallelism=spread, recompute=recompute)
        assert fullest(stage_memory(made)) < USABLE


ZERO_3 = [
    ("megatron-175b", 384, 4),
    ("megatron-175b", 768, 2),
    ("megatron-175b", 1536, 1),
    ("megatron-530b", 640, 4),
    ("megatron-530b", 1120, 2),
    ("megatron-530b", 2240, 1),
]
"""Model, GPUs and micro-batch of arXiv 2104.04473, table 2, ZeRO-3 without model parallelism."""


@pytest.mark.parametrize(("name", "ranks", "size"), ZERO_3)
def test_runs_of_zero_3_that_were_measured_fit_80_gb(name: str, ranks: int, size: int) -> None:
    degrees = {"data": ranks, "zero": 3}
    (need,) = stage_memory(job(shipped(name), micro_batch=size, parallelism=degrees, recompute="full"))

    assert need.total < USABLE


def test_parameters_gathered_in_8_bits_take_half_but_those_of_embeddings() -> None:
    model = make_model("gpt2-medium")
    degrees = {"data": 4, "zero": 3, "reshard_after_forward": False}
    wide, narrow = (
        stage_memory(job(model, parallelism=degrees, precision="bf16", products="fp8", narrow_gathers=narrow))[0]
        for narrow in (False, True)
    )

    assert wide.working - narrow.working == 24 * (12 * 1024**2 + 13 * 1024)


@pytest.mark.parametrize(
    ("changes", "tokens", "kept"),
    [({}, 4 * 512, 4), ({"predictions": 20}, 4 * 20, 4), ({"loss_kernels": "fused"}, 0, 2)],
)
def test_logits_are_those_of_masked_tokens_and_counted_once_if_the_loss_is_fused(
    changes: dict[str, Any], tokens: int, kept: int
) -> None:
    # 16 bits as the product gives them and 32 of the loss, or a gradient of 16 in their place
    sizes = (30522, 2 * 30522)
    table = {"micro_batch": 4, "sequence": 512, "recompute": "none", "attention": "fused", **changes}
    small, large = (stage_memory(job(make_model("bert-large", vocabulary=size), **table))[0] for size in sizes)
    logits = 4 * (changes.get("predictions", 512)) * (sizes[1] - sizes[0])

    assert large.working - small.working == 2 * tokens * 30522
    assert large.activations - small.activations == kept * logits


@pytest.mark.slow
@given(
    tensor=st.sampled_from([1, 2, 4]),
    stages=st.sampled_from([1, 2, 4]),
    batches=st.integers(1, 8),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_recomputing_never_keeps_more(tensor: int, stages: int, batches: int, recompute: str) -> None:
    degrees = {"tensor": tensor, "pipeline": stages}
    model = make_model("gpt2-medium", layers=4)
    kept = stage_memory(job(model, batches, parallelism=degrees, sequence=512))
    again = stage_memory(job(model, batches, parallelism=degrees, sequence=512, recompute=recompute))

    for one, other in zip(kept, again, strict=True):
        assert other.activations <= one.activations
        assert other.states == one.states
        # what is computed again is at most what is no longer kept
        assert other.activations + other.working <= one.activations + one.working
