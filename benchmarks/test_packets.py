"""Packets at links per second of CPU time, over fat trees of 100 Gb/s with 1 us per link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import simpy

from fabricsim import load
from fabricsim.engine.fabric import Fabric
from fabricsim.run.traffic import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.scenario.scenario import Scenario

PAYLOAD = 4096
# A window of 32 packets, FIFO queues, and marks beyond 15 packets, which nobody answers to.
FIFO = (
    "transport=ideal-100g",
    "transport.packet.payload=4096B",
    "transport.packet.header=64B",
    "transport.packet.ack_wire=64B",
    "transport.packet.maximum_window=131072B",
    "fabric.switch.name=fifo",
    "fabric.switch.latency=0us",
    "fabric.switch.forwarding=store-and-forward",
    "fabric.switch.ecn.low=61440B",
    "fabric.switch.ecn.high=61440B",
)
DCQCN = ("transport=peers-dcqcn",)
LINE_RATE = ("transport=peers-roce",)


class Load(NamedTuple):
    """What is sent over which fat tree."""

    hosts: int
    pattern: str
    size: str
    settings: tuple[str, ...]


LOADS = {
    "permutation-128": Load(128, "permutation", "10.24MB", FIFO),
    "permutation-128-dcqcn-pfc": Load(128, "permutation", "10.24MB", DCQCN),
    "permutation-128-roce-pfc": Load(128, "permutation", "10.24MB", LINE_RATE),
    "ring-128": Load(128, "ring", "10.24MB", FIFO),
    "permutation-1024": Load(1024, "permutation", "2.048MB", FIFO),
    "permutation-8192": Load(8192, "permutation", "512kB", FIFO),
}


def _scenario(load_: Load) -> Scenario:
    cables = [f"fabric.{name}_cable=200m" for name in ("host", "switch")]
    fabric = ["fabric.topology=fat-tree", "fabric.routing=d-mod-k", *cables]
    return load("ideal-16", [f"cluster.hosts={load_.hosts}", "engine=packet", *fabric, *load_.settings]).scenario


LARGE = {"permutation-1024", "permutation-8192"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.large] * (name in LARGE)) for name in LOADS])
def test_packet_hops(measured: Callable[..., Any], name: str) -> None:
    scenario = _scenario(LOADS[name])
    matrix = request(LOADS[name].pattern, scenario, size=LOADS[name].size)

    def make() -> tuple[simpy.Environment, Fabric, simpy.Event]:
        env = simpy.Environment()
        fabric = Fabric(env, scenario, time_unit=1)
        return env, fabric, fabric.send_all(matrix.flows, [0] * len(matrix.flows))

    def run(made: tuple[simpy.Environment, Fabric, simpy.Event]) -> tuple[int, Fabric]:
        env, fabric, done = made
        env.run(done)
        env.run()  # until the last acknowledgements have arrived
        network = fabric.world.network.world[0]
        return int(network.data_hops) + int(network.ack_hops), fabric

    fabric = measured(run, make, "packet_hops")
    packets = -(-matrix.flows["bytes"] // PAYLOAD)
    flows = fabric.world.network.flows[: len(packets)]
    hops = int(np.sum(packets * flows["hops"]))
    network = fabric.world.network.world[0]
    assert int(network.data_hops) == hops
    assert int(network.ack_hops) == hops
