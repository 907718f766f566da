from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import block_time, operation_time, optimizer_time
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.work import Operation

if TYPE_CHECKING:
    from conftest import MakeJob

    from fabricsim.spec.cluster import Gpu


@pytest.mark.parametrize(
    ("operation", "picoseconds"),
    [
        (Operation("arithmetic bound", 10**12, 1, kernel="product"), round(1e24 / (312e12 * 0.8))),
        (Operation("memory bound", 1, 10**9), round(1e21 / (1555e9 * 0.85))),
        (Operation("launch bound", 1, 1), 5_000_000),
    ],
    ids=lambda value: value.name if isinstance(value, Operation) else "",
)
def test_operation_is_as_slow_as_its_slowest_bound(
    operation: Operation, picoseconds: int, make_job: MakeJob, gpu: Gpu
) -> None:
    assert operation_time(operation, make_job(), gpu) == picoseconds


def test_block_time_is_the_sum_of_its_kernels(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job("bert-large", recompute="none")

    for block in set(stage_blocks(job.model, 1)[0]):
        work, time = block_work(block, job), block_time(block, job, gpu)
        assert time.forward == sum(operation_time(op, job, gpu) for op in work.forward if isinstance(op, Operation))
        assert time.backward == sum(operation_time(op, job, gpu) for op in work.backward if isinstance(op, Operation))


def test_a_layer_cannot_beat_the_peak(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job("gpt2-xl", micro_batch=8, sequence=1024)
    layer = stage_blocks(job.model, 1)[0][1]

    flops = sum(operation.flops for operation in block_work(layer, job).forward)

    assert block_time(layer, job, gpu).forward > flops / (312e12 * 0.8) * 1e12


def test_optimizer_time_grows_with_its_parameters(make_job: MakeJob, gpu: Gpu) -> None:
    job = make_job()

    assert optimizer_time(2 * 10**9, job, gpu) == pytest.approx(2 * optimizer_time(10**9, job, gpu))
    assert optimizer_time(10**9, job, gpu) == pytest.approx(54e9 / (1555e9 * 0.85) * 1e12)
