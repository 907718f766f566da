"""Single cables that are not as the others of their fabric."""

from __future__ import annotations

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import ScenarioError, SimulationError
from fabricsim.scenario.load import load
from fabricsim.topology.wires import named

LEAVES = ["fabric=two-tier", "fabric.hosts_per_leaf=1", "fabric.spines=2", "transport=ideal-100g", "cluster.hosts=4"]
NAMES = ("host0->leaf0", "leaf0->host0", "leaf0->spine0#0", "leaf0->spine0#1", "leaf0->spine1", "spine1->leaf0")
MIB = 2**20


@pytest.mark.parametrize(
    ("pattern", "wires"),
    [
        ("leaf0-spine1", [4, 5]),
        ("spine1-leaf0", [4, 5]),
        ("leaf0->spine1", [4]),
        ("leaf0-spine*", [2, 3, 4, 5]),
        ("leaf0-spine0", [2, 3]),
        ("leaf0-spine0#1", [3]),
        ("host*", [0, 1]),
        ("*", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_patterns_name_cables_from_either_end(pattern: str, wires: list[int]) -> None:
    assert named(pattern, NAMES) == wires


def test_a_pattern_that_names_none_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"fabric.cables: no cable matches 'leaf9-\*'; they are called as host0"):
        named("leaf9-*", NAMES)


def _send(settings: list[str], engine: str, size: int = MIB) -> float:
    """Time of a message from rank 0 to rank 1, s."""
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16", [*LEAVES, f"engine={engine}", *settings], with_job=False))
    return float(env.run(fabric.send(0, 1, size)))


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_slow_cable_is_what_a_message_over_it_takes(engine: str) -> None:
    """1 MiB at 10 Gb/s is 838.9 us; what the other cables add to the first packet is less than a percent."""
    slow = _send(["fabric.cables.leaf0-spine*.rate=10Gbps"], engine)

    assert slow == pytest.approx(MIB * 8 / 10e9, rel=0.01)
    assert _send(["fabric.cables.leaf0->spine*.rate=10Gbps"], engine) == slow
    assert _send(["fabric.cables.spine*->leaf0.rate=10Gbps"], engine) == _send([], engine)  # nothing comes back


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_longer_cable_adds_the_time_of_light(engine: str) -> None:
    """2 km more are 10 us at 5 ns per metre, once for a message that crosses the cable once."""
    before = _send([], engine, size=1000)

    assert _send(["fabric.cables.host0-leaf0.delay=10us"], engine, size=1000) == pytest.approx(before + 10e-6 - 25e-9)
    far = _send(["fabric.cables.host0-leaf0.length=2km"], engine, size=1000)
    assert far == pytest.approx(before + 10e-6 - 25e-9)  # instead of 5 m


def test_a_lossy_cable_loses_packets_and_only_there() -> None:
    def errors(pattern: str) -> int:
        env = simpy.Environment()
        settings = [*LEAVES, "transport=rdma-100g", "engine=packet", f"fabric.cables.{pattern}.bit_error_rate=1e-6"]
        fabric = Fabric(env, load("ideal-16", settings, with_job=False))
        env.run(fabric.send(0, 1, 10 * MIB))
        return int(fabric.world.network.links["errors"].sum())

    assert errors("leaf0-spine*") > 0
    assert errors("leaf2-spine*") == 0


def test_later_patterns_count() -> None:
    both = [
        "fabric.cables.leaf0-*.rate=10Gbps",
        "fabric.cables.leaf0-spine*.rate=100Gbps",
        "fabric.cables.leaf0-host0.rate=100Gbps",
    ]
    assert _send(both, "flow") == _send([], "flow")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fabric.cables.leaf0-*.bit_error_rate=1e-6", 'has no effect with engine = "flow"'),
        ("fabric.cables.leaf0-*={}", "changes nothing"),
        ('fabric.cables.leaf0-*={length = "1km", delay = "1us"}', "has a length and a delay"),
        ("fabric.cables.leaf0-*.rat=10Gbps", "did you mean 'rate'"),
    ],
)
def test_a_slip_in_cables_is_named_with_its_key(setting: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load("ideal-16", [*LEAVES, setting])
