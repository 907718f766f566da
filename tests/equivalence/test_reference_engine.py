"""Whole runs on the reference engine give what they give on the packet engine, to the last packet."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import simpy

import fabricsim as fs

Process = Generator[simpy.Event, Any, None]

KIB = 1024
LEAVES = 'fabric={topology="leaf-spine", hosts_per_leaf=2, spines=2}'
SMALL = [
    "job.model.layers=8",
    "job.model.hidden=32",
    "job.model.heads=2",
    "job.model.vocabulary=512",
    "job.sequence=512",
]
MARKS_ALL = ["transport.switch.ecn.low=12kB", "transport.switch.ecn.high=12kB"]
MARKS_SOME = ["transport.switch.ecn.low=8kB", "transport.switch.ecn.high=40kB"]
FAILURE = 'fabric.failures=[{link="host1-switch0", from="20us", until="2ms"}]'
QUEUE = 'fabric.failures=[{link="switch0-host0", from="60us", until="900us"}]'


def _leaves(failures: str) -> str:
    return f'fabric={{topology="leaf-spine", hosts_per_leaf=2, spines=2, reconvergence="300us", failures=[{failures}]}}'


SPINE = _leaves('{switch="spine0", from="20us"}')
FLAPS = _leaves('{link="leaf0-spine0", from="20us", until="90us", every="1ms", times=4}')
RANDOM = _leaves('{link="leaf*-spine?", mtbf="60us", mttr="30us"}')
SLOW = _leaves(
    '{link="*-spine*", rate="10Gbps", from="50us", until="900us"}, {nic="host2", rate="40Gbps", from="20us"}'
)
LOSSY = _leaves('{link="leaf0-spine*", bit_error_rate=1e-6, from="20us"}')
SOON = [f'transport.packet.{each}_timeout="{time}"' for each, time in (("minimum", "500us"), ("initial", "500us"))]
CASES = {  # what is set, and what has to happen in it
    "ideal": (["transport=ideal-100g"], None),
    "tcp": (["transport=tcp-10g", "transport.switch.buffer.per_port=64KiB"], "drops"),
    "dctcp": (["transport=dctcp-100g", *MARKS_ALL], "marks"),
    "dcqcn": (["transport=roce-100g", LEAVES, *MARKS_SOME], "marks"),
    "pauses": (["transport=peers-roce"], "pauses"),
    "spraying and trimming": (["transport=uec-100g", LEAVES], "trims"),
    "hpcc": (["transport=roce-100g-hpcc", LEAVES], None),
    "swift": (["transport=roce-100g-swift"], None),
    "credits": (["transport=rdma-100g"], None),
    "bit errors": (["transport=ideal-100g", "fabric.bit_error_rate=1e-7"], "errors"),
    "a cable that fails": (["transport=ideal-100g", FAILURE], "timeouts"),
    "a queue before a cable that fails": (["transport=ideal-100g", QUEUE], "errors"),
    "credits of a queue before a cable that fails": (["transport=rdma-100g", QUEUE], "errors"),
    "pauses of a queue before a cable that fails": (["transport=peers-roce", QUEUE, *SOON], "pauses"),
    "telemetry of a queue before a cable that fails": (["transport=roce-100g-hpcc", QUEUE, *SOON], "errors"),
    "a switch that fails for good": (["transport=ideal-100g", SPINE, *SOON], "timeouts"),
    "a cable that flaps": (["transport=roce-100g", FLAPS, *SOON], "errors"),
    "cables that fail at random": (["transport=ideal-100g", RANDOM, *SOON], "errors"),
    "slow cables": (["transport=roce-100g", SLOW, *MARKS_SOME], "marks"),
    "slow cables with credits": (["transport=rdma-100g", SLOW], None),
    "lossy cables": (["transport=ideal-100g", LOSSY, *SOON], "errors"),
    "spraying around a switch": (["transport=uec-100g", SPINE], "errors"),
    "hpcc around a switch": (["transport=roce-100g-hpcc", SPINE, *SOON], "errors"),
    "tcp around a switch": (["transport=tcp-10g", "transport.mtu=4000", SPINE], "errors"),
}


def _told(engine: str, settings: list[str]) -> tuple[Any, ...]:
    """What processes, links and counters tell of a run in which transfers, a ring and an incast overlap."""
    env = simpy.Environment()
    fabric = fs.Fabric(env, fs.load("ideal-16", [*settings, "cluster.hosts=4", f"engine={engine}"]))
    told: list[Any] = []

    def user(name: str, delay: float) -> Process:
        yield env.timeout(delay)
        told.append((name, (yield fabric.all_reduce(range(4), 96 * KIB)), env.now))
        told.append((name, (yield fabric.send(0, 3, 50 * KIB)), env.now))

    def incast() -> Process:
        yield env.all_of([fabric.send(source, 0, 320 * KIB) for source in (1, 2, 3)])
        told.append(("incast", env.now))

    env.process(user("one", 0.0))
    env.process(user("other", 30e-6))
    env.process(incast())
    env.run()
    assert fabric.recorder is not None
    wires = fabric.recorder.packets().wires.tolist()
    return told, wires, fabric.recorder.counters(), fabric.links()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_processes_and_links_tell_the_same(case: str) -> None:
    settings, happens = CASES[case]
    told = _told("reference", settings)
    assert told == _told("packet", settings)
    assert happens is None or told[2][happens] > 0


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["gpt2-medium-dp", "gpt2-medium-pp", "gpt2-xl-dp-16"])
def test_a_job_runs_alike(scenario: str) -> None:
    one, other = (fs.simulate(fs.load(scenario, [*SMALL, f"engine={engine}"])) for engine in ("packet", "reference"))

    assert (one.spans == other.spans).all()
    assert one.iteration == other.iteration
    assert one.links == other.links
    assert {**one.counters, "events": 0} == {**other.counters, "events": 0}  # each counts events of its own
    assert one.packets is not None
    assert other.packets is not None
    assert (one.packets.wires == other.packets.wires).all()


@pytest.mark.parametrize(
    ("settings", "watch", "message"),
    [
        ([], fs.Watch(queues=("*",)), r'engine = "reference" records no taps and captures: set engine = "packet"'),
    ],
)
def test_what_the_reference_cannot_do_is_refused(settings: list[str], watch: fs.Watch | None, message: str) -> None:
    with pytest.raises(fs.FabricsimError, match=message):
        fs.Fabric(simpy.Environment(), fs.load("ideal-16", ["engine=reference", *settings]), watch=watch)


def test_the_reference_refuses_to_cancel() -> None:
    env = simpy.Environment()
    fabric = fs.Fabric(env, fs.load("ideal-16", ["engine=reference"]))
    sent = fabric.send(0, 1, 1000)
    with pytest.raises(fs.SimulationError, match='cannot cancel a transfer: set engine = "packet"'):
        sent.cancel()
    assert env.run(sent) > 0
