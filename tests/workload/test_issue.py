"""Kernels as the host issues them and the GPU runs them, against the two clocks followed kernel by kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.records.program import COLLECTIVE, HOST_STREAM
from fabricsim.scenario.job import KERNEL_LAUNCH
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.issue import EMPTY, Span, kernel, row, waited
from fabricsim.workload.lane import RankOps
from fabricsim.workload.links import Beside
from fabricsim.workload.placement import Placement
from fabricsim.workload.program import Program
from fabricsim.workload.stages import Timed
from fabricsim.workload.work import Exchange, Wait
from tests.reference.jobs import make_job, replay

TIMES = st.integers(0, 50).map(lambda microseconds: microseconds * 10**6)
LAUNCH = KERNEL_LAUNCH["graph"]
LAUNCHES = st.integers(1, 50).map(lambda microseconds: microseconds * 10**6)
KERNELS = st.lists(st.tuples(TIMES, TIMES), max_size=8)
"""Run and launch of each."""


def followed(kernels: list[tuple[int, int]], free: int, begin: int) -> tuple[int, int]:
    """Follow the clocks of GPU and host, kernel by kernel; gives if both end."""
    gpu, host = free, begin
    for run, launch in kernels:
        host += launch
        gpu = max(gpu + run, host)
    return gpu, host


def spans(kernels: list[tuple[int, int]]) -> Span:
    return row(kernel(run, launch) for run, launch in kernels)


@given(kernels=KERNELS, free=TIMES, begin=TIMES)
def test_three_numbers_say_what_following_each_kernel_says(
    kernels: list[tuple[int, int]], free: int, begin: int
) -> None:
    span = spans(kernels)

    gpu, host = followed(kernels, max(free, begin), begin)

    assert max(free + span.run, begin + span.alone) <= gpu == max(max(free, begin) + span.run, begin + span.alone)
    assert begin + span.issue == host


@pytest.mark.slow
@given(first=KERNELS, second=KERNELS, third=KERNELS)
def test_rows_can_be_joined_in_any_order(
    first: list[tuple[int, int]], second: list[tuple[int, int]], third: list[tuple[int, int]]
) -> None:
    a, b, c = spans(first), spans(second), spans(third)

    assert a.then(b).then(c) == a.then(b.then(c)) == spans(first + second + third)
    assert EMPTY.then(a) == a.then(EMPTY) == a


@given(kernels=KERNELS, factor=st.floats(1, 2))
def test_slower_kernels_take_longer_and_at_most_in_proportion(kernels: list[tuple[int, int]], factor: float) -> None:
    span = spans(kernels)

    slowed = span.slowed(factor)

    assert slowed.issue == span.issue
    assert max(span.alone, slowed.run) <= slowed.alone <= round(span.alone * factor) + 1


def pass_of(items: list[Timed], **degrees: int) -> Program:
    """Add a pass of two tensor-parallel ranks, or of more."""
    job = make_job(tensor=2, **degrees)
    builder = ProgramBuilder(("forward-compute",))
    for rank in range(job.parallelism.ranks):
        lane = RankOps(builder, Placement(job.parallelism), rank, Beside(1.0), LAUNCH)
        lane.begin()
        lane.add(items, "forward-compute")
        lane.flush()
        builder.compute(rank, 0, "forward-compute")
    return builder.build()


ITEMS = st.lists(
    st.one_of(
        st.lists(st.tuples(TIMES, LAUNCHES), min_size=1, max_size=4).map(spans),
        st.just(Exchange("all_reduce", "tensor", 1)),
        LAUNCHES.map(waited),
    ),
    max_size=8,
)


@given(items=ITEMS, transfer=TIMES)
def test_a_pass_ends_where_host_and_gpu_followed_side_by_side_end_it(items: list[Timed], transfer: int) -> None:
    program = pass_of(items)
    program.ops["duration"][program.ops["kind"] == COLLECTIVE] = transfer
    _, end = replay(program)

    clock, host = 0, 0
    for item in items:
        if isinstance(item, Span):
            clock, host = max(clock + item.run, host + item.alone), host + item.issue
        else:
            clock, host = clock + transfer, host + LAUNCH
    assert end[-1] == clock


def test_exchanges_of_two_dimensions_run_side_by_side_and_are_waited_for_one_by_one() -> None:
    outer, inner = (Exchange("all_gather", name, 1, asynchronous=True) for name in ("context", "tensor"))
    span = kernel(1000, 0)

    program = pass_of([outer, span, inner, span, Wait("tensor"), span, Wait("context")], context=2)

    collective = program.ops["kind"] == COLLECTIVE
    dimensions = np.array([program.calls[call].dimension for call in program.ops["call"][collective]])
    program.ops["duration"][program.ops["stream"] == HOST_STREAM] = 0
    program.ops["duration"][collective] = np.where(dimensions == "context", 2500, 500)
    _, end = replay(program)
    assert end.max() == 3000  # as the three spans: the outer exchange ends beside the third


@pytest.mark.parametrize(("run", "held"), [(500, 0), (20, 2)])
def test_only_a_gpu_that_could_be_faster_waits_for_the_host(run: int, held: int) -> None:
    beside = Exchange("all_reduce", "tensor", 1)
    span = row(kernel(run * 10**6, LAUNCH) for _ in range(4))._replace(issue=4 * 50 * 10**6)

    program = pass_of([span, beside, span])

    assert np.count_nonzero(program.ops["stream"] == HOST_STREAM) == held
