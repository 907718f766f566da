from __future__ import annotations

import math

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.program.lane import block_class, cut, round_bytes, shards_bytes
from tests.reference.scenarios import ideal_scenario


@pytest.mark.slow
@given(
    size=st.one_of(st.integers(1, 3000), st.integers(1, 2**43)),
    channels=st.integers(1, 8),
    shards=st.integers(1, 12),
    chunk=st.integers(1, 5000),
)
def test_cutting_loses_no_byte_and_repeats_none(size: int, channels: int, shards: int, chunk: int) -> None:
    chunk = max(chunk, size // 400)  # few rounds: this is about the cuts
    rounds = max(1, math.ceil(math.ceil(size / channels) / (shards * chunk)))
    pieces = [
        cut(round_bytes(cut(size, channels, channel), shards, chunk, turn), shards, shard)
        for channel in range(channels)
        for turn in range(rounds)
        for shard in range(shards)
    ]
    assert sum(pieces) == size
    assert min(pieces) >= 0
    assert max(pieces) <= chunk


@given(
    size=st.one_of(st.integers(0, 3000), st.integers(1, 2**43)),
    parts=st.integers(1, 40),
    first=st.integers(0, 39),
    count=st.integers(1, 40),
    run=st.integers(0, 8),
    gap=st.integers(0, 8),
)
def test_shards_that_go_together_are_the_sum_of_each(  # noqa: PLR0913, PLR0917  drawn by name
    size: int, parts: int, first: int, count: int, run: int, gap: int
) -> None:
    first, count, run = first % parts, 1 + (count - 1) % parts, min(run, parts)
    places = [first + (k if run == 0 else k // run * (run + gap) + k % run) for k in range(count)]
    expected = sum(cut(size, parts, place % parts) for place in places)
    assert shards_bytes(size, parts, first, count, run, run + gap) == expected


@pytest.mark.parametrize(("lanes", "expected"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)])
def test_blocks_come_in_powers_of_two(lanes: int, expected: int) -> None:
    assert block_class(lanes) == expected


def test_lanes_of_finished_calls_are_used_again() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(8, channels=2))
    world = fabric.world.world[0]
    env.run(fabric.all_reduce(range(8), 4096))
    first = int(world.next_lane)
    assert first == 16  # 8 members on 2 channels
    for _ in range(20):
        env.run(fabric.all_reduce(range(8), 4096))
    assert world.next_lane == first


def test_calls_at_once_take_lanes_each_and_calls_of_other_sizes_other_blocks() -> None:
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(8))
    together = [fabric.all_reduce(range(4), 4096) for _ in range(3)] + [fabric.broadcast(range(3, 6), 4096)]
    env.run(simpy.AllOf(env, together))
    assert fabric.world.world[0].next_lane == 4 * 4
    env.run(fabric.all_reduce(range(8), 4096))
    assert fabric.world.world[0].next_lane == 4 * 4 + 8


def test_a_sender_is_at_most_two_messages_ahead_of_its_receiver() -> None:
    # The chain's middle link is 2000 times longer than it takes to send a chunk: with two chunks on
    # their way at most, a round trip of the window limits the rate to 2 chunks per latency.
    chunk, chunks, latency = 12_500, 40, 2e-3
    env = simpy.Environment()
    fabric = Fabric(env, ideal_scenario(2, chunk=f"{chunk}B", transport={"latency": "2ms"}, cable="0m"))
    took = env.run(fabric.broadcast(range(2), chunk * chunks))
    sending = chunk / 12.5e9
    # Sends start in pairs; each pair needs the pair before it to have arrived.
    assert took == pytest.approx(chunks / 2 * (latency + sending) + sending, rel=1e-6)
