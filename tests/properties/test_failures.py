"""Random fabrics on which random things fail: every event ends, no byte is lost or doubled, and both engines agree."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fabricsim as fs

if TYPE_CHECKING:
    from collections.abc import Generator

CASES = int(os.environ.get("FABRICSIM_CASES", "25"))
FABRICS = (
    "fabric.topology=single-switch",
    'fabric={topology="leaf-spine",hosts_per_leaf=2,spines=2}',
    'fabric={topology="leaf-spine",hosts_per_leaf=3,spines=3,uplink_rate="50Gbps"}',
    'fabric={topology="fat-tree",k=4}',
    'fabric={topology="torus",dimensions=[3,2],direct=false}',
    'fabric={topology="mesh",dimensions=[2,3],parallel=2,direct=false}',
    'fabric={topology="multi-plane",planes=2,hosts_per_leaf=3,spines=2,link_rate="50Gbps"}',
    'fabric={topology="dragonfly",hosts_per_switch=1,switches_per_group=2,global_cables=1}',
    'fabric={topology="dragonfly-plus",hosts_per_leaf=1,leaves_per_group=2,spines_per_group=2,global_cables=1}',
    'fabric={topology="full-mesh",hosts_per_switch=2,parallel=2,routing="valiant"}',
    # Hosts of several cables are left out: their routers may have taken all in before anything fails.
)
SIX = ("torus", "mesh")  # all places of a grid are taken
CIRCLES = ("torus", "dragonfly", "dragonfly-plus", "full-mesh")  # which no network without loss may have
TIMEOUTS = {"initial": "300us", "minimum": "300us", "maximum": "50ms"}  # it has to outgrow queues before slow cables
SOON = [f"transport.packet.{each}_timeout={time}" for each, time in TIMEOUTS.items()]
SIZE = 5_000_000  # bytes: 400 us alone, so that nothing is delivered before all failures have begun
LAST = 300  # us


class Case(NamedTuple):
    fabric: str
    transport: str
    hosts: int
    failures: tuple[str, ...]
    sends: tuple[tuple[int, int, int], ...]
    ring: bool


@cache
def _parts(fabric: str, hosts: int) -> tuple[list[str], list[str]]:
    """Give the names of all cables, and of all switches."""
    platform = fs.Fabric(simpy.Environment(), fs.load("ideal-16", [f"cluster.hosts={hosts}", fabric])).platform
    return [*platform.wires.names], [*platform.nodes[platform.nics :]]


@st.composite
def _failures(draw: st.DrawFn, fabric: str, hosts: int) -> str:
    host = draw(st.integers(0, hosts - 1))
    cable, switch = (draw(st.sampled_from(each)) for each in _parts(fabric, hosts))
    kinds = [
        *(f'link="{cable.replace("->", "-")}"', f'link="{cable}"', f'switch="{switch}"'),
        *('link="host{0}-*"', 'link="*-spine{1}"', 'link="leaf{1}-spine*"', 'link="edge{0}-aggregation*"'),
        *(
            'link="leaf0-spine{1}"',
            'link="leaf1-spine{1}"',
            'link="edge{1}-aggregation0"',
            'link="aggregation{1}-core*"',
        ),
        *('switch="spine{1}"', 'switch="core{1}"', 'nic="host{0}"', 'host="host{0}"', 'gpu="gpu{0}"'),
    ]
    what = draw(st.sampled_from(kinds)).format(host, draw(st.integers(0, 1)))
    begin = draw(st.integers(1, LAST))
    end = draw(st.sampled_from(["", f',until="{begin + draw(st.integers(1, 900))}us"']))
    again = ',every="1ms",times=3' if end and draw(st.booleans()) else ""
    worse = "" if "gpu" in what else draw(st.sampled_from(["", "", ',rate="20Gbps"', ",bit_error_rate=1e-7"]))
    return f'{{{what},from="{begin}us"{end}{again}{worse}}}'


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    fabric = draw(st.sampled_from(FABRICS))
    hosts = 6 if any(f'"{name}"' in fabric for name in SIX) else draw(st.integers(4, 6))
    circles = any(f'"{name}"' in fabric for name in CIRCLES)
    pair = st.lists(st.integers(0, hosts - 1), min_size=2, max_size=2, unique=True)
    sends = st.lists(st.tuples(pair, st.integers(0, 9)), min_size=1, max_size=5)
    return Case(
        fabric,
        draw(st.sampled_from(["ideal-100g", "uec-100g", "tcp-10g", *([] if circles else ["roce-100g"])])),
        hosts,
        tuple(draw(st.lists(_failures(fabric, hosts), min_size=1, max_size=3))),
        tuple((*ends, port) for ends, port in draw(sends)),
        draw(st.booleans()),
    )


def _outcomes(case: Case, engine: str) -> tuple[list[bool], fs.Fabric]:
    """Tell whether each event was delivered; the clock stops if one of them never ends."""
    known = [f"fabric.failures=[{each}]" for each in case.failures]
    names = [f"engine={engine}", f"cluster.hosts={case.hosts}", f"transport={case.transport}", case.fabric, *SOON]
    fitting = [each for each in known if _exists([*names, each])]
    joined = ",".join(each.removeprefix("fabric.failures=[").removesuffix("]") for each in fitting)
    env = simpy.Environment()
    settled = [f"fabric.failures=[{joined}]", "fabric.reconvergence=100us", "fabric.local_repair=20us"]
    fabric = fs.Fabric(env, fs.load("ideal-16", [*names, *settled]))
    events: list[simpy.Event] = [fabric.send(source, to, SIZE, port=port) for source, to, port in case.sends]
    if case.ring:
        events.append(fabric.all_reduce(range(case.hosts), 4 * SIZE))
    told: dict[int, bool] = {}

    def wait(number: int, event: simpy.Event) -> Generator[simpy.Event, Any, None]:
        try:
            yield event
            told[number] = True
        except fs.SimulationError as error:
            assert "down" in str(error)  # noqa: PT017  what is said is part of the outcome
            told[number] = False

    for item in enumerate(events):
        env.process(wait(*item))
    env.run(until=5.0)
    assert len(told) == len(events), "an event never ends"
    return [told[number] for number in range(len(events))], fabric


def _exists(names: list[str]) -> bool:
    try:
        fs.Fabric(simpy.Environment(), fs.load("ideal-16", names))
    except fs.SimulationError:
        return False
    return True


def _sent(fabric: fs.Fabric) -> float:
    return sum(use.payload for name, use in fabric.links().items() if name.startswith("host") and "->" in name)


@pytest.mark.slow
@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=_cases())
def test_both_engines_deliver_the_same_and_nothing_hangs(case: Case) -> None:
    (flow, fluid), (packet, packets) = (_outcomes(case, engine) for engine in ("flow", "packet"))
    assert flow == packet
    if all(flow):
        ring = 2 * (case.hosts - 1) * 4 * SIZE if case.ring else 0
        whole = sum(SIZE for _ in case.sends) + ring
        assert _sent(fluid) == pytest.approx(whole, rel=1e-9)
        assert _sent(packets) == pytest.approx(whole, rel=1e-6)
