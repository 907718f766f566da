"""Every collective on an idle fabric takes the time that its textbook formula says.

``B`` payload bytes/s, ``a`` seconds of latency per message, ``S`` bytes over ``n`` ranks. On a star
every message crosses two cables, ``a = 1 us``.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.reference import closed_forms, ring
from tests.reference.scenarios import ideal_scenario, measure

B = 12.5e9
STAR = 1e-6
PERMILLE = 1e-3
SIZES = [2**10, 2**20, 2**30]
GROUPS = [2, 3, 8, 9, 16, 61]
LARGE = [(128, 2**30), (1024, 2**10)]
CASES = [*itertools.product(GROUPS, SIZES), *LARGE]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [*CASES, (1024, 2**26)])
def test_ring_all_reduce(n: int, size: int) -> None:
    took = measure(ideal_scenario(n), "all_reduce", range(n), size)
    assert took == pytest.approx(2 * (n - 1) * (STAR + size / n / B), rel=PERMILLE)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize(("n", "size"), CASES)
def test_ring_reduce_scatter_and_all_gather(collective: str, n: int, size: int) -> None:
    took = measure(ideal_scenario(n), collective, range(n), size)
    assert took == pytest.approx((n - 1) * (STAR + size / n / B), rel=PERMILLE)


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "turns"), [("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)])
@pytest.mark.parametrize("n", [127, 400])
def test_a_ring_that_does_not_divide_the_size_waits_for_its_largest_piece(n: int, collective: str, turns: int) -> None:
    took = measure(ideal_scenario(n), collective, range(n), 1024)
    assert took == pytest.approx(turns * (n - 1) * (STAR + -(-1024 // n) / B), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), CASES)
def test_broadcast_in_one_chunk(n: int, size: int) -> None:
    took = measure(ideal_scenario(n), "broadcast", range(n), size)
    assert took == pytest.approx((n - 1) * (STAR + size / B), rel=PERMILLE)


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_broadcast_pipelines_its_chunks(n: int) -> None:
    # a chunk takes 84 us to send, so that the 1 us of latency is hidden behind the one that follows
    size, chunks = 2**26, 64
    took = measure(ideal_scenario(n, chunk="1MiB"), "broadcast", range(n), size)
    assert took == pytest.approx((n - 1) * STAR + (n - 2 + chunks) * size / chunks / B, rel=PERMILLE)


@pytest.mark.parametrize("size", [1, 1500, *SIZES])
def test_send_recv(size: int) -> None:
    assert measure(ideal_scenario(2), "send_recv", (1, 0), size) == pytest.approx(STAR + size / B, rel=PERMILLE)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(16, 4), (128, 8), (1024, 16)])
def test_ring_all_reduce_on_a_fat_tree(n: int, k: int) -> None:
    size = 2**28
    took = measure(ideal_scenario(n, "fat-tree", k=k), "all_reduce", range(n), size)
    # A shard goes round the ring almost twice; the one that meets the longest hops comes in last.
    twice = np.tile(_hop_latencies(n, k), 3)
    slowest = max(twice[first : first + 2 * (n - 1)].sum() for first in range(n))
    assert took == pytest.approx(2 * (n - 1) * size / n / B + slowest, rel=PERMILLE)
    # The formula of a ring that moves in lockstep, all hops as long as the longest, is an upper bound.
    assert took <= 2 * (n - 1) * (size / n / B + 6 * 0.5e-6) * (1 + PERMILLE)


@pytest.mark.slow
@pytest.mark.parametrize("tree", [(16, 4), (100, 8), (128, 8)])
@pytest.mark.parametrize("shard", [1, 1000, 100_000])
def test_ring_all_reduce_on_a_fat_tree_equals_its_recurrence(tree: tuple[int, int], shard: int) -> None:
    n, k = tree
    # Where messages are short, what limits is how far a sender may be ahead on the longest hop.
    took = measure(ideal_scenario(n, "fat-tree", k=k), "all_reduce", range(n), shard * n)
    expected = ring.ring_seconds(_hop_latencies(n, k), shard / B, 2 * (n - 1), window=2)
    assert took == pytest.approx(expected, rel=1e-6)


def _hop_latencies(n: int, k: int) -> NDArray[np.float64]:
    """From each rank to the next, seconds: 2 links under one edge switch, 4 within a pod, 6 beyond."""
    here = np.arange(n)
    after = (here + 1) % n
    same_edge = here // (k // 2) == after // (k // 2)
    same_pod = here // (k * k // 4) == after // (k * k // 4)
    return np.where(same_edge, 2.0, np.where(same_pod, 4.0, 6.0)) * 0.5e-6


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_a_group_of_one_takes_no_time(collective: str) -> None:
    assert measure(ideal_scenario(2), collective, [1], 2**20) == 0.0


def test_the_order_of_ranks_is_the_order_of_the_ring() -> None:
    # Two hosts of four GPUs: in order, one flow leaves each host; alternating, all four do.
    made = ideal_scenario(2, cluster={"gpus_per_host": 4})
    size = 2**26
    in_order = measure(made, "all_reduce", range(8), size)
    alternating = measure(made, "all_reduce", [0, 4, 1, 5, 2, 6, 3, 7], size)
    assert in_order == pytest.approx(14 * size / 8 / B, rel=0.01)
    assert alternating == pytest.approx(4 * 14 * size / 8 / B, rel=0.01)


@pytest.mark.parametrize("channels", [1, 2, 3, 8])
@pytest.mark.parametrize("chunk", ["64KiB", "1MiB", "1TiB"])
def test_chunks_and_channels_hide_latency_and_leave_the_bandwidth(channels: int, chunk: str) -> None:
    n, size = 8, 2**26
    took = measure(ideal_scenario(n, channels=channels, chunk=chunk), "all_reduce", range(n), size)
    bandwidth = 2 * (n - 1) * size / n / B
    per_chunk = {"64KiB": 2**16, "1MiB": 2**20, "1TiB": 2**40}[chunk]
    rounds = max(1, -(-size // (channels * n * per_chunk)))
    assert bandwidth * (1 - 1e-9) <= took <= bandwidth + rounds * 2 * (n - 1) * STAR * 1.001
    if channels == 1:
        assert took == pytest.approx(bandwidth + rounds * 2 * (n - 1) * STAR, rel=1e-6)


def test_a_second_channel_hides_the_latency_of_the_first() -> None:
    alone = measure(ideal_scenario(8, channels=1, chunk="64KiB"), "all_reduce", range(8), 2**24)
    both = measure(ideal_scenario(8, channels=2, chunk="64KiB"), "all_reduce", range(8), 2**24)
    assert both < 0.97 * alone


def test_shipped_closed_forms_are_the_ones_held_against_here() -> None:
    assert closed_forms.ring_all_reduce(4, 4e9, 1e9, 1.0) == 2 * 3 * (1 + 1)
    assert closed_forms.ring_half(4, 4e9, 1e9, 1.0) == 3 * (1 + 1)
    assert closed_forms.chain(4, 4e9, 1e9, 1.0, 2) == 3 * 1 + (4 - 2 + 2) * 2
