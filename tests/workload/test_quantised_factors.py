"""Factors of products in 8 and 4 bits: who writes them, in how many layouts, and how long that takes."""

from __future__ import annotations

from typing import Literal

import pytest

from fabricsim.run.pipeline import load
from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import FUNCTION_SHARE, HADAMARD_SHARE, roofline_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.tape import NARROW_BYTES, Tape
from fabricsim.workload.work import Operation
from tests.workload.test_narrow import SETTINGS, job_of

# Rows, inner width and columns of the products of a layer (NVIDIA/TransformerEngine@8f2e635, docs/examples/
# gemm_profiling), whose times with and without quantisation stand below
_SHAPES = [(15_872, *widths) for widths in ((4096, 12_288), (4096, 4096), (4096, 16_384), (16_384, 4096))]


@pytest.mark.parametrize(
    ("settings", "written", "transposed", "quantised"),
    [
        ([], 2, 0, 0),
        (["job.products=fp8"], 1, 2, 2),  # a byte is read and one written to transpose
        (["job.products=fp8", "job.scaling=current"], 2, 0, 4),
        (["job.products=mxfp8"], 2, 0, 4),
    ],
)
def test_norms_write_factors_whose_scale_is_known(
    settings: list[str], written: int, transposed: int, quantised: int
) -> None:
    job = job_of("job.parallelism.context=1", "job.parallelism.data=8", "cluster.gpu.include=b200-sxm", *settings)
    forward = block_work(stage_blocks(job.model, 1)[0][1], job).forward
    kernels = [item for item in forward if isinstance(item, Operation)]
    norms = [item for item in kernels if item.name.startswith("layer norm")]

    elements = 8192 * 4096
    assert [each.traffic for each in norms] == [elements * (2 + written)] * 2
    assert [each.transposed for each in norms] == [elements * transposed] * 2
    assert sum(item.name == "quantise input" for item in kernels) == quantised


@pytest.mark.parametrize(("targets", "written"), [("qkv projection", 2 + 1), ("qkv up", 2 + 2), ("projection", 1 + 1)])
def test_norms_write_nothing_narrow_that_adapters_read(targets: str, written: int) -> None:
    adapters = f"job.adapters={{rank=16, targets={targets.split()}}}"
    job = job_of("job.parallelism.context=1", "job.parallelism.data=8", "job.products=fp8", adapters)
    forward = block_work(stage_blocks(job.model, 1)[0][1], job).forward

    norms = [item.traffic for item in forward if isinstance(item, Operation) and item.name == "layer norm"]
    assert sum(norms) == 8192 * 4096 * (2 * 2 + written)


@pytest.mark.parametrize("narrow", ["fp8", "mxfp8", "nvfp4"])
def test_factors_are_transposed_if_products_need_it(narrow: Literal["fp8", "mxfp8", "nvfp4"]) -> None:
    scenario = load("recipes", [*SETTINGS, "cluster.gpu.include=b200-sxm", f"job.products={narrow}"]).scenario
    assert scenario.job is not None
    turned = Tape(scenario.job).quantise("input", 10**9)[-1]

    for needed in (False, True):
        gpu = scenario.cluster.gpu.model_copy(update={"transposed_factors": needed})
        layouts = 2 if needed or narrow != "fp8" else 1
        moved = 1e9 * (2 + layouts * NARROW_BYTES[narrow]) / (gpu.memory_rate * gpu.memory_efficiency)
        busy = moved / {"fp8": 1, "mxfp8": FUNCTION_SHARE, "nvfp4": HADAMARD_SHARE}[narrow]
        assert roofline_time(turned, "bf16", gpu) == pytest.approx(busy * 1e12 + gpu.kernel_latency, rel=1e-9)


@pytest.mark.parametrize(
    ("gpu", "settings", "with_quantisation", "without", "error"),
    [
        ("h200-sxm", ("fp8", "delayed"), 18.978, 16.785, 0.19),
        ("h200-sxm", ("fp8", "current"), 20.285, 16.785, 0.18),
        ("b300-sxm", ("fp8", "delayed"), 7.802, 6.812, 0.19),
        ("b300-sxm", ("fp8", "current"), 9.147, 6.812, -0.12),
        ("b300-sxm", ("mxfp8", "delayed"), 8.984, 7.161, -0.03),
        ("b300-sxm", ("nvfp4", "delayed"), 6.453, 3.764, 0),  # calibrated
    ],
)
def test_quantisation_takes_as_long_as_transformer_engine_measured(
    gpu: str, settings: tuple[str, str], with_quantisation: float, without: float, error: float
) -> None:
    """Times of the products of a layer, both ways, ms.

    Each is the forward pass of a linear layer whose input, not its weight, is needed for a gradient later.
    """
    precision, scaling = settings
    machine = f"cluster.gpu.include={gpu}", "cluster.gpu.memory=1TB"
    scenario = load("recipes", [*SETTINGS, *machine, f"job.products={precision}", f"job.scaling={scaling}"]).scenario
    assert scenario.job is not None
    assert scenario.job.products is not None
    tape = Tape(scenario.job)
    inputs, weights, gradients = (
        [sides[side] * sides[other] for sides in _SHAPES] for side, other in ((0, 1), (1, 2), (0, 2))
    )

    both, one = [*inputs, *gradients, *inputs], [*weights, *weights, *gradients]
    turned = [
        each
        for sizes, layouts in ((both, 2), (one, 1))
        for elements in sizes
        for each in tape.narrowed("factor", elements, scenario.job.products, layouts=layouts)
    ]
    found = sum(roofline_time(each, "bf16", scenario.cluster.gpu) for each in turned) / 1e9

    assert found / (with_quantisation - without) - 1 == pytest.approx(error, abs=0.015)


@pytest.mark.parametrize(
    ("precision", "measured"), [(None, 12.758), ("fp8", 6.812), ("mxfp8", 7.161), ("nvfp4", 3.764)]
)
def test_products_of_b300_take_as_long_as_those_that_they_are_calibrated_on(
    precision: str | None, measured: float
) -> None:
    """Of a layer, ms, without quantisation."""
    products = [] if precision is None else [f"job.products={precision}"]
    scenario = load("recipes", [*SETTINGS, "cluster.gpu.include=b300-sxm", *products]).scenario
    assert scenario.job is not None
    tape = Tape(scenario.job)

    shapes = [
        shape
        for rows, inner, columns in _SHAPES
        for shape in ((rows, inner, columns), (rows, columns, inner), (inner, rows, columns))
    ]
    found = sum(roofline_time(tape.weighted("product", each), "bf16", scenario.cluster.gpu) for each in shapes) / 1e9

    assert found == pytest.approx(measured, rel=0.002)
