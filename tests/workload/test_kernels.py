"""Measured kernels against the roofline; `a100.csv`, `h100.csv`, rows of `attention.csv` gave its parameters."""

from __future__ import annotations

import csv
import statistics
import tomllib
from pathlib import Path

import pytest

from fabricsim import load
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.library import root
from fabricsim.workload.attention import Core, fused, fused_passes
from fabricsim.workload.tape import added_up
from fabricsim.workload.work import Kernel, Operation
from tests.reference.kernels import operation_time

FOLDER = Path(__file__).parent / "kernels"


def library_gpu(name: str) -> Gpu:
    return load("ideal-16", [f"cluster.gpu={name}"]).scenario.cluster.gpu


def product(batch: int, rows: int, inner: int, columns: int) -> Operation:
    traffic = 2 * batch * (rows * inner + inner * columns + rows * columns)
    shape = (batch, rows, inner, columns)
    return Operation("product", 2 * batch * rows * inner * columns, traffic, kernel="product", shape=shape)


def table_of(name: str) -> list[dict[str, str]]:
    lines = [line for line in (FOLDER / f"{name}.csv").read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def job() -> Job:
    model = tomllib.loads((root() / "models" / "gpt2-medium.toml").read_text())
    return Job.model_validate(
        {"model": model, "micro_batch": 1, "global_batch": 1, "sequence": 1024, "launch": "graph"}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "gpu", "mean", "worst"),
    [
        ("a100", "a100-sxm-80gb", 0.045, 0.14),
        ("h100", "h100-sxm", 0.045, 0.12),
        ("a100_held_out", "a100-sxm-80gb", 0.07, 0.15),
    ],
)
def test_measured_products(table: str, gpu: str, mean: float, worst: float, job: Job) -> None:
    errors = []
    for row in table_of(table):
        shape = (1, int(row["rows"]), int(row["inner"]), int(row["columns"]))
        errors.append(operation_time(product(*shape), job, library_gpu(gpu)) / 1e6 / float(row["us"]) - 1)

    assert statistics.fmean(map(abs, errors)) < mean
    assert max(map(abs, errors)) < worst


@pytest.mark.parametrize(
    ("shape", "measured"),
    [
        ((128, 1024, 1024, 1024), 227.3),
        ((128, 1024, 1024, 2048), 243.3),
        ((1, 8192, 4096, 12288), 241.6),
        ((1, 8192, 4096, 4096), 234.9),
        ((1, 8192, 4096, 16384), 241.1),
        ((1, 8192, 16384, 4096), 252.8),
        ((1, 8192, 4096, 51200), 255.4),
        ((64, 2048, 256, 2048), 130.2),
        ((64, 2048, 2048, 256), 219.0),
    ],
)
def test_products_of_a_transformer(shape: tuple[int, int, int, int], measured: float, job: Job) -> None:
    """A100 40 GB, TFLOPS, from github.com/EleutherAI/cookbook, benchmarks/sizing/sample_results."""
    one = product(*shape)

    assert one.flops / operation_time(one, job, library_gpu("a100-sxm-40gb")) == pytest.approx(measured, rel=0.13)


@pytest.mark.parametrize(
    ("size", "microseconds"),
    [(1024, 5.08), (1536, 7.87), (2048, 15.2), (3072, 38.4), (4096, 97.4), (6144, 319), (8192, 774)],
)
def test_square_products_of_a_b200(size: int, microseconds: float, job: Job) -> None:
    """From github.com/pytorch/ao/pull/2427; those from 4096 on gave the sustained share of the peak."""
    time = operation_time(product(1, size, size, size), job, library_gpu("b200-sxm"))

    assert time / 1e6 == pytest.approx(microseconds, rel=0.15)


def test_what_products_of_a_b200_add_to_a_buffer_comes_on_top(job: Job) -> None:
    """Gradients of weights in fp32 take 10 % longer than the products beside them, and 12 % are predicted.

    That is the median of 40 weights, of which one is 26 % faster, short as its kernels are, and one 34 % slower.
    """
    preset = library_gpu("b200-sxm")
    gpu = preset.model_copy(update={"gemm_efficiency": 0.498})  # of that host, as `fabricsim.studies.simumax` has it
    shares = {of: [row for row in table_of("b200") if row["of"] == of] for of in ("forward", "input", "weight")}
    measured, predicted = [], []
    for forward, back, weight in zip(*shares.values(), strict=True):
        beside = (1 / float(forward["share"]) + 1 / float(back["share"])) / 2
        measured.append(1 / float(weight["share"]) / beside)
        plain = product(1, int(weight["rows"]), int(weight["inner"]), int(weight["columns"]))
        added = added_up(plain, buffer=4, written=2)
        predicted.append(operation_time(added, job, gpu) / operation_time(plain, job, gpu))

    assert statistics.median(measured) == pytest.approx(1.10, abs=0.01)
    assert statistics.median(predicted) == pytest.approx(1.12, abs=0.01)
    assert (min(measured), max(measured)) == (pytest.approx(0.74, abs=0.01), pytest.approx(1.34, abs=0.01))


@pytest.mark.parametrize(
    ("experts", "rows", "inner", "columns", "forward", "weight"),
    [
        (32, 1024, 7168, 4096, 0.4571, 0.2888),
        (32, 1024, 2048, 7168, 0.3842, 0.2744),
        (40, 2460, 5120, 3072, 0.4868, 0.4166),
        (40, 2460, 1536, 5120, 0.4958, 0.4026),
    ],
)
def test_experts_of_few_tokens_take_longest_to_add_gradients(  # noqa: PLR0913, PLR0917  what was measured
    experts: int, rows: int, inner: int, columns: int, forward: float, weight: float
) -> None:
    """Products of DeepSeek-V3 and V2 in fp32 buffers on that B200, one by one; what they take besides, over bytes."""
    gpu = library_gpu("b200-sxm")
    plain = product(experts, columns, rows, inner)
    added = added_up(plain, buffer=4, written=2).added
    besides = plain.flops / gpu.peak["bf16"] * (1 / weight - 1 / forward)

    assert 0.6 < besides / (added / (gpu.memory_rate * gpu.memory_efficiency)) < 1.7


# FlashAttention-3 on H100, heads of 128, 16,384 tokens per batch, TFLOPS (arXiv 2407.08608, figures 5 and 6).
TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
FORWARD = (467, 565, 625, 638, 646, 648)
FORWARD_CAUSAL = (292, 423, 521, 579, 602, 616)
BACKWARD = (316, 424, 501, 542, 559, 561)


@pytest.mark.parametrize(
    ("products", "causal", "measured"), [(2, False, FORWARD), (2, True, FORWARD_CAUSAL), (5, False, BACKWARD)]
)
def test_fused_attention(products: int, measured: tuple[int, ...], job: Job, *, causal: bool) -> None:
    for tokens, published in zip(TOKENS, measured, strict=True):
        heads = 16384 // tokens * 16
        flops = products * 2 * heads * tokens * tokens * 128 // (2 if causal else 1)
        kind: Kernel = "attention" if products == 2 else "attention-gradient"
        one = Operation("attention", flops, 0, kernel=kind, shape=(heads, tokens, 128, tokens))

        rate = flops / operation_time(one, job, library_gpu("h100-sxm"))

        assert rate == pytest.approx(published, rel=0.1 if tokens > 1024 else 0.25)


def attention_errors(job: Job, **chosen: str) -> tuple[list[float], list[float]]:
    """Relative errors of rows of `attention.csv`, forward and backward with the sums before it."""
    ahead, back = [], []
    for row in table_of("attention"):
        if any(row[key] != value for key, value in chosen.items()):
            continue
        tokens, heads, values = int(row["tokens"]), int(row["heads"]), int(row["values"])
        window = int(row["window"]) or None
        rotary = int(row["queries"]) - values
        core = Core(int(row["batch"]), heads, heads, values, tokens, tokens, causal=True, rotary=rotary, window=window)
        gpu = library_gpu(row["gpu"])
        passes, gradient = fused_passes(2, core, "mxfp8" if row["precision"] == "mxfp8" else None)
        ahead.append(operation_time(passes, job, gpu) / 1e9 / float(row["forward"]) - 1)
        both = sum(operation_time(each, job, gpu) for each in gradient)
        back.append(both / 1e9 / float(row["backward"]) - 1)
    return ahead, back


@pytest.mark.parametrize(
    ("precision", "rows", "mean", "largest"), [("bf16", 18, 0.012, 0.03), ("mxfp8", 8, 0.025, 0.06)]
)
def test_fused_attention_of_cudnn_is_as_its_tables_say(
    precision: str, rows: int, mean: float, largest: float, job: Job
) -> None:
    ahead, back = attention_errors(job, used="yes", precision=precision)

    assert len(ahead) == rows
    assert statistics.fmean(map(abs, ahead + back)) < mean
    assert max(map(abs, ahead + back)) < largest


@pytest.mark.parametrize(
    ("chosen", "forward", "backward"),
    [
        ({"tokens": "2048"}, 0.08, 0.12),
        ({"queries": "192", "precision": "bf16"}, 0.03, 0.20),  # latent attention
        ({"gpu": "gb200", "window": "128", "precision": "bf16"}, 0.05, 0.13),
        ({"gpu": "gb300", "window": "128", "precision": "bf16"}, 0.25, 0.15),
        ({"queries": "192", "precision": "mxfp8"}, 0.03, 0.09),
        ({"window": "128", "precision": "mxfp8"}, 0.13, 0.24),
    ],
)
def test_fused_attention_of_other_shapes(chosen: dict[str, str], forward: float, backward: float, job: Job) -> None:
    ahead, back = attention_errors(job, used="no", **chosen)

    assert max(map(abs, ahead)) < forward
    assert max(map(abs, back)) < backward


def test_heads_between_64_and_128_take_a_time_between(job: Job) -> None:
    gpu = library_gpu("gb200")
    cores = [Core(8, 64, 64, head, 4096, 4096, causal=True) for head in (32, 64, 96, 128)]
    times = [operation_time(fused(2, core), job, gpu) for core in cores]

    assert times[0] == pytest.approx(times[1], rel=1e-3)  # each pair has its exponential
    assert times[2] == pytest.approx((times[1] + times[3]) / 2, rel=1e-3)
