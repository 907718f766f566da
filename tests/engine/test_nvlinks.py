"""Hosts whose GPUs NVLinks join without a switch: each pair has its own links, and collectives use all of them."""

from __future__ import annotations

from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.run.bench import collective_times
from fabricsim.scenario.load import load
from tests.reference.scenarios import ideal_scenario

RATE, LINKS = 300e9, 12  # of tests.reference.scenarios
LINK = RATE / LINKS
SIZE = 8 * 2**20
PIECE = 2**14
EXACT, ROUNDING = 1e-9, 1e-12
ENGINES = ["flow", "packet"]


def _run(gpus: int, collective: str, ranks: list[int], *, engine: str = "flow", **cluster: Any) -> tuple[float, Fabric]:  # noqa: ANN401
    made = ideal_scenario(1, cluster={"gpus_per_host": gpus, "intra_host": "nvlink", **cluster})
    env = simpy.Environment()
    fabric = Fabric(env, made.model_copy(update={"engine": engine}))
    took: Any = env.run(getattr(fabric, collective)(ranks, SIZE))
    return took, fabric


def _carried(fabric: Fabric) -> dict[str, float]:
    names, payload = fabric.platform.resources.names, fabric.world.resources["payload"]
    return {name.partition("/")[2]: float(payload[index]) for index, name in enumerate(names) if "nvlink" in name}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("gpus", "between"), [(2, 12), (4, 4), (4, 2), (8, 1)])
def test_a_ring_goes_over_all_links_of_its_members(gpus: int, between: int, engine: str) -> None:
    took, _ = _run(gpus, "all_reduce", list(range(gpus)), engine=engine, nvlinks_between=between)
    partners = gpus - 1
    # a piece of the packet engine passes the links of its sender one after the other
    filling = 2 * partners * (partners - 1) / partners * PIECE / (between * LINK) if engine == "packet" else 0.0
    expected = 2 * partners / gpus * SIZE / (between * partners * LINK) + filling
    assert took == pytest.approx(expected, rel=EXACT, abs=2 * ROUNDING * SIZE / PIECE)


def test_a_ring_over_part_of_the_gpus_has_part_of_the_links() -> None:
    took, _ = _run(4, "all_gather", [1, 3], nvlinks_between=4)
    assert took == pytest.approx(SIZE / 2 / (4 * LINK), rel=EXACT)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_to_all_sends_each_block_over_the_links_between_two(engine: str) -> None:
    took, _ = _run(4, "all_to_all", [0, 1, 2, 3], engine=engine, nvlinks_between=4)
    assert took == pytest.approx(SIZE / 4 / (4 * LINK), rel=EXACT)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_has_the_links_between_its_ends(engine: str) -> None:
    made = ideal_scenario(1, cluster={"gpus_per_host": 4, "intra_host": "nvlink", "nvlinks_between": 4})
    env = simpy.Environment()
    fabric = Fabric(env, made.model_copy(update={"engine": engine}))
    alone = [fabric.send(*pair, SIZE) for pair in ((0, 1), (0, 2), (1, 0), (3, 1))]
    assert [float(env.run(event)) for event in alone] == pytest.approx([SIZE / (4 * LINK)] * 4, rel=EXACT)


@pytest.mark.parametrize(
    ("rows", "way"),
    [
        ([[0, 2, 0, 4], [2, 0, 4, 0], [0, 4, 0, 2], [4, 0, 2, 0]], ["gpu0/nvlink/gpu1", "gpu1/nvlink/gpu2"]),
        ([[0, 12, 0, 0], [12, 0, 0, 0], [0, 0, 0, 12], [0, 0, 12, 0]], ["gpu0/memory/up", "gpu2/memory/down"]),
    ],
)
def test_pairs_without_links_go_by_way_of_a_gpu_or_through_memory(rows: list[list[int]], way: list[str]) -> None:
    made = ideal_scenario(1, cluster={"gpus_per_host": 4, "intra_host": "nvlink", "nvlinks_between": rows})
    platform = Fabric(simpy.Environment(), made).platform
    names = [platform.resources.names[resource] for resource, _ in platform.path(0, 2).hops]
    assert names == [f"host0/{part}" for part in way]


@pytest.mark.slow
@given(st.data())
def test_links_carry_what_a_ring_sends_and_none_more_than_its_part(data: st.DataObject) -> None:
    gpus = data.draw(st.integers(2, 5))
    count = st.integers(0, 3)
    rows = [[0] * gpus for _ in range(gpus)]
    for here in range(gpus):
        for there in range(here):
            rows[here][there] = rows[there][here] = 1 if here == there + 1 else data.draw(count)
    collective = data.draw(st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]))
    took, fabric = _run(gpus, collective, list(range(gpus)), nvlinks_between=rows)

    turns = 2 if collective == "all_reduce" else 1
    carried = _carried(fabric)
    each = turns * (gpus - 1) / gpus * SIZE
    for here, row in enumerate(rows):
        mine = {other: carried[f"gpu{here}/nvlink/gpu{other}"] for other, links in enumerate(row) if links}
        assert sum(mine.values()) == pytest.approx(each, rel=1e-6)
        assert mine == pytest.approx({other: each * row[other] / sum(row) for other in mine}, rel=1e-6)
    assert took == pytest.approx(each / (min(map(sum, rows)) * LINK), rel=1e-6)


@pytest.mark.parametrize(
    ("gpus", "measured", "near"),
    [
        # GB/s of bus; github.com/NVIDIA/nccl-tests, issue 178: eight A100 in pairs of 12 links, large all-reduces
        (2, 208, 0.11),
        (3, 20, 0.26),
    ],
)
def test_bridged_pairs_are_fast_in_twos_and_slow_in_threes(gpus: int, measured: float, near: float) -> None:
    rows = [[12 * (other == gpu ^ 1) for other in range(8)] for gpu in range(8)]
    settings = [
        "cluster.hosts=1",
        "cluster.gpu=a100-sxm-80gb",
        "cluster.gpu_pcie.generation=4",
        "cluster.gpus_per_pcie_switch=1",
        "cluster.nic_below_gpu_switch=false",
        "cluster.intra_host=nvlink",
        "cluster.gpus_per_host=8",
        f"cluster.nvlinks_between={rows}",
        "cluster.cpu=epyc-7742-2s",
        'collectives={include = "nccl", nccl = "2.18"}',
    ]
    made = load("hkbu", [*settings, f"cluster.gpus_per_host={gpus}"])
    (found,) = collective_times(made.scenario, "all_reduce", [2**30])
    assert 2 * (gpus - 1) / gpus * 2**30 / found.seconds / 1e9 == pytest.approx(measured, rel=near)
