"""The distributed optimizer: what it does tensor by tensor, and what the host waits for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.scenario.cluster import Gpu
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.issue import SHARE_OF_PYTORCH
from fabricsim.workload.optimizer import optimizer_operations, parts_of_tensors
from fabricsim.workload.roofline import operations_time, rows_time
from fabricsim.workload.work import Level, Operation
from tests.reference.jobs import make_job

TENSORS = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(tensors=TENSORS, shards=st.integers(1, 9))
def test_ranks_have_as_many_parts_as_cuts_make(tensors: list[int], shards: int) -> None:
    scale = 2 * shards + 1  # no cut between ranks falls on one between tensors
    ends = [end * scale for end in itertools.accumulate(tensors)]
    length = ends[-1] + 1
    cuts = [length * rank / shards for rank in range(shards + 1)]
    pieces = 0
    for low, high in itertools.pairwise(cuts):
        pieces += sum(low < end and begin < high for begin, end in itertools.pairwise([0, *ends[:-1], length]))

    found = parts_of_tensors([[size * scale for size in tensors]], shards, make_job(data=shards))

    assert found == -(-pieces // shards)


def test_a_tensor_that_fills_a_bucket_is_shared_by_all() -> None:
    job = make_job(data=8, zero=1, overlap="ddp", bucket="2B", first_bucket="2B")

    assert parts_of_tensors([[1000, 10], [20]], 8, job) == 3
    assert parts_of_tensors([[1000, 10], [20]], 8, job, experts=4) == -(-(12 + 3 * 7) // 8)


@pytest.mark.parametrize(
    ("narrow", "each"), [({}, {}), ({"products": "fp8", "narrow_gathers": True}, {"quantise own parameters": 6})]
)
def test_parameters_are_copied_part_by_part_over_the_same_bytes(
    narrow: dict[str, object], each: dict[str, int]
) -> None:
    one, many = (make_job(data=8, zero=1, optimizer=how, **narrow) for how in ("fused", "distributed"))
    fused = [item for item in optimizer_operations([7200], one) if isinstance(item, Operation)]

    items = optimizer_operations([7200], many, parts=3)

    found = [item for item in items if isinstance(item, Operation)]
    counts = {"copy parameters": 3, **each}
    for item in fused:
        count = counts.get(item.name, 1)
        assert [other.traffic for other in found if other.name == item.name] == [item.traffic // count] * count
    assert [items[number - 1] for number, item in enumerate(items) if isinstance(item, Level)] == [
        item for item in found if item.name == "gradient norm"
    ]


@pytest.mark.parametrize(
    ("products", "narrow", "size"), [("fp8", True, 2), ("fp8", False, 2 + 2), ("mxfp8", False, 2 + 2 * 33 / 32)]
)
def test_each_rank_makes_all_parameters_ready_for_products(*, products: str, narrow: bool, size: float) -> None:
    plain, job = (make_job(data=8, zero=1, **each) for each in ({}, {"products": products, "narrow_gathers": narrow}))
    own = 128 * 3 * narrow  # read in 16 bits, written in 8

    more, less = (
        sum(
            item.traffic + item.transposed
            for item in optimizer_operations([128], each, held=1024)
            if isinstance(item, Operation)
        )
        for each in (job, plain)
    )

    assert more - less == own + round(1024 * size)


def test_the_host_copies_parameters_once_it_knows_the_norm(gpu: Gpu) -> None:
    job = make_job(data=8, zero=1, optimizer="distributed", launch="graph")
    items = optimizer_operations([10**6], job, parts=100)
    norm = next(number for number, item in enumerate(items) if isinstance(item, Level))
    before = [item for item in items[:norm] if isinstance(item, Operation)]
    behind = [item for item in items[norm:] if isinstance(item, Operation)]

    found = rows_time(items, job, gpu)

    # Adam and 100 copies, each issued by PyTorch on the host of Transformer Engine's layers, graphs or not
    assert found - operations_time(before, job, gpu) == round(SHARE_OF_PYTORCH * 75e6) * 101
    assert operations_time(behind, job, gpu) == found - operations_time(before, job, gpu)


def test_tensors_of_each_expert_are_its_own(gpu: Gpu) -> None:
    job = make_job("mixtral-8x7b", data=2, expert=2, zero=1, optimizer="distributed", kernel_launch="10s")
    (stage,) = JobPlan(job, gpu).stages
    shared, experts = (sum(map(len, blocks)) for blocks in (stage.tensors, stage.experts))
    others = [item for item in optimizer_operations([1], job) if isinstance(item, Operation)]

    kernels = JobPlan(job, gpu).optimizer[0] / (SHARE_OF_PYTORCH * 10e12)

    # Half of all tensors and that in which the cut is, and those of four experts, which no other rank has
    assert kernels == pytest.approx(len(others) - 1 + -(-(shared + 1) // 2) + 4 * experts)


def test_forward_passes_slow_beside_gathers_of_parameters(gpu: Gpu) -> None:
    slow = gpu.model_copy(update={"overlap_slowdown": 1.19})
    job = make_job(data=2, micro_batches=3, zero=1, overlap="ddp", bucket="25MiB")

    plain, slowed = (_forward(JobPlan(job, each)) for each in (gpu.model_copy(update={"overlap_slowdown": 1.0}), slow))

    assert slowed[0] > plain[0]
    assert slowed[1:] == plain[1:]


def _forward(plan: JobPlan) -> list[int]:
    """Time of the kernels of each forward pass of the first rank."""
    program = plan.program()
    ops = program.ops[(program.ops["rank"] == 0) & (program.ops["stream"] == 0)]
    passes, before = [], ""
    for timer, duration in zip(ops["timer"].tolist(), ops["duration"].tolist(), strict=True):
        name = program.timers[timer]
        if name == "forward-compute":
            passes = [*passes, duration] if before != name else [*passes[:-1], passes[-1] + duration]
        before = name
    return passes
