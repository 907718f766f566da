"""Packets of the transports that studies compare, and under credits, DCQCN, NSCC and loss: 16 hosts, two leaves."""

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

HOSTS = 16
FABRIC = ("fabric.topology=leaf-spine", "fabric.hosts_per_leaf=8", "fabric.spines=2")


class TransportCase(NamedTuple):
    """A transport, what is sent by it, and whether packets get lost."""

    transport: str
    pattern: str
    size: str
    lossy: bool = False
    settings: tuple[str, ...] = ()


CASES = {
    "tcp-10g": TransportCase("tcp-10g", "permutation", "8MB", lossy=True),
    "ipoib-100g": TransportCase("ipoib-100g", "permutation", "16MB"),
    "rdma-100g": TransportCase("rdma-100g", "permutation", "32MB"),
    "credits": TransportCase("rdma-100g", "incast", "8MB"),
    "dcqcn": TransportCase("roce-100g", "incast", "4MB"),
    "nscc": TransportCase("uec-100g", "incast", "4MB", lossy=True),
    "loss": TransportCase("new-reno-100g", "permutation", "8MB", lossy=True, settings=("fabric.bit_error_rate=1e-9",)),
}


@pytest.mark.parametrize("name", CASES)
def test_transport(measured: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    settings = [f"cluster.hosts={HOSTS}", "engine=packet", f"transport={case.transport}", *FABRIC, *case.settings]
    scenario = load("ideal-16", settings).scenario
    matrix = request(case.pattern, scenario, size=case.size)

    def make() -> tuple[Fabric, simpy.Event]:
        fabric = Fabric(simpy.Environment(), scenario, time_unit=1)
        return fabric, fabric.send_all(matrix.flows, [0] * len(matrix.flows))

    def run(made: tuple[Fabric, simpy.Event]) -> tuple[int, Fabric]:
        fabric, done = made
        fabric.env.run(done)
        fabric.env.run()  # until the last acknowledgements have arrived
        network = fabric.world.network.world[0]
        return int(network.data_hops) + int(network.ack_hops), fabric

    fabric = measured(run, make, "packet_hops")
    network = fabric.world.network
    payload = int(network.laws["payload"][0])
    flows = network.flows[: len(matrix.flows)]
    least = int(np.sum(-(-matrix.flows["bytes"] // payload) * flows["hops"]))
    lost = sum(int(network.links[name].sum()) for name in ("drops", "trims", "errors"))
    assert (flows["acknowledged"] == flows["posted"]).all()
    assert (lost > 0) == case.lossy
    assert int(network.world[0].data_hops) > least if case.lossy else int(network.world[0].data_hops) == least
