"""How long the packet engine's windows are, and that nobody sees it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim import load
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.packet.state import PacketState, sides
from fabricsim.engine.packet.world import PacketWorld

MESSAGE = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
HOSTS = 4
FULL = 4096  # bytes: packets of the transport `ideal` have no headers
MESSAGES = st.lists(
    st.tuples(st.integers(0, HOSTS - 1), st.integers(1, HOSTS - 1), st.integers(1, 20 * FULL), st.integers(0, 10**8)),
    min_size=1,
    max_size=8,
)  # source, how many hosts further, bytes, start in ps


def _run(messages: list[tuple[int, int, int, int]], longest: int | None = None) -> tuple[list[int], PacketState]:
    """Send messages; returns how long each took, ps, and the network."""
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16", ["engine=packet", f"cluster.hosts={HOSTS}"]).scenario)
    world = cast("PacketWorld", fabric.world)
    if longest is not None:
        world.react_within(longest)
    matrix = np.array(messages, MESSAGE)
    matrix["target"] = (matrix["source"] + matrix["target"]) % HOSTS
    done: Any = fabric.send_all(matrix, [0] * len(matrix))
    return env.run(done).tolist(), world.network


@pytest.mark.slow
@settings(max_examples=25)
@given(messages=MESSAGES, longest=st.integers(1, 10**6))
def test_the_length_of_windows_changes_nothing(messages: list[tuple[int, int, int, int]], longest: int) -> None:
    assert _run(messages)[0] == _run(messages, longest)[0]


def test_windows_are_as_long_as_the_smallest_packet_allows() -> None:
    full, by_full = _run([(0, 1, 10 * FULL, 0)])
    _, by_small = _run([(0, 1, 10 * FULL, 0), (2, 1, FULL + 1, 10**6)])

    smallest = int(by_full.world["smallest"][0])
    assert smallest > 1
    assert sum(by_full.lookahead(smallest)) == by_full.world["window"][0] > by_small.world["window"][0]
    assert sum(by_small.lookahead(1)) == by_small.world["window"][0]
    assert by_small.world["smallest"][0] == 1
    assert by_small.world["room"][0] > by_full.world["room"][0]
    assert _run([(0, 1, 10 * FULL, 0)], 1000)[0] == full


def _sides(hosts: int, cables: list[tuple[int, int]]) -> list[int]:
    """Part nodes, of which the first are hosts."""
    ends = np.array(cables, np.int32)
    source, target = np.concatenate([ends, ends[:, ::-1]]).T
    return sides(np.arange(ends.max() + 1) < hosts, source, target).tolist()


LEAVES_AND_SPINE = [(0, 3), (1, 3), (2, 4), (3, 5), (4, 5)]


def test_sides_alternate_from_tier_to_tier() -> None:
    assert _sides(3, LEAVES_AND_SPINE) == [0, 0, 0, 1, 1, 0]


def test_there_is_one_side_where_a_link_joins_switches_of_hosts_or_two_hosts() -> None:
    assert _sides(3, [*LEAVES_AND_SPINE, (3, 4)]) == [0] * 6
    assert _sides(3, [*LEAVES_AND_SPINE, (0, 1)]) == [0] * 6


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_links_join_two_sides_or_there_is_but_one(hosts: int, cables: list[tuple[int, int]]) -> None:
    side = _sides(hosts, [(one, other) for one, other in cables if one != other] or [(0, 1)])

    assert not any(side) or all(side[one] != side[other] for one, other in cables if one != other)
    assert not any(side[:hosts])


def test_nodes_of_two_sides_are_run_as_far_at_once_as_there_and_back() -> None:
    settings = ["engine=packet", "cluster.hosts=16", "fabric.topology=fat-tree", "fabric.switch.latency=300ns"]
    net = cast("PacketWorld", Fabric(simpy.Environment(), load("ideal-16", settings).scenario).world).network

    out, back = net.lookahead(int(net.world["smallest"][0]))
    assert net.world["window"][0] == out + back
    stretches = np.split(net.stretches, [int(net.world["sides"][0])])
    one, other = [{node for row in rows.tolist() for node in range(*row)} for rows in stretches]
    assert one | other == set(range(len(net.nodes)))
    for source, target in zip(net.links["source"].tolist(), net.links["target"].tolist(), strict=True):
        assert (source in one) == (target in other)
