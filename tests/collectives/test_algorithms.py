"""Every algorithm on an idle star takes the time of its closed form and moves the bytes that it says.

``B`` payload bytes/s on every link, ``A`` seconds per message, one channel, one round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import simpy

from fabricsim.collectives import (
    tree,
)
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import ScenarioError, SimulationError
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from tests.reference import closed_forms
from tests.reference.scenarios import ideal_scenario

Form = Callable[[int, float, float, float], float]

B = 12.5e9
A = 1e-6
NVLINK = 300e9
EXACT = 1e-9
ROUNDING = 1e-11
"""Seconds: the end of each message is rounded up to a whole picosecond."""


def _with(made: Scenario, **keys: object) -> Scenario:
    return made.model_copy(update={"collectives": made.collectives.model_copy(update=keys)})


def _run(made: Scenario, collective: str, ranks: range, size: int) -> tuple[float, Fabric]:
    env = simpy.Environment()
    fabric = Fabric(env, made)
    took: Any = env.run(getattr(fabric, collective)(ranks, size))
    return took, fabric


def _sent(fabric: Fabric, end: str = "->switch0") -> list[float]:
    """Payload of each host's cable."""
    names, payload = fabric.platform.resources.names, fabric.world.resources["payload"]
    return [float(payload[index]) for index, name in enumerate(names) if name.endswith(end)]


def _bruck_volume(members: int) -> float:
    return closed_forms.bruck_all_to_all(members, 1.0, 1.0, 0.0)


POWERS = [2, 4, 16, 64]
ANY = [2, 3, 8, 13, 32]
FORMS: list[tuple[str, str, Form, list[int], Callable[[int], float]]] = [
    ("all_reduce", "ring", closed_forms.ring_all_reduce, ANY, lambda n: 2 * (n - 1) / n),
    ("reduce_scatter", "ring", closed_forms.ring_half, ANY, lambda n: (n - 1) / n),
    ("all_gather", "ring", closed_forms.ring_half, ANY, lambda n: (n - 1) / n),
    ("all_reduce", "halving_doubling", closed_forms.halving_doubling, POWERS, lambda n: 2 * (n - 1) / n),
    ("all_reduce", "rabenseifner", closed_forms.rabenseifner, POWERS, lambda n: 2 * (n - 1) / n),
    ("all_reduce", "recursive_doubling", closed_forms.recursive_doubling, POWERS, math.log2),
    ("reduce_scatter", "recursive_halving", closed_forms.halving_half, POWERS, lambda n: (n - 1) / n),
    ("all_gather", "recursive_doubling", closed_forms.halving_half, POWERS, lambda n: (n - 1) / n),
    ("all_gather", "bruck", closed_forms.bruck_all_gather, ANY, lambda n: (n - 1) / n),
    ("all_gather", "pat", closed_forms.bruck_all_gather, ANY, lambda n: (n - 1) / n),
    ("reduce_scatter", "pat", closed_forms.bruck_all_gather, ANY, lambda n: (n - 1) / n),
    ("all_reduce", "direct", closed_forms.direct_all_reduce, ANY, lambda n: 2 * (n - 1) / n),
    ("reduce_scatter", "direct", closed_forms.direct_half, ANY, lambda n: (n - 1) / n),
    ("all_gather", "direct", closed_forms.direct_half, ANY, lambda n: (n - 1) / n),
    ("all_to_all", "direct", closed_forms.all_to_all_direct, ANY, lambda n: (n - 1) / n),
    ("all_to_all", "pairwise", closed_forms.all_to_all_pairwise, ANY, lambda n: (n - 1) / n),
    (
        "all_to_all",
        "bruck",
        closed_forms.bruck_all_to_all,
        ANY,
        lambda n: closed_forms.bruck_all_to_all(n, 1.0, 1.0, 0.0),
    ),
    ("ring_exchange", "ring", lambda _n, size, rate, a: closed_forms.ring_exchange(size, rate, a), ANY, lambda _: 1.0),
]
CASES = [(name, algorithm, form, n, share) for name, algorithm, form, groups, share in FORMS for n in groups]


@pytest.mark.slow
@pytest.mark.parametrize("per_rank", [16, 1_000_000])
@pytest.mark.parametrize(("collective", "algorithm", "form", "n", "share"), CASES, ids=lambda value: str(value)[:24])
def test_an_algorithm_takes_its_closed_form_and_moves_its_bytes(  # noqa: PLR0913, PLR0917  a row of the table
    collective: str, algorithm: str, form: Form, n: int, share: Callable[[int], float], per_rank: int
) -> None:
    size = per_rank * n
    took, fabric = _run(_with(ideal_scenario(n), algorithm={collective: algorithm}), collective, range(n), size)
    # Times are whole picoseconds, rounded up message by message.
    assert took == pytest.approx(form(n, size, B, A), rel=EXACT, abs=2 * n * 1e-12)
    assert _sent(fabric) == pytest.approx([share(n) * size] * n, rel=EXACT)
    assert _sent(fabric) == pytest.approx(_received(fabric), rel=EXACT)


def _received(fabric: Fabric) -> list[float]:
    names, payload = fabric.platform.resources.names, fabric.world.resources["payload"]
    return [float(payload[index]) for index, name in enumerate(names) if name.startswith("switch0->")]


@pytest.mark.parametrize("n", [2, 3, 8, 20])
def test_a_reduction_takes_the_time_of_a_broadcast(n: int) -> None:
    size, chunks = 2**24, 16
    took, fabric = _run(ideal_scenario(n, chunk="1MiB"), "reduce", range(n), size)
    assert took == pytest.approx(closed_forms.chain(n, size, B, A, chunks), rel=EXACT)
    assert _sent(fabric) == pytest.approx([0.0] + [float(size)] * (n - 1))


BETWEEN = [
    ("halving_doubling", closed_forms.halving_doubling),
    ("rabenseifner", closed_forms.rabenseifner),
    ("recursive_doubling", closed_forms.recursive_doubling),
]


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 33])
@pytest.mark.parametrize(("algorithm", "form"), BETWEEN)
def test_between_powers_of_two_messages_of_different_steps_share_links(algorithm: str, form: Form, n: int) -> None:
    made = _with(ideal_scenario(n), algorithm={"all_reduce": algorithm})
    short, _ = _run(made, "all_reduce", range(n), 32)
    assert math.log2(n) * A <= short <= form(n, 32, B, A) * 1.03
    size = 2**26
    took, fabric = _run(made, "all_reduce", range(n), size)
    most = max(*_sent(fabric), *_received(fabric))
    assert most / B <= took <= 2.2 * form(n, size, B, A)


def test_three_ranks_are_longer_by_the_message_that_comes_early() -> None:
    # Rank 1 receives from rank 0 what it reduces, and at the same time half of a buffer from rank 2.
    size = 2**26
    took, _ = _run(_with(ideal_scenario(3), algorithm="halving_doubling"), "all_reduce", range(3), size)
    assert took == pytest.approx(closed_forms.halving_doubling(3, size, B, A) + size / 2 / B, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 7, 16, 31, 64])
def test_the_double_tree_is_as_deep_as_it_says_and_uses_all_links(n: int) -> None:
    made = _with(ideal_scenario(n), algorithm={"all_reduce": "tree"})
    short, _ = _run(made, "all_reduce", range(n), 2)
    # Bytes of one message after the other, and of two children that share their parent's link.
    levels = max(closed_forms.depth(parents) for parents in tree.double_parents(n))
    assert 2 * levels * A <= short <= 2 * levels * (A + 4 / B) + 1e-11
    size = 2**28
    long, fabric = _run(_with(made, chunk=2**17), "all_reduce", range(n), size)
    model = closed_forms.tree_all_reduce(n, size, B, A)
    most = max(*_sent(fabric), *_received(fabric))
    assert sum(_sent(fabric)) == pytest.approx(2 * (n - 1) * size)
    assert most <= 2 * size
    assert most / B <= long <= 1.1 * model


def test_a_tree_of_two_is_exact() -> None:
    # Each is the other's parent in one tree: half of the buffer goes up, then half comes down.
    took, _ = _run(_with(ideal_scenario(2), algorithm="tree"), "all_reduce", range(2), 2**20)
    assert took == pytest.approx(2 * (A + 2**19 / B), rel=EXACT)


def test_trees_over_hosts_leave_each_host_once() -> None:
    made = _with(ideal_scenario(4, cluster={"gpus_per_host": 4}), algorithm="tree", chunk=2**17)
    size = 2**24
    _, fabric = _run(made, "all_reduce", range(16), size)
    assert sum(_sent(fabric)) == pytest.approx(2 * 3 * size)


@pytest.mark.parametrize(("hosts", "local"), [(2, 2), (3, 4), (4, 8)])
def test_two_dimensions_take_their_closed_form(hosts: int, local: int) -> None:
    cluster = {"gpus_per_host": local, "intra_host": "nvlink"}
    made = _with(ideal_scenario(hosts, cluster=cluster), algorithm="hierarchical")
    size = 2**22 * hosts * local
    took, fabric = _run(made, "all_reduce", range(hosts * local), size)
    # All ranks of a host share its cable.
    expected = closed_forms.hierarchical_all_reduce(local, hosts, size, NVLINK, B / local, 0.0, A)
    assert took == pytest.approx(expected, rel=EXACT)
    assert _sent(fabric) == pytest.approx([2 * (hosts - 1) / hosts * size] * hosts)


@pytest.mark.slow
@pytest.mark.parametrize("local", [2, 4, 8])
def test_nvls_takes_its_closed_form_and_half_of_the_bytes(local: int) -> None:
    cluster = {"gpus_per_host": local, "intra_host": "nvlink"}
    made = _with(ideal_scenario(1, cluster=cluster), algorithm="nvls", intra_host_step=2_000_000)
    size = 2**22 * local
    took, fabric = _run(made, "all_reduce", range(local), size)
    assert took == pytest.approx(closed_forms.nvls_all_reduce(local, size, NVLINK, 2e-6), rel=EXACT, abs=ROUNDING)
    assert _sent(fabric, "nvlink/up") == pytest.approx([(local + 1) / local * size] * local)
    assert _sent(fabric, "nvlink/down") == pytest.approx([(local + 1) / local * size] * local)
    for collective in ("reduce_scatter", "all_gather"):
        took, _ = _run(made, collective, range(local), size)
        assert took == pytest.approx(closed_forms.nvls_half(local, size, NVLINK, 2e-6), rel=EXACT, abs=ROUNDING)
    many, _ = _run(_with(made, chunk=2**17, intra_host_step=0), "all_reduce", range(local), 64 * size)
    assert many == pytest.approx((local + 1) / local * 64 * size / NVLINK, rel=0.05)


def test_nvls_tree_sends_each_shard_over_a_tree_of_hosts() -> None:
    cluster = {"gpus_per_host": 4, "intra_host": "nvlink"}
    made = _with(ideal_scenario(4, cluster=cluster), algorithm="nvls_tree", chunk=2**18)
    size = 2**24
    took, fabric = _run(made, "all_reduce", range(16), size)
    assert sum(_sent(fabric)) == pytest.approx(2 * 3 * size)
    assert _sent(fabric, "nvlink/up") == pytest.approx([5 / 4 * size] * 16)
    assert took >= 2 * size / B * 0.99


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2, 5, 16])
@pytest.mark.parametrize("algorithm", ["collnet_direct", "collnet_chain"])
def test_switches_that_reduce_carry_each_byte_once(algorithm: str, hosts: int) -> None:
    made = _with(ideal_scenario(hosts), algorithm=algorithm)
    size = 2**22
    took, fabric = _run(made, "all_reduce", range(hosts), size)
    # The switch ends a message and begins one, so each crosses one cable.
    assert took == pytest.approx(closed_forms.collnet_one_switch(size, B, A / 2), rel=EXACT)
    assert _sent(fabric) == _received(fabric) == pytest.approx([size] * hosts)
    many, _ = _run(_with(made, chunk=2**14), "all_reduce", range(hosts), 16 * size)
    assert many == pytest.approx(16 * size / B, rel=0.02)


def test_switches_of_two_tiers_send_one_sum_upwards() -> None:
    made = ideal_scenario(12, "leaf-spine", hosts_per_leaf=4, spines=2, cluster={"gpus_per_host": 2})
    size = 2**22
    took, fabric = _run(_with(made, algorithm="collnet_direct"), "all_reduce", range(24), size)
    names, payload = fabric.platform.resources.names, fabric.world.resources["payload"]
    up = [payload[i] for i, name in enumerate(names) if name.startswith("leaf") and "->spine" in name]
    assert sum(up) == pytest.approx(3 * size)
    assert max(up) == pytest.approx(size)
    assert took >= 4 * A / 2


@pytest.mark.parametrize("algorithm", ["ring", "tree", "rabenseifner"])
def test_reducing_takes_time_at_its_rate(algorithm: str) -> None:
    made = _with(ideal_scenario(2), algorithm=algorithm)
    size, rate = 2**20, 10e9
    plain, _ = _run(made, "all_reduce", range(2), size)
    slow, _ = _run(_with(made, reduction_rate=rate), "all_reduce", range(2), size)
    assert slow - plain == pytest.approx(size / 2 / rate, rel=1e-6)


@pytest.mark.parametrize(("collective", "algorithm", "steps"), [("all_reduce", "ring", 7), ("reduce", "ring", 7)])
def test_every_reducing_step_costs(collective: str, algorithm: str, steps: int) -> None:
    made = _with(ideal_scenario(8), algorithm={collective: algorithm})
    size, rate = 2**20, 10e9
    piece = size / 8 if collective == "all_reduce" else size
    plain, _ = _run(made, collective, range(8), size)
    slow, _ = _run(_with(made, reduction_rate=rate), collective, range(8), size)
    assert slow - plain == pytest.approx(steps * piece / rate, rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "group", "problem"),
    [
        ({"all_reduce": "nvls"}, "hosts", "within one host, not over 4"),
        ({"all_reduce": "nvls_tree"}, "hosts", "several ranks on a host"),
        ({"all_reduce": "collnet_chain"}, "one", "several hosts"),
    ],
)
def test_an_algorithm_that_does_not_fit_says_so(algorithm: dict[str, str], group: str, problem: str) -> None:
    made = _with(ideal_scenario(4 if group == "hosts" else 1, cluster={} if group == "hosts" else {"gpus_per_host": 4}))
    with pytest.raises(SimulationError, match=problem):
        _run(_with(made, algorithm=algorithm), "all_reduce", range(4), 4096)


def test_nvls_needs_nvlink() -> None:
    made = _with(ideal_scenario(1, cluster={"gpus_per_host": 4}), algorithm="nvls")
    with pytest.raises(SimulationError, match="intra_host"):
        _run(made, "all_reduce", range(4), 4096)


def test_an_unknown_algorithm_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match="there are direct, bruck, pairwise"):
        load("hkbu", ["collectives.algorithm.all_to_all=nccl"])


def test_nccl_trees_are_those_of_its_source() -> None:
    # ncclGetBtree's own picture of 14 nodes in src/graph/trees.cc, and its mirror.
    parents, mirrored = tree.double_parents(14)
    assert parents == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]
    assert mirrored == [None if parent is None else 13 - parent for parent in reversed(parents)]
    first, shifted = tree.double_parents(5)
    assert shifted == [None if p is None else (p + 1) % 5 for p in (first[-1], *first[:-1])]
    leaves = [set(range(14)) - set(each) for each in (parents, mirrored)]
    assert leaves[0] | leaves[1] == set(range(14))
    assert np.isclose(len(leaves[0]), 7)
    assert tree.over_hosts([[0, 1], [2, 3], [4]], [None, 2, 0]) == [None, 0, 4, 2, 0]


# ---- with packets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "algorithm", "n"),
    [
        ("all_reduce", "tree", 8),
        ("all_reduce", "halving_doubling", 8),
        ("all_reduce", "rabenseifner", 6),
        ("all_gather", "bruck", 7),
        ("all_gather", "pat", 7),
        ("reduce_scatter", "pat", 8),
        ("all_reduce", "direct", 8),
        ("reduce_scatter", "direct", 7),
        ("all_gather", "direct", 7),
        ("all_to_all", "direct", 8),
        ("all_to_all", "bruck", 8),
        ("reduce", "ring", 5),
        ("ring_exchange", "ring", 5),
    ],
)
def test_packets_take_what_the_fluid_takes_and_their_acknowledgements(collective: str, algorithm: str, n: int) -> None:
    made = _with(ideal_scenario(n), algorithm={collective: algorithm}, reduction_rate=50e9)
    fluid, _ = _run(made, collective, range(n), 2**20 * n)
    packets, _ = _run(made.model_copy(update={"engine": "packet"}), collective, range(n), 2**20 * n)
    # Queues serve who comes first, not in equal shares: with messages of different steps on one link it may be less.
    # Of the messages of a direct reduction those that are served first are reduced while the others come.
    reducing = algorithm == "direct" and "reduce" in collective
    least = 0.9 if reducing or algorithm in {"rabenseifner", "tree"} else 1.0
    assert least * fluid <= packets <= 1.01 * fluid


@pytest.mark.slow
def test_switches_of_hosts_and_of_the_network_reduce_in_the_packet_engine() -> None:
    cluster = {"gpus_per_host": 4, "intra_host": "nvlink"}
    for algorithm in ("nvls_tree", "collnet_chain", "collnet_direct"):
        made = _with(ideal_scenario(2, cluster=cluster), algorithm=algorithm, intra_host_step=2_000_000)
        fluid, _ = _run(made, "all_reduce", range(8), 2**20)
        packets, _ = _run(made.model_copy(update={"engine": "packet"}), "all_reduce", range(8), 2**20)
        assert packets == pytest.approx(fluid, rel=0.05)
        exact, _ = _run(made.model_copy(update={"engine": "reference"}), "all_reduce", range(8), 2**20)
        assert exact == packets
    with pytest.raises(ScenarioError, match="needs the switch that joins the GPUs"):
        load("ideal-16", ["collectives.algorithm.all_reduce=nvls"])


def test_a_single_tree_sends_three_times_the_data_from_a_host_with_two_below_it() -> None:
    """Of the tree 0 - 2 - (1, 3) host 2 sends all data up once and down twice; two trees need twice the data."""
    size, rate = 2**26, 12.5e9
    took = {
        name: _run(_with(ideal_scenario(4), algorithm=name, chunk=2**16), "all_reduce", range(4), size)[0]
        for name in ("single_tree", "tree")
    }

    assert took["single_tree"] == pytest.approx(3 * size / rate, rel=0.02)
    assert took["tree"] < took["single_tree"]


def test_split_trees_have_a_hop_more_in_each_host_that_passes_on() -> None:
    """Host 0 of 0 - 2 - (1, 3), and host 2: up and down, a hop more in each."""
    made = _with(ideal_scenario(4, cluster={"gpus_per_host": 4, "intra_host": "nvlink"}), intra_host_step=1_000_000)
    took = {
        name: _run(_with(made, algorithm=name), "all_reduce", range(16), 64)[0]
        for name in ("single_tree", "split_single_tree")
    }
    assert took["split_single_tree"] - took["single_tree"] == pytest.approx(4e-6, rel=0.05)
