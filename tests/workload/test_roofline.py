from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.cluster import Gpu, MeasuredKernel, MeasuredStream
from fabricsim.workload.attention import Core, fused, fused_gradient, is_causal
from fabricsim.workload.operations import block_work
from fabricsim.workload.optimizer import optimizer_operations
from fabricsim.workload.roofline import FUNCTION_SHARE, operations_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation
from tests.reference.jobs import make_job
from tests.reference.kernels import items_time, operation_time


@pytest.mark.parametrize(
    ("operation", "picoseconds"),
    [
        (Operation("arithmetic bound", 10**12, 1, kernel="product"), round(1e24 / (312e12 * 0.8))),
        (Operation("memory bound", 1, 10**9), round(1e21 / (1555e9 * 0.85))),
        (Operation("launch bound", 1, 1), 5_000_000),
    ],
    ids=lambda value: value.name if isinstance(value, Operation) else "",
)
def test_operation_is_as_slow_as_its_slowest_bound(operation: Operation, picoseconds: int, gpu: Gpu) -> None:
    assert operation_time(operation, make_job(), gpu) == picoseconds


def test_a_layer_cannot_beat_the_peak(gpu: Gpu) -> None:
    job = make_job("gpt2-xl", micro_batch=8, sequence=1024)
    layer = stage_blocks(job.model, 1)[0][1]

    forward = block_work(layer, job).forward
    flops = sum(operation.flops for operation in forward)

    assert items_time(forward, job, gpu) > flops / (312e12 * 0.8) * 1e12


def test_optimizer_time_grows_with_its_parameters(gpu: Gpu) -> None:
    job = make_job()

    one, two = (items_time(optimizer_operations([count * 10**9], job), job, gpu) for count in (1, 2))

    assert two == pytest.approx(2 * one)
    assert one == pytest.approx(54e9 / (1555e9 * 0.85) * 1e12)


def test_short_kernels_hide_behind_long_ones(gpu: Gpu) -> None:
    short, long = Operation("short", 0, 1000), Operation("long", 0, 10**8)
    job = make_job()

    alone = operation_time(long, job, gpu)

    assert operation_time(short, job, gpu) == job.kernel_launch
    assert operations_time([short] * 8, job, gpu) == 8 * job.kernel_launch
    assert alone <= operations_time([short] * 8 + [long], job, gpu) < alone + job.kernel_launch


def test_functions_are_slower_than_copies(gpu: Gpu) -> None:
    copy, softmax = Operation("copy", 0, 10**9), Operation("softmax", 0, 10**9, kernel="function")

    times = [operation_time(each, make_job(), gpu) for each in (copy, softmax)]

    assert times[0] == pytest.approx(times[1] * FUNCTION_SHARE)


@given(rows=st.integers(1, 4096), inner=st.integers(1, 4096), columns=st.integers(1, 4096))
def test_products_never_beat_peak_or_memory_and_grow_with_each_side(
    rows: int, inner: int, columns: int, gpu: Gpu
) -> None:
    tiled = gpu.model_copy(update={"processors": 108, "tile_efficiency": 0.9})

    def time(m: int, k: int, n: int) -> int:
        one = Operation("product", 2 * m * k * n, 2 * (m * k + k * n + m * n), kernel="product", shape=(1, m, k, n))
        return operation_time(one, make_job(kernel_launch="0us"), tiled)

    took = time(rows, inner, columns)

    assert took >= 2 * rows * inner * columns / (312e12 * 0.8) * 1e12 - 1
    assert took >= 2 * (rows * inner + inner * columns + rows * columns) / (1555e9 * 0.85) * 1e12 - 1
    assert time(2 * rows, inner, columns) >= took
    assert time(rows, 2 * inner, columns) >= took
    assert time(rows, inner, 2 * columns) >= took


def test_a_started_wave_takes_as_long_as_a_full_one(gpu: Gpu) -> None:
    """108 tiles of 256 x 128 fit at once; one more row of tiles needs another wave."""
    tiled = gpu.model_copy(update={"processors": 108, "gemm_efficiency": 1.0, "tile_efficiency": 0.9})

    def time(rows: int) -> int:
        one = Operation("product", 2 * rows * 8192 * 1152, 0, kernel="product", shape=(1, rows, 8192, 1152))
        return operation_time(one, make_job(kernel_launch="0us"), tiled)

    wave, over = time(256 * 12), time(256 * 12 + 256)

    assert over > 1.3 * wave


def test_a_measured_kernel_takes_its_time(gpu: Gpu) -> None:
    measured = {"shape": [1, 4096, 8192, 1280], "precision": "fp16", "time": "359us"}
    known = gpu.model_copy(update={"kernels": (MeasuredKernel.model_validate(measured),)})
    one = Operation("QKV", 2 * 4096 * 8192 * 1280, 1, kernel="product", shape=(1, 4096, 8192, 1280))
    other = Operation("QKV", 2 * 4096 * 8192 * 1281, 1, kernel="product", shape=(1, 4096, 8192, 1281))

    assert operation_time(one, make_job(), known) == 359_000_000
    assert operation_time(one, make_job(precision="bf16"), known) == operation_time(one, make_job(), gpu)
    assert operation_time(other, make_job(), known) == operation_time(other, make_job(), gpu)


def test_a_product_takes_the_measured_time_of_its_transpose_where_its_own_is_not_known(gpu: Gpu) -> None:
    transpose = MeasuredKernel(shape=(1, 1280, 8192, 4096), precision="fp16", time="359us")
    own = MeasuredKernel(shape=(1, 4096, 8192, 1280), precision="fp16", time="340us")
    one = Operation("QKV", 2 * 4096 * 8192 * 1280, 1, kernel="product", shape=(1, 4096, 8192, 1280))

    assert operation_time(one, make_job(), gpu.model_copy(update={"kernels": (transpose,)})) == 359_000_000
    assert operation_time(one, make_job(), gpu.model_copy(update={"kernels": (own, transpose)})) == 340_000_000
    assert operation_time(one, make_job(), gpu.model_copy(update={"kernels": (transpose, own)})) == 340_000_000


@pytest.mark.parametrize("causal", [False, True])
def test_a_measured_attention_is_of_one_mask_or_of_any(
    causal: bool,  # noqa: FBT001  a column
    gpu: Gpu,
) -> None:
    core = Core(2, 16, 16, 64, 1024, 1024, causal=causal)
    both = MeasuredKernel(kernel="attention", shape=(32, 1024, 64, 1024), precision="fp16", time="90us")
    masked = both.model_copy(update={"causal": True, "time": 50_000_000})
    other = both.model_copy(update={"causal": not causal})
    job = make_job()

    assert is_causal(fused(2, core)) == causal
    assert all(is_causal(each) == causal for each in fused_gradient(2, core)[1:])
    assert operation_time(fused(2, core), job, gpu.model_copy(update={"kernels": (both,)})) == 90_000_000
    for order in ((both, masked), (masked, both)):
        known = gpu.model_copy(update={"kernels": order})
        assert operation_time(fused(2, core), job, known) == (50_000_000 if causal else 90_000_000)
    assert operation_time(fused(2, core), job, gpu.model_copy(update={"kernels": (other,)})) == operation_time(
        fused(2, core), job, gpu
    )


def test_a_measured_stream_takes_its_time(gpu: Gpu) -> None:
    known = gpu.model_copy(update={"streams": (MeasuredStream(operation="layer norm", bytes="2MB", time="77us"),)})
    job = make_job()

    assert operation_time(Operation("layer norm", 0, 2_000_000), job, known) == 77_000_000
    for other in (Operation("layer norm", 0, 2_000_002), Operation("softmax", 0, 2_000_000)):
        assert operation_time(other, job, known) == operation_time(other, job, gpu)
