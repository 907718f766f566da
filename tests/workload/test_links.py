"""Which part of kernels collectives beside them slow, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fabricsim.run.pipeline import build_plan, load
from fabricsim.scenario.schedule import Direction
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.compile import TIMERS
from fabricsim.workload.data_parallel import make_reducer
from fabricsim.workload.issue import kernel
from fabricsim.workload.lane import RankOps
from fabricsim.workload.links import HIDDEN, Beside, Links, share, shares
from fabricsim.workload.operations import block_work
from fabricsim.workload.program import CollectiveName
from fabricsim.workload.shapes import stage_blocks
from fabricsim.workload.stages import Timed
from fabricsim.workload.work import Exchange, Wait

LINKS = Links(inside=400e9)


@pytest.mark.parametrize(("collective", "ranks", "turns"), [("all_gather", 8, 1), ("all_reduce", 4, 2)])
def test_a_ring_takes_the_time_of_its_bytes_over_nvlink(collective: CollectiveName, ranks: int, turns: int) -> None:
    found = LINKS.seconds(collective, range(ranks), 10**9)

    assert found == pytest.approx(turns * (ranks - 1) / ranks * 1e9 / 400e9)


def test_what_is_not_known_slows_as_the_mean() -> None:
    assert Links(None).seconds("all_gather", range(8), 1) == math.inf
    assert share(math.inf, 1.0) == 1
    assert Beside(1.2).factor(1.0) == pytest.approx(1.2)


def test_kernels_slow_for_the_time_of_what_is_beside_them() -> None:
    assert share(1.0, 4.0) * HIDDEN == pytest.approx(0.25)
    assert share(4.0, 1.0) * HIDDEN == pytest.approx(1.0)


def test_kernels_up_to_the_wait_slow_by_the_exchanges_before_it() -> None:
    exchange = Exchange("all_gather", "tensor", 1, asynchronous=True)
    ms = kernel(10**9, 0)
    items: list[Timed] = [ms, exchange, ms, exchange, ms, Wait("tensor"), ms, Exchange("all_gather", "tensor", 1), ms]

    found = shares(items, lambda _: 0.0001)

    assert found[2] == pytest.approx(share(0.0002, 0.002))
    assert [bool(part) for part in found] == [False, True, True, True, True, False, False, False, False]


def test_passes_slow_as_those_did_that_the_mean_is_of() -> None:
    # (1 + M) = 1.102 (1.189 + M - H), for H = M and for M = 1
    hidden = [(1.102 * 1.189 - 1), 1.189 + 1 - 2 / 1.102]
    assert hidden[0] < HIDDEN < hidden[1]
    assert Beside(1.189).factor(share(HIDDEN, 1.0)) == pytest.approx(1.189)


@pytest.mark.slow
def test_a_sharded_pass_slows_by_its_gathers() -> None:
    settings = ["job.parallelism={context=1, data=8, zero=3}", "job.micro_batch=2", "cluster.gpu.memory=400GiB"]
    layer = 218_112_000 * 2 * 7 / 8 / (450e9 * 0.824)  # parameters of 2 bytes, over NVLink
    found = {}
    for slowdown in (1.0, 1.5):
        plan = build_plan(load("recipes", [*settings, f"cluster.gpu.overlap_slowdown={slowdown}"]))
        ops = plan.program().ops
        timer = plan.program().timers.index("forward-compute")
        mine = (ops["rank"] == 0) & (ops["timer"] == timer) & (ops["stream"] == 0)
        found[slowdown] = ops["duration"][mine].sum() / 1e12 / plan.micro_batches / 32

    assert found[1.5] - found[1.0] == pytest.approx(0.5 / HIDDEN * layer, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["zero=3", "zero=1"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_kernels_slow_by_does_not_depend_on_the_host(sharing: str, direction: Direction) -> None:
    degrees = f"job.parallelism={{ context = 1, data = 8, {sharing} }}"
    overlap = ["job.overlap=ddp"] if sharing == "zero=1" else []
    found = []
    for launch in ("0s", "1ms"):  # a GPU that never waits for its host, and one that always does
        plan = build_plan(load("recipes", [degrees, *overlap, "cluster.gpu.memory=1TB", f"job.kernel_launch={launch}"]))
        lane = RankOps(ProgramBuilder(TIMERS), plan.placement, 0, Beside(1.2, LINKS), plan.job.kernel_launch)
        reducer = make_reducer(plan.job, plan.gpu, lane, plan.chunks(0))
        reducer.begin()
        reducer.before_forward(0, 0)
        found.append(reducer.beside_pass(direction, 0, 1, final=True))

    assert 0 < found[0] * HIDDEN < 1
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("buffers", [True, False])
def test_kernels_slow_by_the_bytes_of_user_buffers_and_beside_nccl_all_along(*, buffers: bool) -> None:
    degrees = "job.parallelism={context=1, data=4, tensor=2, sequence_parallel=true}"
    layers = []
    for slowdown in (1.0, 1.5):
        settings = [degrees, f"cluster.gpu.overlap_slowdown={slowdown}", "job.kernel_launch=0s"]
        settings.append(f"job.product_overlap={str(buffers).lower()}")
        plan = build_plan(load("recipes", ["job.global_batch=4", *settings]))
        ops = plan.program().ops
        timers = [plan.program().timers.index(f"{way}-compute") for way in ("forward", "backward")]
        mine = (ops["rank"] == 0) & (ops["stream"] == 0) & np.isin(ops["timer"], timers)
        layers.append(ops["duration"][mine].sum() / 1e12 / 32)
    work = block_work(stage_blocks(plan.job.model, 1, plan.job.parallelism)[0][1], plan.job)
    sizes = [item.size for item in (*work.forward, *work.backward) if isinstance(item, Exchange) and item.asynchronous]
    least = sum(LINKS.seconds("all_gather", range(2), size) for size in sizes) * 400 / (450 * 0.824)

    more = float(layers[1] - layers[0])

    assert (more == pytest.approx(0.5 / HIDDEN * least, rel=0.05)) is buffers


def test_an_exchange_within_another_ends_for_itself() -> None:
    ms = kernel(10**9, 0)
    outer, inner = (Exchange("all_to_all", name, 1, asynchronous=True) for name in ("expert", "tensor"))
    items: list[Timed] = [outer, ms, inner, ms, Wait("tensor"), ms, Wait("expert"), ms]

    found = shares(items, lambda item: {"expert": 0.0003, "tensor": 0.0005}[item.dimension])

    beside = share(0.0003, 0.003)
    assert found == pytest.approx([beside, beside, share(0.0005, 0.001), share(0.0005, 0.001), beside, beside, 0, 0])
