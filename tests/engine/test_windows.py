"""How long the packet engine's windows are, and that nobody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import simpy
from hypothesis import given
from hypothesis import strategies as st

from fabricsim import load
from fabricsim.engine.fabric import Fabric

if TYPE_CHECKING:
    from fabricsim.engine.packet_state import PacketState
    from fabricsim.engine.packet_world import PacketWorld

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


@given(messages=MESSAGES, longest=st.integers(1, 10**6))
def test_the_length_of_windows_changes_nothing(messages: list[tuple[int, int, int, int]], longest: int) -> None:
    assert _run(messages)[0] == _run(messages, longest)[0]


def test_windows_are_as_long_as_the_smallest_packet_allows() -> None:
    full, by_full = _run([(0, 1, 10 * FULL, 0)])
    _, by_small = _run([(0, 1, 10 * FULL, 0), (2, 1, FULL + 1, 10**6)])

    smallest = int(by_full.world["smallest"][0])
    assert smallest > 1
    assert by_full.lookahead(smallest) == by_full.world["reach"][0] > by_small.world["reach"][0]
    assert by_small.lookahead(1) == by_small.world["reach"][0]
    assert by_small.world["smallest"][0] == 1
    assert by_small.world["room"][0] > by_full.world["room"][0]
    assert _run([(0, 1, 10 * FULL, 0)], 1000)[0] == full
