"""Laws of all algorithms on any cluster: calls end, links carry what the templates say, and memory is free again."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricsim.collectives.choice import LL128, SIMPLE, Choice
from fabricsim.engine.fabric import Fabric
from tests.reference.scenarios import ideal_scenario

ANYWHERE = [
    ("all_reduce", "ring"),
    ("all_reduce", "tree"),
    ("all_reduce", "halving_doubling"),
    ("all_reduce", "rabenseifner"),
    ("all_reduce", "recursive_doubling"),
    ("reduce_scatter", "pat"),
    ("all_gather", "bruck"),
    ("all_gather", "pat"),
    ("all_reduce", "direct"),
    ("reduce_scatter", "direct"),
    ("all_gather", "direct"),
    ("all_to_all", "direct"),
    ("all_to_all", "pairwise"),
    ("all_to_all", "bruck"),
    ("broadcast", "ring"),
    ("reduce", "ring"),
    ("ring_exchange", "ring"),
]
WHOLE = [*ANYWHERE, ("all_reduce", "hierarchical"), ("all_reduce", "nvls_tree"), ("all_reduce", "collnet_direct")]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    hosts=st.integers(2, 5),
    gpus=st.integers(2, 4),
    channels=st.integers(1, 3),
    chunk=st.integers(500, 100_000),
    line=st.sampled_from([SIMPLE, LL128]),
    reduction=st.sampled_from([0.0, 20e9]),
    algorithms=st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4),
    size=st.integers(1, 300_000),
)
def test_calls_of_all_kinds_at_once_end_and_leave_nothing(  # noqa: PLR0913, PLR0917  drawn by name
    hosts: int,
    gpus: int,
    channels: int,
    chunk: int,
    line: tuple[int, int],
    reduction: float,
    algorithms: list[tuple[str, str]],
    size: int,
) -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(hosts, cluster={"gpus_per_host": gpus, "intra_host": "nvlink"}))
    wanted = dict(algorithms)
    fabric.wiring.choose = lambda collective, *_: Choice(
        wanted[collective], channels, chunk, line=line, reduction_rate=reduction
    )
    calls = [getattr(fabric, collective)(range(hosts * gpus), size) for collective in wanted for _ in range(2)]
    env.run(env.all_of(calls))
    world = fabric.world
    assert world.world[0].active == 0
    assert int(world.world[0].next_lane) == sum(_free(world.free_blocks[:32], world.lanes["call"]))
    assert int(world.world[0].next_inbox) == sum(_free(world.free_blocks[32:], world.inboxes["sent"]))
    if line == SIMPLE:
        _require_bytes(fabric, tuple(range(hosts * gpus)), list(wanted), size)


def _free(heads: NDArray[np.int64], following: NDArray[np.int32]) -> list[int]:
    """Sizes of the blocks in the free lists."""
    sizes = []
    for c, head in enumerate(heads.tolist()):
        at = head
        while at >= 0:
            sizes.append(1 << c)
            at = int(following[at])
    return sizes


def _require_bytes(fabric: Fabric, ranks: tuple[int, ...], collectives: list[str], size: int) -> None:
    """Hold the payload of every resource against the shares of the templates, of two calls each."""
    expected = np.zeros(len(fabric.world.resources))
    wiring = fabric.wiring
    for collective in collectives:
        communicator, _ = wiring.call(collective, ranks, size)
        row = fabric.world.communicators[communicator]
        shares = wiring._made[communicator][1].shares().reshape(-1)  # noqa: SLF001  what it lowers, of which a test alone asks
        first, channels = int(row.first_connection), int(row.channels)
        routes = fabric.world.connections["route"][first : first + channels * len(shares)]
        for number, route in enumerate(routes.tolist()):
            if route >= 0:
                expected[list(wiring.route_hops[route])] += 2 * size / channels * shares[number % len(shares)]
    # A cut falls on a whole byte, up to one from where it would be.
    assert fabric.world.resources["payload"] == pytest.approx(expected, abs=2 * int(fabric.world.world[0].messages))
