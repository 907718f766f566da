from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.workload.operations import Operation, block_work
from fabricsim.workload.roofline import block_time, iteration_flops, operation_time, optimizer_time
from fabricsim.workload.shapes import stage_blocks

if TYPE_CHECKING:
    from conftest import MakeJob, MakeModel

    from fabricsim.spec.cluster import Gpu


@pytest.mark.parametrize(
    ("operation", "picoseconds"),
    [
        (Operation("arithmetic bound", 10**12, 1), round(1e24 / (312e12 * 0.8))),
        (Operation("memory bound", 1, 10**9), round(1e21 / (1555e9 * 0.85))),
        (Operation("launch bound", 1, 1), 5_000_000),
    ],
    ids=lambda value: value.name if isinstance(value, Operation) else "",
)
def test_operation_is_as_slow_as_its_slowest_bound(
    operation: Operation, picoseconds: int, make_job: MakeJob, gpu: Gpu
) -> None:
    assert operation_time(operation, make_job(), gpu) == picoseconds


def test_recomputation_is_one_more_forward_pass_of_the_layers_only(make_job: MakeJob, gpu: Gpu) -> None:
    kept, repeated = make_job(recompute="none"), make_job(recompute="full")

    for block in stage_blocks(kept.model, 1)[0]:
        without, with_it = block_time(block, kept, gpu), block_time(block, repeated, gpu)
        assert with_it.forward == without.forward
        assert with_it.backward - without.backward == (without.forward if block.kind == "layer" else 0)


def test_block_time_is_the_sum_of_its_kernels(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job("bert-large", recompute="none")

    for block in set(stage_blocks(job.model, 1)[0]):
        work, time = block_work(block, job), block_time(block, job, gpu)
        assert time.forward == sum(operation_time(op, job, gpu) for op in work.forward)
        assert time.backward == sum(operation_time(op, job, gpu) for op in work.backward)


def test_a_layer_cannot_beat_the_peak(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job("gpt2-xl", micro_batch=8, sequence=1024)
    layer = stage_blocks(job.model, 1)[0][1]

    flops = sum(operation.flops for operation in block_work(layer, job).forward)

    assert block_time(layer, job, gpu).forward > flops / (312e12 * 0.8) * 1e12


def test_optimizer_time_grows_with_its_parameters(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job()

    assert optimizer_time(2 * 10**9, job, gpu) == pytest.approx(2 * optimizer_time(10**9, job, gpu))
    assert optimizer_time(10**9, job, gpu) == pytest.approx(54e9 / (1555e9 * 0.85) * 1e12)


@given(
    b=st.integers(1, 16),
    m=st.integers(1, 8),
    d=st.integers(1, 8),
    s=st.integers(1, 1024),
    h=st.integers(1, 64).map(lambda n: 16 * n),
    layers=st.integers(1, 96),
    v=st.integers(1, 60000),
)
def test_iteration_has_the_published_flops(  # noqa: PLR0913, PLR0917  the letters of the formula
    b: int, m: int, d: int, s: int, h: int, layers: int, v: int, make_job: MakeJob, make_model: MakeModel
) -> None:
    model = make_model("gpt2-medium", hidden=h, layers=layers, vocabulary=v)
    batch = b * m * d

    full = iteration_flops(make_job(model, micro_batch=b, micro_batches=m, data=d, sequence=s))
    kept = iteration_flops(make_job(model, micro_batch=b, micro_batches=m, data=d, sequence=s, recompute="none"))

    # 96 B s L h^2 (1 + s / 6h + V / 16 L h), and 72 B s L h^2 (1 + s / 6h + V / 12 L h), multiplied out
    assert full == 96 * batch * s * layers * h**2 + 16 * batch * s**2 * layers * h + 6 * batch * s * h * v
    assert kept == 72 * batch * s * layers * h**2 + 12 * batch * s**2 * layers * h + 6 * batch * s * h * v
