"""Several NICs per host, in both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import SimulationError
from fabricsim.scenario.load import load
from tests.reference.scenarios import ideal_scenario

SIZE = 8_192_000  # 2000 packets
RATE = 12.5e9
ALONE = SIZE / RATE
LATENCY = 1e-6  # two cables
SLACK = 1.5 * 4122 * 8e-11  # store-and-forward at the switch and the last bits: a packet and a half
ENGINES = ["flow", "packet"]
EIGHT = {"gpus_per_host": 8, "nics_per_host": 8}
GPU = {
    "name": "round",
    "peak": {"fp16": "100TFLOPS"},
    "memory": "40GB",
    "memory_rate": "1000GBps",
    "gemm_efficiency": 1.0,
    "memory_efficiency": 1.0,
}
NVLINK = {"intra_host": "nvlink"}


@pytest.fixture
def send() -> Callable[..., list[float]]:
    """Sends messages at once; returns the time of each, s."""

    def _(
        engine: str,
        pairs: list[tuple[int, int]],
        *,
        fabric: dict[str, Any] | None = None,
        nvlink_rate: str | None = None,
        **cluster: Any,  # noqa: ANN401  settings are of many types
    ) -> list[float]:
        if nvlink_rate is not None:
            cluster["gpu"] = {**GPU, "nvlink_rate": nvlink_rate}
        made = ideal_scenario(2, cluster=cluster, **(fabric or {})).model_copy(update={"engine": engine})
        env = simpy.Environment()
        network = Fabric(env, made)
        events = [network.send(source, target, SIZE) for source, target in pairs]
        return [env.run(event) for event in events]

    return _


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rails", [False, True])
def test_eight_pairs_over_eight_nics_do_not_disturb_each_other(
    send: Callable[..., list[float]], engine: str, *, rails: bool
) -> None:
    pairs = [(gpu, 8 + gpu) for gpu in range(8)]
    times = send(engine, pairs, fabric={"rails": rails}, **EIGHT)
    assert times == pytest.approx([ALONE + LATENCY] * 8, rel=1e-9, abs=SLACK if engine == "packet" else 0)
    together = send(engine, pairs, gpus_per_host=8)
    assert max(together) == pytest.approx(8 * ALONE + LATENCY, rel=1e-9, abs=SLACK if engine == "packet" else 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_gpus_of_one_nic_share_it(send: Callable[..., list[float]], engine: str) -> None:
    # two GPUs to a NIC: GPUs 0 and 1 share both ways, 2 goes alone
    times = send(engine, [(0, 4), (1, 5), (2, 6)], gpus_per_host=4, nics_per_host=2)
    slack = 2 * SLACK if engine == "packet" else 0
    assert max(times[:2]) == pytest.approx(2 * ALONE + LATENCY, rel=1e-9, abs=slack)
    assert times[2] == pytest.approx(ALONE + LATENCY, rel=1e-9, abs=slack)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_senders_share_the_nic_of_the_receiver(send: Callable[..., list[float]], engine: str) -> None:
    times = send(engine, [(0, 8), (1, 8)], **EIGHT)
    assert max(times) == pytest.approx(2 * ALONE + LATENCY, rel=1e-9, abs=2 * SLACK if engine == "packet" else 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_between_rails_a_message_climbs_or_is_forwarded_or_is_refused(
    send: Callable[..., list[float]], engine: str
) -> None:
    leaves = {"topology": "leaf-spine", "hosts_per_leaf": 2, "spines": 1, "rails": True}
    slack = 3 * SLACK if engine == "packet" else 0
    assert send(engine, [(0, 11)], fabric=leaves, **EIGHT) == pytest.approx([ALONE + 2 * LATENCY], rel=1e-9, abs=slack)
    with pytest.raises(SimulationError, match=r"set cluster\.pxn"):
        send(engine, [(0, 11)], fabric={"rails": True}, **EIGHT)
    forwarded = send(engine, [(0, 11)], fabric={"rails": True}, pxn=True, **EIGHT, **NVLINK)
    assert forwarded == pytest.approx([ALONE + LATENCY], rel=1e-9, abs=slack)


@pytest.mark.parametrize("engine", ENGINES)
def test_forwarded_messages_share_the_rail(send: Callable[..., list[float]], engine: str) -> None:
    # GPUs 0 and 1 both send to GPU 3 of the other host: rail 3 is the bottleneck with PXN, its last link without
    for pxn in (False, True):
        times = send(engine, [(0, 11), (1, 11)], pxn=pxn, **EIGHT, **NVLINK)
        assert max(times) == pytest.approx(2 * ALONE + LATENCY, rel=1e-9, abs=3 * SLACK if engine == "packet" else 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_narrow_nvlink_slows_what_is_forwarded(send: Callable[..., list[float]], engine: str) -> None:
    # 10 GB/s; the first packet is ready for the wire after one packet's time on either side of the NVLink
    slack = 3 * SLACK if engine == "packet" else 0
    assert send(engine, [(0, 11)], pxn=True, nvlink_rate="10GBps", **EIGHT, **NVLINK) == pytest.approx(
        [SIZE / 10e9 + LATENCY], rel=1e-9, abs=slack
    )
    own = send(engine, [(0, 8)], pxn=True, nvlink_rate="10GBps", **EIGHT, **NVLINK)
    assert own == pytest.approx([ALONE + LATENCY], rel=1e-9, abs=slack)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_rings_on_rails_are_as_fast_as_one_alone(engine: str) -> None:
    # 8 rings of 4 ranks, one on each rail: each has its wires alone, as if its hosts had one GPU
    def times(cluster: dict[str, int], rings: int, **fabric: bool) -> list[float]:
        made = ideal_scenario(4, cluster=cluster, **fabric).model_copy(update={"engine": engine})
        env = simpy.Environment()
        network = Fabric(env, made)
        events = [network.all_reduce(range(rail, 4 * rings, rings), 4 * SIZE) for rail in range(rings)]
        return [env.run(event) for event in events]

    (alone,) = times({}, 1)
    assert alone == pytest.approx(6 * (ALONE + LATENCY), rel=0.01)  # six steps; acknowledgements take 0.7 %
    assert times(EIGHT, 8, rails=True) == times(EIGHT, 8) == [alone] * 8


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("cluster", "transport"),
    [
        ("dgx-a100", "rdma-200g"),
        ("vtrain", "rdma-200g"),
        ("dgx-h100", "rdma-400g"),
        ("llama3-24k", "roce-400g"),
        ("aws-p4de", "efa-100g"),
        ("aws-p5", "efa-400g"),
        ("gcp-a3-mega", "tcpxo-200g"),
        ("alps", "slingshot-200g"),
        ("frontier", "slingshot-200g"),
    ],
)
def test_shipped_clusters_fill_their_adapters(engine: str, cluster: str, transport: str) -> None:
    # every GPU sends to its like in the other host: with GPUDirect nothing is narrower than the NICs
    keys = [f"cluster={cluster}", "cluster.hosts=2", f"transport={transport}", f"engine={engine}"]
    made = load("ideal-16", keys).scenario
    env = simpy.Environment()
    network = Fabric(env, made)
    gpus = made.cluster.gpus_per_host
    events = [network.send(gpu, gpus + gpu, 4 * SIZE) for gpu in range(gpus)]
    time = max(env.run(event) for event in events)
    rate = made.nics_per_host * made.link_rate / network.platform.costs.wire
    used = gpus * 4 * SIZE / (time - network.model.latency * 1e-12) / rate
    # packets have headers of their own with Ultra Ethernet, and its congestion control leaves some per cent unused
    assert used == pytest.approx(1.0, rel=0.01) if engine == "flow" else 0.95 < used < 1.005


def test_a_cable_that_fails_stops_one_nic_only() -> None:
    down = "fabric.failures=[{ link = 'host0/nic3-switch3', until = '50us' }]"
    several = ["cluster.gpus_per_host=8", "cluster.nics_per_host=8", "fabric.rails=true"]
    env = simpy.Environment()
    network = Fabric(env, load("ideal-16", ["engine=packet", "cluster.hosts=2", *several, down]).scenario)
    times = [env.run(event) for event in [network.send(gpu, 8 + gpu, 40_960) for gpu in range(8)]]
    assert [gpu for gpu, time in enumerate(times) if time > 1e-3] == [3]  # the timeout of the ideal transport


# ---- NICs that are lost ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lost", [{"nic": "host1/nic2"}, {"switch": "switch2"}, {"link": "host0/nic2->switch2"}])
def test_a_lost_rail_is_gone_round_over_nvlink(
    send: Callable[..., list[float]], engine: str, lost: dict[str, str]
) -> None:
    # GPU 2 of host 0 reaches that of host 1 by the rail of GPU 3, which then carries both
    fabric, slack = {"rails": True, "failures": [lost]}, 4 * SLACK if engine == "packet" else 0
    nics = {**EIGHT, **NVLINK, "nic_failover": True}
    assert send(engine, [(2, 10)], fabric=fabric, **nics) == pytest.approx([ALONE + LATENCY], rel=1e-9, abs=slack)
    times = send(engine, [(2, 10), (3, 11), (4, 12)], fabric=fabric, **nics)
    assert max(times[:2]) == pytest.approx(2 * ALONE + LATENCY, rel=1e-9, abs=slack)
    assert times[2] == pytest.approx(ALONE + LATENCY, rel=1e-9, abs=slack)
    narrow = send(engine, [(2, 10)], fabric=fabric, nvlink_rate="10GBps", **nics)
    assert narrow == pytest.approx([SIZE / 10e9 + LATENCY], rel=1e-9, abs=slack)


@pytest.mark.parametrize(("lost", "port", "taken"), [(2, 2, 1), (2, 0, 3), (0, 0, 1), (1, 1, 3), (3, 3, 0)])
def test_channels_of_a_lost_rail_take_those_left_by_their_number(lost: int, port: int, taken: int) -> None:
    fabric = {"failures": [{"nic": f"host1/nic{lost}"}]}
    four = {"gpus_per_host": 4, "nics_per_host": 4, "gpu": {**GPU, "nvlink_rate": "600GBps"}, "nic_failover": True}
    platform = Fabric(simpy.Environment(), ideal_scenario(2, cluster={**four, **NVLINK}, **fabric)).platform

    rails = [rail for turn in range(1, 4) if (rail := (lost + turn) % 4) != lost]
    assert rails[port % 3] == taken
    assert platform.nics_of(lost, 4 + lost, port) == (taken, 4 + taken)


def test_memory_of_a_host_is_reached_through_the_slot_of_the_nic_that_is_taken() -> None:
    fabric = {"failures": [{"nic": "host1/nic0"}]}
    four = {"gpus_per_host": 4, "nics_per_host": 4, "join": "pcie", "gpudirect": True, **NVLINK, "nic_failover": True}
    cluster = {**four, "gpu": {**GPU, "nvlink_rate": "600GBps"}}
    platform = Fabric(simpy.Environment(), ideal_scenario(2, cluster=cluster, **fabric)).platform

    path = platform.path(platform.host_memory(0), platform.host_memory(1))
    names = [platform.resources.names[resource] for resource, _ in path.hops]
    assert {name for name in names if "nic" in name} == {
        *("host0/nic1/pcie/up", "host0/nic1/pcie/down", "host0/nic1->switch0"),
        *("switch0->host1/nic1", "host1/nic1/pcie/up"),
    }
