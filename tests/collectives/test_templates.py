"""What templates move where, followed step by step without the engine."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
import simpy

from fabricsim.collectives import COLLECTIVES, template
from fabricsim.collectives.choice import LL, LL128, Choice, from_settings
from fabricsim.engine.fabric import Fabric
from fabricsim.spec.collectives import ALGORITHMS, Collectives
from fabricsim.tables import NONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template
    from fabricsim.spec.scenario import Scenario

GROUPS = [1, 2, 3, 4, 7, 16]
Holdings = list[dict[int, set[int]]]
"""What each member holds of each shard: the members whose contributions are in it."""


def _play(made: Template, holdings: Holdings) -> None:
    """Carry out one round; what arrives is merged into what is held, as a reduction and a copy both do."""
    at = [0] * made.members
    received = [0] * made.members
    inbox: list[list[tuple[int, set[int]]]] = [[] for _ in range(made.members)]
    moved = True
    while moved:
        moved = False
        for member in range(made.members):
            script = made.scripts[0 if len(made.scripts) == 1 else member]
            if at[member] == len(script):
                continue
            step = script[at[member]]
            if step["wait"] != NONE and received[member] < step["needed"]:
                if not inbox[member]:
                    continue
                shard, content = inbox[member].pop(0)
                holdings[member][shard] |= content
                received[member] += 1
            if step["send"] != NONE:
                shard = int(step["shard"])
                if made.relative:
                    shard = (shard + member) % made.members
                receiver = int(made.connections[member, step["send"], 0])
                inbox[receiver].append((shard, set(holdings[member][shard])))
            at[member] += 1
            moved = True
    assert all(at[m] == len(made.scripts[0 if len(made.scripts) == 1 else m]) for m in range(made.members))
    assert not any(inbox)


def _empty(members: int) -> Holdings:
    return [defaultdict(set) for _ in range(members)]


@pytest.mark.parametrize("n", GROUPS)
def test_all_reduce_leaves_every_contribution_everywhere(n: int) -> None:
    made = template("all_reduce", n)
    holdings = _empty(n)
    for member in range(n):
        for shard in range(made.shards):
            holdings[member][shard] = {member}
    _play(made, holdings)
    assert all(holdings[member][shard] == set(range(n)) for member in range(n) for shard in range(made.shards))


@pytest.mark.parametrize("n", GROUPS)
def test_reduce_scatter_leaves_one_whole_shard_with_each_member(n: int) -> None:
    made = template("reduce_scatter", n)
    holdings = _empty(n)
    for member in range(n):
        for shard in range(made.shards):
            holdings[member][shard] = {member}
    _play(made, holdings)
    whole = [[shard for shard in range(n) if holdings[member][shard] == set(range(n))] for member in range(n)]
    assert sorted(shard for shards in whole for shard in shards) == list(range(n))
    assert all(len(shards) == 1 for shards in whole)


@pytest.mark.parametrize("n", GROUPS)
def test_all_gather_leaves_every_shard_everywhere(n: int) -> None:
    made = template("all_gather", n)
    holdings = _empty(n)
    for member in range(n):
        holdings[member][member] = {member}
    _play(made, holdings)
    assert all(holdings[member][shard] == {shard} for member in range(n) for shard in range(n))


@pytest.mark.parametrize("n", GROUPS)
def test_broadcast_reaches_everyone_from_the_first(n: int) -> None:
    holdings = _empty(n)
    holdings[0][0] = {0}
    _play(template("broadcast", n), holdings)
    assert all(holdings[member][0] == {0} for member in range(n))


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize(
    ("collective", "sends"), [("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)], ids=str
)
def test_each_member_of_a_ring_sends_the_optimal_number_of_shards(collective: str, sends: int, n: int) -> None:
    script = template(collective, n).scripts[0]
    assert (script["send"] != NONE).sum() == sends * (n - 1)


@pytest.mark.parametrize(("collective", "algorithm"), COLLECTIVES)
def test_connections_and_sources_agree(collective: str, algorithm: str) -> None:
    n = 2 if collective == "send_recv" else 6
    made = template(collective, n, algorithm)
    for member in range(n):
        for receiver, inbox in made.connections[member]:
            assert made.sources[receiver, inbox] in {member, NONE}


def test_a_send_has_two_ends() -> None:
    with pytest.raises(ValueError, match="one sender and one receiver, not 3"):
        template("send_recv", 3)


def test_the_names_in_settings_are_those_that_there_are() -> None:
    named = [(collective, name) for collective, names in ALGORITHMS.items() for name in names]
    assert sorted(named) == sorted(COLLECTIVES)


def test_settings_choose_the_same_for_every_call() -> None:
    settings = Collectives(channels=3, chunk="1MiB", send_chunk="4KiB", network_step="2us", intra_host_step="1us")
    choose = from_settings(settings)
    assert choose("all_reduce", (0, 1), 5) == Choice("ring", 3, 2**20, 2_000_000, 1_000_000)
    assert choose("send_recv", (0, 1), 5) == Choice("direct", 1, 4096, 2_000_000, 1_000_000)
    assert from_settings(Collectives(algorithm={"all_reduce": "ring"}))("broadcast", (0,), 1).algorithm == "ring"


@pytest.mark.parametrize(("line", "moved"), [(LL, 2 * 1000), (LL128, 9 * 128)])
def test_a_protocol_sends_whole_lines(
    ideal_scenario: Callable[..., Scenario], line: tuple[int, int], moved: int
) -> None:
    fabric = Fabric(simpy.Environment(), ideal_scenario(2, cable="0m"))
    fabric.wiring.choose = lambda *_: Choice("ring", 1, 2**20, line=line)
    took = fabric.env.run(fabric.broadcast(range(2), 1000))
    assert took == pytest.approx(moved / 12.5e9, rel=1e-9)
