"""Products with weights in 8 bits: which they are, what they move, how long they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from fabricsim.errors import ScenarioError
from fabricsim.run.pipeline import load
from fabricsim.scenario.job import Job
from fabricsim.workload.attention import Core, fused_passes
from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import roofline_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.tape import Tape
from fabricsim.workload.work import Exchange, Operation

SETTINGS = ["cluster.hosts=1"]


def job_of(*settings: str) -> Job:
    job = load("recipes", [*SETTINGS, *settings]).scenario.job
    assert job is not None
    return job


def products(job: Job, block: int) -> list[Operation]:
    work = block_work(stage_blocks(job.model, 1)[0][block], job)
    items = (*work.forward, *work.backward)
    return [item for item in items if isinstance(item, Operation) and item.kernel == "product"]


def test_products_of_layers_are_narrow_and_logits_are_not() -> None:
    job = job_of("job.products=fp8")

    assert {each.narrow for each in products(job, 1)} == {"fp8"}
    assert {each.narrow for each in products(job, -1)} == {None}


def test_logits_are_narrow_if_asked_for() -> None:
    plain, narrow = (job_of("job.products=fp8", *more) for more in ([], ["job.narrow_logits=true"]))

    assert {each.narrow for each in products(narrow, -1)} == {"fp8"}
    assert products(narrow, 1) == products(plain, 1)


def test_flops_stay_and_factors_take_half() -> None:
    plain, narrow = products(job_of(), 1), products(job_of("job.products=fp8"), 1)

    assert [each.flops for each in plain] == [each.flops for each in narrow]
    for wide, each in zip(plain, narrow, strict=True):
        assert each.shape is not None
        batch, rows, inner, columns = each.shape
        assert wide.traffic - each.traffic == batch * (rows + columns) * inner


def test_a_layer_keeps_less_for_its_backward_pass() -> None:
    jobs = job_of(), job_of("job.products=fp8")

    plain, narrow = (block_work(stage_blocks(job.model, 1)[0][1], job).stored for job in jobs)

    assert narrow < plain


def test_feed_forward_networks_are_kept_or_repeated() -> None:
    jobs = job_of(), job_of("job.recompute=feed-forward"), job_of("job.recompute=full")

    works = [block_work(stage_blocks(job.model, 1)[0][1], job) for job in jobs]
    flops = [sum(item.flops for item in work.backward if isinstance(item, Operation)) for work in works]

    assert works[0].stored > works[1].stored > works[2].stored
    up = next(item for item in works[0].forward if isinstance(item, Operation) and item.name == "feed-forward up")
    assert flops[1] - flops[0] == up.flops
    assert flops[2] > flops[1]


def test_queries_keys_and_values_are_kept_and_the_rest_repeated() -> None:
    alone = "job.parallelism.context=1", "job.parallelism.data=8"
    jobs = job_of(*alone), job_of(*alone, "job.recompute=keep-qkv"), job_of(*alone, "job.recompute=full")

    works = [block_work(stage_blocks(job.model, 1)[0][1], job) for job in jobs]
    forward, *backward = (
        sum(item.flops for item in items if isinstance(item, Operation))
        for items in (works[0].forward, *(work.backward for work in works))
    )
    flops = {item.name: item.flops for item in works[0].forward if isinstance(item, Operation)}

    assert works[1].stored == 2 * 8192 * (4096 + 4096 + 2 * 1024)
    assert backward[2] - backward[0] == forward
    assert backward[2] - backward[1] == flops["QKV"] + flops["feed-forward down"]


def test_the_projection_of_attention_may_be_kept_as_well() -> None:
    alone = "job.parallelism.context=1", "job.parallelism.data=8"
    works = [
        block_work(stage_blocks(job.model, 1)[0][1], job)
        for job in (job_of(*alone, f"job.recompute=keep-{kept}") for kept in ("qkv", "attention"))
    ]
    flops = [sum(item.flops for item in work.backward if isinstance(item, Operation)) for work in works]
    kept = next(item for item in works[0].forward if isinstance(item, Operation) and item.name == "projection")

    assert flops[0] - flops[1] == kept.flops
    assert works[1].stored - works[0].stored == 2 * 8192 * 4096


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        (["job.products=fp8"], 0),
        (["job.products=fp8", "job.scaling=current"], 1),
        (["job.products=mxfp8"], 0),
        (["job.products=nvfp4"], 1),
    ],
)
def test_tensors_are_read_once_more_for_their_scale(settings: list[str], reads: int) -> None:
    job = job_of("job.parallelism.context=1", "job.parallelism.data=8", "cluster.gpu.include=b200-sxm", *settings)
    work = block_work(stage_blocks(job.model, 1)[0][1], job)
    scales = [item for item in work.forward if isinstance(item, Operation) and item.name == "scale of input"]

    inputs = 8192 * (4096 + 14336)  # of projection and down; norms find those of the others
    assert sum(item.traffic for item in scales) == reads * 2 * inputs


@pytest.mark.parametrize(("rows", "columns", "microseconds"), [(8192, 8192, 52.34), (4096, 14336, 47.05)])
def test_mxfp8_is_turned_as_fast_as_on_a_b200(rows: int, columns: int, microseconds: float) -> None:
    """ROCm/TransformerEngine, pull request 598; NVIDIA/TransformerEngine, pull request 3137, with sums of columns."""
    job = job_of("job.products=mxfp8", "cluster.gpu.include=b200-sxm")
    gpu = load("recipes", ["cluster.gpu.include=b200-sxm"]).scenario.cluster.gpu
    (turned,) = Tape(job).narrowed("input", rows * columns, "mxfp8", layouts=2)

    assert isinstance(turned, Operation)
    assert roofline_time(turned, "bf16", gpu) / 1e6 == pytest.approx(microseconds, rel=0.04)


@pytest.mark.parametrize("precision", ["fp8", "mxfp8"])
@pytest.mark.parametrize("context", [[], ["job.parallelism.context=1", "job.parallelism.data=8"]])
def test_attention_in_8_bits_is_on_narrow_factors_at_its_own_rate(
    context: list[str], precision: Literal["fp8", "mxfp8"]
) -> None:
    job = job_of("cluster.gpu.include=gb300", *context, f"job.attention_products={precision}")
    gpu = load("recipes", ["cluster.gpu.include=gb300"]).scenario.cluster.gpu
    work = block_work(stage_blocks(job.model, 1)[0][1], job)
    found = [
        item
        for item in (*work.forward, *work.backward)
        if isinstance(item, Operation) and item.kernel in ("attention", "attention-gradient")
    ]

    assert {item.narrow for item in found} == {precision}
    times = [roofline_time(each, "bf16", gpu) for item in found for each in (item, replace(item, narrow=None))]
    forward, backward = gpu.attention_forward or 1, gpu.attention_backward or 1
    ahead, back = (
        gpu.narrow_attention_forward[precision] / forward,
        gpu.narrow_attention_backward[precision] / backward,
    )
    for item, eight, sixteen in zip(found, times[::2], times[1::2], strict=True):
        rate = (back if item.kernel == "attention-gradient" else ahead) * gpu.peak[precision] / gpu.peak["bf16"]
        assert (sixteen - gpu.kernel_latency) / (eight - gpu.kernel_latency) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(("precision", "passes"), [("fp8", [3]), ("mxfp8", [4, 2 + 2 * 33 / 32])])
def test_attention_in_8_bits_turns_its_factors(precision: str, passes: list[float]) -> None:
    job = job_of("cluster.gpu.include=gb300", "job.parallelism.context=1", f"job.attention_products={precision}")
    work = block_work(stage_blocks(job.model, 1)[0][1], job)
    names = ("order attention inputs", "quantise attention inputs")
    turned = [item.traffic for item in work.forward if isinstance(item, Operation) and item.name in names]

    inputs = 8192 * (4096 + 2 * 1024)  # of queries, keys and values
    assert turned == [inputs * each for each in passes]


@pytest.mark.parametrize(("precision", "kept"), [("fp8", 1), ("mxfp8", 2 * 33 / 32)])
def test_attention_that_is_repeated_keeps_its_inputs_as_it_got_them(precision: str, kept: float) -> None:
    inputs, sums = 8192 * (4096 + 2 * 1024), 4 * 32 * 8192
    works = {}
    for narrow in ("", f"job.attention_products={precision}"):
        for recompute in ("none", "selective"):
            changes = ["job.parallelism.context=1", f"job.recompute={recompute}", *([narrow] if narrow else [])]
            job = job_of("cluster.gpu.include=gb300", *changes)
            works[bool(narrow), recompute] = block_work(stage_blocks(job.model, 1)[0][1], job)

    assert works[True, "none"].stored - works[False, "none"].stored == (kept - 2) * inputs
    assert works[True, "selective"].stored == works[False, "selective"].stored == works[False, "none"].stored - sums
    turned = [getattr(item, "name", "") for item in works[True, "selective"].backward]
    assert turned.count("quantise attention inputs") == 1


def test_a_window_takes_nothing_from_a_backward_pass_in_8_bits() -> None:
    core = Core(1, 64, 8, 64, 4096, 4096, causal=True)
    small, (_, gradient) = fused_passes(2, core._replace(window=128), "mxfp8")
    whole, (_, as_before) = fused_passes(2, core, "mxfp8")

    assert gradient == as_before
    assert small.flops < whole.flops / 10


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["job.narrow_logits=true"], "job.narrow_logits"),
        (["job.scaling=current"], "job.scaling"),
        (["job.products=mxfp8", "job.scaling=current"], "job.scaling"),
        (["job.attention_products=fp8", "job.attention=unfused"], "job.attention_products"),
    ],
)
def test_settings_without_effect_are_refused(settings: list[str], key: str) -> None:
    with pytest.raises(ScenarioError, match=key):
        job_of("cluster.gpu.include=b200-sxm", *settings)


def test_attention_stays_within_packed_documents() -> None:
    alone = "job.parallelism.context=1", "job.parallelism.data=8"
    whole, packed = job_of(*alone), job_of(*alone, "job.packed=256")
    layers = [block_work(stage_blocks(job.model, 1)[0][1], job) for job in (whole, packed)]
    flops = [
        [
            item.flops
            for item in (*work.forward, *work.backward)
            if isinstance(item, Operation) and "fused att" in item.name
        ]
        for work in layers
    ]

    assert layers[0].stored == layers[1].stored
    assert [longer // shorter for longer, shorter in zip(*flops, strict=True) if shorter] == [32, 32]


def test_gathers_and_scatters_beside_products_move_as_much() -> None:
    tensor = ["job.parallelism.tensor=4", "job.parallelism.context=1", "job.parallelism.data=2"]
    tensor.append("job.parallelism.sequence_parallel=true")
    jobs = job_of(*tensor), job_of(*tensor, "job.product_overlap=true")

    works = [block_work(stage_blocks(job.model, 1)[0][1], job) for job in jobs]
    moved = [sum(item.size for item in (*w.forward, *w.backward) if isinstance(item, Exchange)) for w in works]
    exposed = [
        sum(item.size for item in w.forward if isinstance(item, Exchange) and not item.asynchronous) for w in works
    ]

    assert moved[0] == moved[1]
    assert exposed[1] < exposed[0] / 4


def test_a_large_product_takes_the_time_of_its_rate() -> None:
    gpu = load("recipes", SETTINGS).scenario.cluster.gpu
    size = 16384
    wide = Operation("product", 2 * size**3, 6 * size**2, kernel="product", shape=(1, size, size, size))
    narrow = Operation("product", 2 * size**3, 4 * size**2, kernel="product", shape=(1, size, size, size), narrow="fp8")

    ratio = roofline_time(wide, "bf16", gpu) / roofline_time(narrow, "bf16", gpu)

    assert ratio == pytest.approx(1979 * 0.63 / (989 * 0.71), rel=0.03)


def test_a_gpu_without_them_says_so() -> None:
    with pytest.raises(ScenarioError, match="has no peak for 'fp8'"):
        load("recipes", ["cluster.gpu.include=a100-sxm-80gb", "job.products=fp8"])


def test_an_input_of_swiglu_is_kept_in_eight_bits_by_a_kernel_each_way() -> None:
    jobs = job_of("job.recompute=none"), job_of("job.recompute=none", "job.activation_input=fp8")

    plain, narrow = (block_work(stage_blocks(job.model, 1)[0][1], job) for job in jobs)
    passes = narrow.forward, narrow.backward
    forward, backward = ([item for item in items if isinstance(item, Operation)] for items in passes)
    names, back = ([item.name for item in items] for items in (forward, backward))
    inputs = next(item.traffic for item in forward if item.name == "SwiGLU") // 3  # reads two, writes one, of two bytes

    assert plain.stored - narrow.stored == inputs
    assert names.index("narrow SwiGLU input") + 1 == names.index("SwiGLU")
    assert back.index("widen SwiGLU input") + 1 == back.index("SwiGLU gradient")
    assert [item.traffic for item in (*forward, *backward) if item.name.endswith("SwiGLU input")] == [3 * inputs] * 2


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (("job.recompute=full",), "is not kept if 'full' repeats it"),
        (("job.model.include=gpt3-175b",), "which models of family llama have"),
        (("job.recompute=none", "job.products=fp8", "job.activation_quantises=true"), "keeps its input as it is"),
        (
            ("job.recompute=none", "job.model.include=mixtral-8x7b", "job.expert_kernels=fused"),
            "all SwiGLUs are in the kernels of experts",
        ),
    ],
)
def test_only_a_kept_input_of_swiglu_is_narrow(settings: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        load("recipes", [*SETTINGS, "job.activation_input=fp8", *settings])


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
def test_an_activation_that_quantises_saves_a_kernel_each_way(model: str) -> None:
    settings = "job.recompute=none", "job.products=fp8", f"job.model.include={model}", "cluster.gpu.memory=1TB"
    plain, fused = (
        block_work(stage_blocks(job.model, 1)[0][1], job)
        for job in (job_of(*settings), job_of(*settings, "job.activation_quantises=true"))
    )

    for ways, reads, factors in (("forward", 2, 1), ("backward", 3, 2)):
        before, after = (
            [item for item in getattr(work, ways) if isinstance(item, Operation)] for work in (plain, fused)
        )
        moved = next(item.traffic for item in before if item.name.startswith("SwiGLU"))
        saved = sum(item.traffic + item.transposed for item in before)
        saved -= sum(item.traffic + item.transposed for item in after)
        assert len(before) - len(after) == 1
        assert saved == factors * moved // (2 * (reads + factors)) * (2 + 1 + 1)


@pytest.mark.parametrize(
    "settings", ["job.products=fp8 job.scaling=current", "job.products=nvfp4", "job.model.include=gpt3-175b"]
)
def test_scales_must_be_known_to_an_activation_that_quantises(settings: str) -> None:
    with pytest.raises(ScenarioError, match="activation_quantises"):
        load("recipes", [*SETTINGS, "job.activation_quantises=true", *settings.split()])
