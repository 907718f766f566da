from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.run.pipeline import load
from fabricsim.studies import deepep, dgxc, dlperf
from fabricsim.studies.frame import layouts, recipes
from fabricsim.studies.frame.releases import mixture, repeated
from fabricsim.studies.frame.training import PublishedRun
from fabricsim.workload.attention import Core, fused, fused_passes
from fabricsim.workload.roofline import roofline_time

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.studies.frame.study import Study

STUDIES = ["dgxc", "mlperf", "megatron-bridge"]


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_row_is_predicted_or_says_why_not(name: str) -> None:
    rows = recipes.published(name, recipes.by_run)

    assert len(rows) == len(measured.load(name).rows)
    assert all(row.missing or row.value > 0 for row in rows)


@pytest.mark.parametrize(
    ("table", "run", "gpu", "forward"),
    [
        ("megatron-bridge", "26.02", "gb200", 0.73),  # of the GPU itself
        ("megatron-bridge", "25.11", "gb200", 0.705),
        ("mlperf", "v5.0", "b200", 0.51),
        ("mlperf", "v5.0", "gb200", 0.50),
        ("mlperf", "v5.1", "b200", 0.715),
    ],
)
def test_attention_is_that_of_the_library_of_a_run(table: str, run: str, gpu: str, forward: float) -> None:
    rows = measured.load(table).rows
    record = next(one for one in rows if str(one["run"]).startswith(run) and one["gpu"] == gpu)
    settings = list(recipes.published_run(record).settings)

    assert load("recipes", settings).scenario.cluster.gpu.attention_forward == forward


@pytest.mark.parametrize(
    ("run", "gpu", "found", "left"),
    [
        (
            "26.08 DeepSeekV3",
            "gb300",
            ["job.recompute=none", "job.attention_products=mxfp8", "job.narrow_logits=true", "job.launch=graph"],
            "job.parallelism.context=2",
        ),
        (
            "26.06 DeepSeekV3",
            "gb200",
            ["job.recompute=latent", "job.narrow_logits=true"],
            "job.attention_products=mxfp8",
        ),
        (
            "26.04 DeepSeekV3",
            "gb200",
            ["job.recompute=latent", "cluster.gpu.nvlink_efficiency=0.671"],
            "job.narrow_logits=true",
        ),
        (
            "26.06 Qwen3_30B",
            "h100",
            ["job.recompute=none", "job.expert_kernels=flex"],
            "cluster.gpu.nvlink_efficiency=0.73",
        ),
        ("26.06 LLAMA3.1_405B", "gb200", ["job.recompute=none", "job.loss_kernels=fused"], "job.recompute=latent"),
        (
            "26.04 Qwen3_235B",
            "h100",
            ["job.parallelism.expert_tensor=1", "job.expert_kernels=all-to-all", "job.expert_overlap=true"],
            "job.product_overlap=true",
        ),
        (
            "25.09 DeepSeekV3 (dropless)",
            "h100",
            ["job.parallelism.expert_tensor=1", "job.expert_kernels=flex", "job.expert_overlap=true"],
            "job.product_overlap=true",
        ),
        ("26.04 Qwen3_30B", "h100", ["job.expert_kernels=flex"], "job.expert_overlap=true"),
        ("26.04 GPT OSS", "gb300", ["job.recompute=none"], "job.recompute=expert-activation"),
        ("26.06 GPT OSS", "gb200", ["job.recompute=none"], "job.recompute=expert-activation"),
    ],
)
def test_a_release_runs_a_model_as_its_recipe_says(run: str, gpu: str, found: list[str], left: str) -> None:
    rows = (row for row in measured.load("megatron-bridge").rows if str(row["run"]).startswith(run))
    settings = recipes.published_run(next(row for row in rows if row["gpu"] == gpu)).settings

    assert set(found) <= set(settings)
    assert left not in settings


@pytest.mark.parametrize(("gpu", "repeated"), [("h100", "latent"), ("gb200", "none")])
def test_what_came_before_megatron_bridge_is_of_no_release(gpu: str, repeated: str) -> None:
    rows = (row for row in measured.load("dgxc").rows if row["model"] == "deepseek-v3")
    settings = recipes.published_run(next(row for row in rows if row["gpu"] == gpu)).settings

    assert {"job.parallelism.expert_tensor=1", "job.expert_kernels=all-to-all"} <= set(settings)
    assert f"job.recompute={repeated}" in settings
    assert not any(line.startswith("job.recorded") or line == "job.launch=graph" for line in settings)


@pytest.mark.parametrize(
    ("run", "gpu", "gpus", "recorded", "inside", "buffers"),
    [
        ("v3.0 NVIDIA, gpt3", "h100", 768, False, False, True),
        ("v3.1 NVIDIA, gpt3", "h100", 8192, False, False, True),
        ("v4.1 NVIDIA, gpt3", "b200", 64, True, False, True),
        ("v5.0 IBM+CoreWeave+NVIDIA, llama31_405b", "gb200", 2048, False, True, True),
        ("v5.0 NVIDIA, llama31_405b", "h100", 2048, False, False, True),
        ("v5.0 NVIDIA, llama31_405b", "gb200", 256, True, False, True),
        ("v5.0 NVIDIA, llama31_405b", "gb200", 512, True, True, True),
        ("v5.1 Nebius, llama31_405b", "h200", 1024, False, True, True),
        ("v5.1 University-of-Florida, llama31_405b", "b200", 256, True, True, False),
        ("v5.1 HPE, llama31_8b", "h200", 64, True, False, False),
    ],
)
def test_a_submission_runs_as_its_configuration_says(  # noqa: PLR0913  columns of a table
    run: str, gpu: str, gpus: int, *, recorded: bool, inside: bool, buffers: bool
) -> None:
    rows = [row for row in measured.load("mlperf").rows if row["run"] == run and row["gpu"] == gpu]
    settings = recipes.published_run(next(row for row in rows if row["gpus"] == gpus)).settings

    assert ("job.launch=graph" in settings) == recorded
    assert ("job.parallelism.order=tensor-context-pipeline-data" in settings) == inside
    assert ("job.product_overlap=true" in settings) == buffers


def test_a_release_repeats_activations_of_experts_if_memory_is_short() -> None:
    rows = [("25.11", "gpt-oss-120b", "gb200", "bf16"), ("26.04", "gpt-oss-120b", "h100", "mxfp8")]
    rows.append(("25.11", "deepseek-v3", "gb300", "bf16"))

    assert {repeated(*row) for row in rows} == {"expert-activation"}
    assert repeated("26.06", "gpt-oss-120b", "gb200", "mxfp8") == "none"


@pytest.mark.parametrize(("release", "padded"), [("25.11", True), ("26.02.01", True), ("26.04", False)])
def test_experts_in_8_bits_are_padded_before_26_04(release: str, padded: bool) -> None:  # noqa: FBT001
    mixtures = [mixture(release, "qwen3-30b-a3b", "h100", precision) for precision in ("fp8", "bf16")]

    assert [("job.padded_experts=true" in each) for each in mixtures] == [padded, False]


def test_layers_of_transformer_engine_take_their_time_of_hosts_unless_kernels_are_recorded() -> None:
    rows = [row for name in STUDIES for row in measured.load(name).rows if not recipes.missing_of(row)]
    hosts = {"job.launch=graph", "job.launch=transformer-engine", "job.kernel_launch=99.7us"}
    found = {
        (str(row["gpu"]).startswith("gb"), *hosts.intersection(recipes.published_run(row).settings)) for row in rows
    }

    assert found == {
        (False, "job.launch=graph"),
        (False, "job.launch=transformer-engine"),
        (True, "job.launch=graph"),
        (True, "job.kernel_launch=99.7us"),
    }


@pytest.mark.parametrize(
    ("model", "commit", "flash_attention_2", "recompute", "experts"),
    [
        ("grok-1", "35a9aec", True, "none", "unfused"),
        ("grok-1", "0efdb23", True, "none", "unfused"),
        ("grok-1", "c5c765f", False, None, "all-to-all"),
        ("gpt3-175b", "e6afea3", True, "none", None),
        ("gpt3-175b", "5f23b67", False, "none", None),
        ("nemotron4-15b", "5f23b67", False, "none", None),
        ("nemotron4-340b", "5f23b67", True, "selective", None),
        ("nemotron4-340b", "0efdb23", False, None, None),
        ("llama3-70b", "35a9aec", False, None, None),
    ],
)
def test_a_recipe_of_dgx_cloud_runs_as_its_configuration_says(
    model: str, commit: str, *, flash_attention_2: bool, recompute: str | None, experts: str | None
) -> None:
    """Releases by the commits of their sources, from v24.11.1 to v25.05.05."""
    rows = (row for row in measured.load("dgxc").rows if row["model"] == model)
    run = recipes.published_run(next(row for row in rows if str(row["line"]).startswith(commit)))
    said = dict(line.split("=", maxsplit=1) for line in run.settings)

    assert (said.get("cluster.gpu.attention_backward") == "0.33") == flash_attention_2
    assert said.get("job.recompute") == recompute
    assert said.get("job.expert_kernels") == experts


@pytest.mark.parametrize(("tokens", "rate"), [(2048, 298), (4096, 319), (8192, 333), (16384, 335)])
def test_flash_attn_2_takes_as_long_as_it_was_measured(tokens: int, rate: int) -> None:
    """Forward under a causal mask on H100, heads of 128, TFLOPS (Shah et al., arXiv 2407.08608, figure 5)."""
    row = next(row for row in measured.load("dgxc").rows if row["model"] == "grok-1")
    gpu = load("recipes", list(recipes.published_run(row).settings)).scenario.cluster.gpu
    attention = fused(2, Core(16384 // tokens, 16, 16, 128, tokens, tokens, causal=True))

    assert attention.flops / roofline_time(attention, "bf16", gpu) == pytest.approx(rate, rel=0.02)


LOCKED, BOOST = 1665, 1965  # MHz, of a B200 whose iterations were timed, and of one whose clock is not locked


@pytest.mark.parametrize(("way", "now"), [("forward", 0.715), ("backward", 0.565)])
def test_attention_of_cudnn_9_9_is_as_iterations_with_it_say(way: str, now: float) -> None:
    """Iterations of Llama 3.2 1B on a B200, ms, as one to twelve sequences; see `recipes`."""
    timed = {(1, 16384): 284.976, (2, 8192): 231.205, (3, 4096): 155.313, (6, 2048): 144.358, (12, 1024): 139.254}
    pairs = [((1, 16384), (2, 8192)), ((3, 4096), (6, 2048)), ((6, 2048), (12, 1024))]
    gpu = load("ideal-16", ["cluster.gpu=b200-sxm"]).scenario.cluster.gpu

    def kernels(batch: int, tokens: int) -> float:
        passes, gradient = fused_passes(2, Core(batch, 32, 8, 64, tokens, tokens, causal=True), None)
        return 16 * sum(roofline_time(one, "bf16", gpu) for one in (passes, *gradient)) / 1e9

    predicted = sum(kernels(*longer) - kernels(*shorter) for longer, shorter in pairs)
    measured_ms = sum(timed[longer] - timed[shorter] for longer, shorter in pairs) * LOCKED / BOOST
    old = next(
        row for row in measured.load("mlperf").rows if str(row["run"]).startswith("v5.0") and row["gpu"] == "b200"
    )
    settings = list(recipes.published_run(old).settings)
    then = getattr(load("recipes", settings).scenario.cluster.gpu, f"attention_{way}")

    assert predicted / measured_ms == pytest.approx(0.71, abs=0.005)
    assert then / now == pytest.approx(predicted / measured_ms, rel=0.01)


def test_xla_gathers_what_it_turns_into_8_bits_as_such() -> None:
    rows = [row for row in measured.load("dgxc").rows if row["shards"]]
    narrow = {str(row["precision"]): "job.narrow_gathers=true" in recipes.published_run(row).settings for row in rows}

    assert narrow == {"bf16": False, "fp8": True}
    assert all("job.sharded_copies=none" in recipes.published_run(row).settings for row in rows)


@pytest.mark.parametrize(
    ("table", "begin", "distributed", "narrow", "quantises"),
    [
        ("mlperf", "v5.1 Verda, llama31_8b", True, True, False),
        ("mlperf", "v5.1 Nebius, llama31_8b", True, False, False),
        ("mlperf", "v5.1 Dell, llama2_70b_lora", True, False, True),
        ("mlperf", "v5.0 Dell, llama2_70b_lora", True, False, False),
        ("mlperf", "v3.1 NVIDIA, gpt3", False, False, False),
        ("megatron-bridge", "26.04 Qwen3_30B_a3B", True, False, False),
        ("megatron-bridge", "26.04 DeepSeekV3", False, False, False),
        ("megatron-bridge", "26.04 GPT OSS 120B", False, False, False),
        ("dgxc", "Grok", True, False, False),
    ],
)
def test_recipes_have_the_optimizer_of_their_framework(
    table: str, begin: str, *, distributed: bool, narrow: bool, quantises: bool
) -> None:
    rows = (row for row in measured.load(table).rows if not recipes.missing_of(row))
    said = next(run.settings for run in map(recipes.published_run, rows) if run.name.startswith(begin))

    assert ("job.optimizer=distributed" in said) == distributed
    assert ("job.narrow_gathers=true" in said) == narrow
    assert ("job.activation_quantises=true" in said) == quantises


def test_messages_of_interleaved_schedules_go_beside_passes() -> None:
    rows = [row for name in STUDIES for row in measured.load(name).rows if not recipes.missing_of(row)]
    beside = {(row["chunks"] > 1, "job.pipeline_overlap=true" in recipes.published_run(row).settings) for row in rows}

    assert beside == {(True, True), (False, False)}


def test_tensor_parallel_gathers_run_beside_products_but_in_4_bits() -> None:
    rows = [row for row in measured.load("megatron-bridge").rows if row["tensor"] > 1]
    dense = [row for row in rows if row["expert"] == 1]
    beside = {str(row["precision"]): "job.product_overlap=true" in recipes.published_run(row).settings for row in dense}

    assert beside == {"fp8": True, "mxfp8": True, "nvfp4": False}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_each_run_is_that_of_its_row(name: str) -> None:
    for record in measured.load(name).rows[::5]:
        if recipes.missing_of(record):
            continue
        job = recipes.published_run(record).job()
        assert job.parallelism.ranks == record["gpus"]
        for key in ("global_batch", "micro_batch", "sequence"):
            assert getattr(job, key) == record[key]
        assert (job.products or "bf16") == record["precision"]


def predictions(study: Study, rows: list[str]) -> dict[str, float]:
    every = {row.quantity: row for row in recipes.published(study.name, recipes.by_run)}
    return {name: every[name].predict() / every[name].value - 1 for name in rows}


@pytest.mark.slow
def test_dense_steps_are_met() -> None:
    names = [
        "Llama 3.1 70b BF16, 64 H100, bf16, TP4 CP2 PP4, batch 128",
        "Llama 3.1 405b FP8, 1024 H100, fp8, TP8 CP2 PP8, batch 512",
    ]

    for name, error in predictions(dgxc.STUDY, names).items():
        assert abs(error) < 0.06, name


@pytest.mark.slow
def test_all_to_alls_beside_kernels_leave_what_the_host_takes_on_h100() -> None:
    """Qwen3 30B in BF16 on 16 H100 (NVIDIA-NeMo/Megatron-Bridge@6608201, skills/mbridge-perf-moe-comm-overlap).

    Tokens were ordered by operations of PyTorch there (``moe_permute_fusion=false``), which is not counted here.
    """
    shape = {"gpu": "h100", "gpus": 16, "model": "qwen3-30b-a3b", "precision": "bf16", "sequence": 4096, "layers": 0}
    degrees = {"tensor": 1, "context": 1, "pipeline": 1, "chunks": 1, "expert": 16, "shards": 0}
    record = {"run": "26.04", **shape, **degrees, "micro_batch": 1, "global_batch": 1024, "line": ""}
    run = recipes.published_run(cast("np.void", record))
    ways = {"plain": [], "beside": ["job.expert_overlap=true"], "recorded": ['job.recorded=["attention", "router"]']}

    times = {}
    for way, more in ways.items():
        settings = *run.settings, "job.expert_kernels=all-to-all", *more
        times[way] = recipes.extended(settings, run.job())

    assert times["recorded"] == pytest.approx(times["plain"], rel=0.02)  # measured 42.0 and 41.3 s
    assert times["plain"] == pytest.approx(41.25, rel=0.22)
    assert times["beside"] == pytest.approx(31.31, rel=0.05)


@pytest.mark.slow
def test_bert_on_v100_is_met_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    table = measured.load("dlperf")
    of_oneflow = (table.rows["framework"] == "OneFlow") & (table.rows["precision"] == "fp32")
    monkeypatch.setattr(measured, "load", lambda _: replace(table, rows=table.rows[of_oneflow]))
    rows = [row for row in dlperf.rows() if row.quantity.startswith("OneFlow, 32 GPUs, fp32")]

    errors = [row.predict() / row.value - 1 for row in rows]

    assert len(errors) == 35
    assert abs(sum(errors)) / len(errors) < 0.10


@pytest.mark.slow
def test_dispatch_fills_nvlink() -> None:
    (row,) = (each for each in deepep.rows() if each.quantity == "dispatch, second, 8 B200, 64 processors")

    assert row.predict() == pytest.approx(row.value, rel=0.02)


def test_the_slowest_of_more_gpus_is_slower() -> None:
    speeds = [recipes.slowest(gpus) for gpus in (8, 256, 10_000)]

    assert 1 > speeds[0] > speeds[1] > speeds[2] > 0.93


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama3-70b", "llama3-8b"])
def test_two_short_iterations_stand_for_a_long_one(model: str) -> None:
    (record, *_) = (each for each in measured.load("dgxc").rows if each["model"] == model)
    settings = recipes.published_run(record).settings
    degrees = PublishedRun("", "recipes", settings).job().parallelism
    few = "job.micro_batch=1", f"job.global_batch={8 * degrees.pipeline * degrees.data}"
    run = PublishedRun("", "recipes", (*settings, *few))

    assert recipes.extended(run.settings, run.job()) == pytest.approx(run.iteration(), rel=2e-3)


@pytest.mark.slow
def test_what_fits_is_not_recomputed() -> None:
    (row, *_) = (each for each in measured.load("dgxc").rows if each["model"] == "llama3-8b")
    job = recipes.published_run(row).job()

    assert recipes.recomputed(job, "h100") == "none"
    assert recipes.recomputed(job.model_copy(update={"micro_batch": 64, "global_batch": 2048}), "h100") == "full"


@pytest.mark.slow
def test_what_recipes_say_of_repetition_goes_before_memory() -> None:
    (row, *_) = (each for each in measured.load("megatron-bridge").rows if each["shards"] == 64)
    run = recipes.published_run(row)

    assert recipes.recomputed(run.job(), str(row["gpu"])) == "feed-forward"
    assert "job.recompute=none" in run.settings


def test_a_row_is_found_by_the_beginning_of_its_name_and_has_what_memory_decides() -> None:
    run, step = recipes.run_named("dgxc", "Llama 3.1 8b BF16, 8 H100")

    assert run.name.startswith("Llama 3.1 8b BF16, 8 H100, bf16, TP1 CP2 PP1")
    assert step == 12.91
    assert any(setting.startswith("job.recompute=") for setting in run.settings)
    for table, text, told in (("dgxc", "Llama 9", "no such row"), ("mlperf", "x", "dgxc or megatron-bridge")):
        with pytest.raises(InputError, match=told):
            recipes.run_named(table, text)


@pytest.mark.slow
def test_published_layouts_are_compared_with_the_best_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that differ in what was measured alone are one search; what is not predicted says why."""
    table = measured.load("megatron-bridge")
    tuned = [row for row in table.rows if "LLAMA2-7B LoRA, 8 H100" in recipes.published_run(row).name]
    unknown = next(row for row in table.rows if recipes.missing_of(row))
    few = replace(table, rows=np.array([*tuned, unknown], table.rows.dtype))
    monkeypatch.setattr(measured, "load", lambda _: few)
    shares: list[float] = []
    choice = {"given": {"job.micro_batch": [1, 4]}}
    rows = list(layouts.compared("megatron-bridge", tmp_path, [], shares.append, **choice))

    assert [row["measured_s"] for row in rows] == few.rows["step"].tolist()
    assert rows[-1]["error"] == recipes.missing_of(unknown)
    assert rows[0]["longer"] == rows[0]["own_s"] / rows[0]["best_s"] - 1 > 0
    assert rows[0]["better"].startswith("micro_batch 4 in place of 1")
    assert len(list(tmp_path.iterdir())) == len({recipes.published_run(row).settings for row in tuned})
    assert shares[-1] == 1
