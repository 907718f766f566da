"""Which part of kernels collectives beside them slow, by hand."""

from __future__ import annotations

import math

import pytest

from fabricsim.run.pipeline import build_plan, load
from fabricsim.workload.links import HIDDEN, Beside, Links, share
from fabricsim.workload.program import CollectiveName

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
