"""Hosts with several NICs: the compiled packet engine against the readable one, on a platform's own tables."""

from __future__ import annotations

import random
from typing import Any

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.packet.state import PacketState
from tests.reference import packet_cases, packet_runs
from tests.reference.scenarios import ideal_scenario

pytestmark = pytest.mark.filterwarnings("ignore:transport.load_balancing.kind")  # go-back-N where packets overtake

HOSTS, GPUS = 3, 4
PAIRS = 40
GROWN = ("laws", "servers", "stages", "endpoints", "flows", "receivers")
LEAVES = {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 2}
PXN = {"pxn": True, "intra_host": "nvlink"}
DIRECT = {"join": "pcie", "gpudirect": True, "gpus_per_pcie_switch": 2, "nic_below_gpu_switch": True}
PFC = {"above": "30KiB", "below": "20KiB", "headroom": "100KiB"}
LOSSLESS = {"pfc": PFC, "buffer": {"shared": "1MiB"}}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two on one switch": ({}, {}),
    "below PCIe switches": (DIRECT, {}),
    "staged": ({"join": "pcie"}, {}),
    "below one PCIe switch, staged": ({**DIRECT, "gpudirect": False, "gpus_per_pcie_switch": 4}, {}),
    "four on rails, PXN": ({**PXN, "nics_per_host": 4}, {"rails": True}),
    "rails, PXN, GPUDirect": ({**PXN, **DIRECT, "nics_per_host": 4}, {"rails": True}),
    "rails and spines": ({}, {**LEAVES, "rails": True}),
    "spines, spraying": ({}, {**LEAVES, "rails": True, "transport": {"load_balancing": {"kind": "spray"}}}),
}
SHARING = {"below one PCIe switch, staged", "four on rails, PXN", "rails, PXN, GPUDirect"}
"""Cases whose NICs share servers."""


def tables_of(state: PacketState) -> dict[str, Any]:
    """What both engines start from."""
    names = ("world", "nodes", "ins", "links", "ports", "queues", "ingress", "group_of", "groups", "group_links")
    tables = {name: getattr(state, name).copy() for name in names}
    tables["links"]["log"] = 1
    tables["paths"] = state.paths[: state.used["paths"]].copy()
    return tables | {name: getattr(state, name)[: state.used[name]].copy() for name in GROWN}


@pytest.mark.slow
@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(*, name: str, lossless: bool) -> None:
    cluster, fabric = CASES[name]
    switch = {"name": "round", "latency": "100ns", "forwarding": "store-and-forward", **(LOSSLESS if lossless else {})}
    made = ideal_scenario(
        HOSTS, cluster={"gpus_per_host": GPUS, "nics_per_host": 2, **cluster}, switch=switch, **fabric
    )
    env = simpy.Environment()
    network = Fabric(env, made.model_copy(update={"engine": "packet"}), time_unit=1)
    draw = random.Random(name)  # noqa: S311  no secret
    pairs = [divmod(pair, HOSTS * GPUS) for pair in draw.sample(range((HOSTS * GPUS) ** 2), PAIRS)]
    pairs = [(source, target) for source, target in pairs if source // GPUS != target // GPUS]
    sizes = [draw.randint(1, 80_000) for _ in pairs]
    events = [network.send(*pair, size) for pair, size in zip(pairs, sizes, strict=True)]
    routes = [network.wiring.route(*pair) for pair in pairs]
    flows = network.world.routes["flow"][routes].tolist()
    posts = [
        packet_cases.Post(0, flow, size, owner) for owner, (flow, size) in enumerate(zip(flows, sizes, strict=True))
    ]
    assert network.recorder is not None
    state = network.recorder.network
    assert bool(state.world["peers"][0]) == (name in SHARING)
    case = packet_cases.Case(tables_of(state), posts, 10**12, name, state.dispatch)

    expected = packet_runs.reference(case)
    found = packet_runs.Compiled(case).run()
    assert found.log == expected.log
    assert found.deliveries == expected.deliveries
    assert found.counters == expected.counters
    assert len(expected.deliveries) == len(pairs)
    # and with the fabric's own run, whose transport adds no latency
    delivered = dict(zip(flows, [env.run(event) for event in events], strict=True))
    assert delivered == {flow: time for time, flow, _ in expected.deliveries}
    pauses = sum(counters[packet_runs.COUNTERS.index("pauses")] for counters in expected.counters)
    assert (pauses > 0) == lossless
