"""What templates move where, followed step by step without the engine."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricsim.collectives import by_host, template
from fabricsim.collectives.base import Group, Template, counted
from fabricsim.collectives.choice import LL, LL128, Choice, from_settings
from fabricsim.collectives.semantics import check
from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.collectives import ALGORITHMS, DEFAULTS, Collectives, has
from tests.reference.scenarios import ideal_scenario

NAMED = [(collective, name) for name, each in ALGORITHMS.own.items() for collective in each.of]
FLAT = [each for each in NAMED if not by_host(*each)]
POWERS_ONLY = {("reduce_scatter", "recursive_halving"), ("all_gather", "recursive_doubling")}


def _made(collective: str, algorithm: str, members: int) -> Template:
    if collective == "send_recv":
        return template(collective, 2, algorithm)
    if (collective, algorithm) in POWERS_ONLY:
        members = 1 << members.bit_length() - 1
    return template(collective, members, algorithm)


@pytest.mark.slow
@settings(max_examples=20)
@given(members=st.integers(1, 24), seed=st.integers(0, 1000))
@pytest.mark.parametrize(("collective", "algorithm"), FLAT)
def test_every_algorithm_does_what_its_collective_is_to_do(
    collective: str, algorithm: str, members: int, seed: int
) -> None:
    made = _made(collective, algorithm, members)
    _require_both_ends(made)
    check(collective, made, algorithm, seed)


def _require_both_ends(made: Template) -> None:
    places = np.argwhere(made.connections[:, :, 0] >= 0).tolist()
    there = {(lane, *made.connections[lane, out].tolist()) for lane, out in places}
    back = {(int(made.sources[lane, k]), lane, k) for lane, k in np.argwhere(made.sources >= 0).tolist()}
    assert there == back
    assert len(there) == len(places)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    hosts=st.integers(1, 9),
    local=st.integers(1, 5),
    leaves=st.integers(1, 3),
    seed=st.integers(0, 1000),
    mix=st.booleans(),
)
@pytest.mark.parametrize(("collective", "algorithm"), [each for each in NAMED if by_host(*each)])
def test_every_algorithm_over_hosts_does_what_its_collective_is_to_do(  # noqa: PLR0913, PLR0917  drawn by name
    collective: str, algorithm: str, hosts: int, local: int, leaves: int, seed: int, *, mix: bool
) -> None:
    if algorithm == "nvls":
        hosts = 1
    if algorithm.startswith("nvls"):
        local += 1
    if algorithm.startswith("collnet"):
        hosts += 1
    mix = mix and algorithm != "two_phase"  # which refuses that
    of_member = [member % hosts if mix else member // local for member in range(hosts * local)]
    group = Group(counted(of_member), counted([host % leaves for host in of_member]))
    made = template(collective, hosts * local, algorithm, group)
    _require_both_ends(made)
    check(collective, made, algorithm, seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(hosts=st.lists(st.integers(0, 5), min_size=1, max_size=20), seed=st.integers(0, 1000))
@pytest.mark.parametrize("algorithm", ["tree", "collnet_chain"])
def test_trees_take_hosts_of_different_sizes(algorithm: str, hosts: list[int], seed: int) -> None:
    group = Group(counted([*hosts, 6] if algorithm == "collnet_chain" else hosts), (0,) * (len(hosts) + 1))
    check("all_reduce", template("all_reduce", len(group.hosts), algorithm, group), algorithm, seed)


def test_a_send_has_two_ends() -> None:
    with pytest.raises(ValueError, match="one sender and one receiver, not 3"):
        template("send_recv", 3)


def test_every_collective_has_its_default() -> None:
    assert all(has(collective, name) for collective, name in DEFAULTS.items())
    assert {collective for collective, _ in NAMED} == set(DEFAULTS)


def test_settings_choose_the_same_for_every_call() -> None:
    settings = Collectives(channels=3, chunk="1MiB", send_chunk="4KiB", network_step="2us", intra_host_step="1us")
    cluster = ideal_scenario(2).cluster
    choose = from_settings(settings, cluster)
    assert choose("all_reduce", (0, 1), 5) == Choice("ring", 3, 2**20, 2_000_000, 1_000_000)
    assert choose("send_recv", (0, 1), 5) == Choice("direct", 1, 4096, 2_000_000, 1_000_000, window=8)
    named = from_settings(Collectives(algorithm={"all_reduce": "ring"}), cluster)
    assert named("broadcast", (0,), 1).algorithm == "ring"


def test_small_calls_go_by_the_low_latency_protocol_if_there_is_one() -> None:
    small = {"up_to": "1KiB", "start": "3us", "network_step": "2us", "intra_host_step": "1us"}
    choose = from_settings(Collectives(channels=1, start="9us", ll=small), ideal_scenario(2).cluster)  # type: ignore[arg-type]

    assert choose("all_reduce", (0, 1), 1024) == Choice("ring", 1, 2**21, 2_000_000, 1_000_000, LL, start=3_000_000)
    assert choose("all_reduce", (0, 1), 1025) == Choice("ring", 1, 2**21, start=9_000_000)


@pytest.mark.parametrize(("line", "moved"), [(LL, 2 * 1000), (LL128, 9 * 128)])
def test_a_protocol_sends_whole_lines(line: tuple[int, int], moved: int) -> None:
    fabric = Fabric(simpy.Environment(), ideal_scenario(2, cable="0m"))
    fabric.wiring.choose = lambda *_: Choice("ring", 1, 2**20, line=line)
    took = fabric.env.run(fabric.broadcast(range(2), 1000))
    assert took == pytest.approx(moved / 12.5e9, rel=1e-9)
