"""Which part of kernels collectives beside them slow, by hand."""

from __future__ import annotations

import math

import pytest

from fabricsim.run.pipeline import build_plan, load
from fabricsim.workload.issue import Span
from fabricsim.workload.links import Beside, Links, shares
from fabricsim.workload.program import CollectiveName  # noqa: TC001
from fabricsim.workload.work import Exchange, Wait

LINKS = Links(inside=400e9, outside=50e9, per_host=8)


@pytest.mark.parametrize(
    ("collective", "ranks", "rate", "turns"),
    [
        ("all_gather", range(8), 400e9, 1),
        ("all_reduce", range(4), 400e9, 2),
        ("reduce_scatter", range(0, 32, 8), 50e9, 1),  # one GPU of each host: one adapter
        ("reduce_scatter", range(0, 32, 4), 100e9, 1),  # two of each
        ("all_gather", range(64), 400e9, 1),  # eight adapters carry what NVLink does
    ],
)
def test_a_ring_takes_the_time_of_its_slowest_part(
    collective: CollectiveName, ranks: range, rate: float, turns: int
) -> None:
    count = len(ranks)

    assert LINKS.seconds(collective, ranks, 10**9) == pytest.approx(turns * (count - 1) / count * 1e9 / rate)


def test_what_is_not_known_lasts_as_long_as_kernels() -> None:
    assert Links(None, 50e9, 8).seconds("all_gather", range(8), 1) == math.inf
    assert shares([_gather(), _kernels(1), Wait()], lambda _: math.inf) == [1, 1, 0]
    assert Beside(1.2).factor(1.0) == pytest.approx(1.2)


def test_kernels_slow_for_the_time_of_what_is_beside_them() -> None:
    items = [_kernels(5), _gather(), _kernels(1), _kernels(3), Wait(), _kernels(2), _gather(), _kernels(1), Wait()]

    assert shares(items, lambda _: 1.0) == [0, 0.25, 0.25, 0.25, 0, 0, 1, 1, 0]


def test_products_leave_processors_to_tensor_parallel_exchanges_all_along() -> None:
    beside = Beside(1.2, LINKS)

    assert beside.exchange(_gather(), range(8)) == math.inf
    assert beside.exchange(Exchange("ring_exchange", "context", 800), range(8)) == pytest.approx(1.75e-9)


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

    assert found[1.5] - found[1.0] == pytest.approx(0.5 * layer, rel=0.1)


def _kernels(span: float) -> Span:
    return Span(round(span * 1e12), 0, round(span * 1e12))


def _gather() -> Exchange:
    return Exchange("all_gather", "tensor", 1, asynchronous=True)
