"""What fails while transfers run is routed around, in both engines; what cannot be is told to whoever waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

import fabricsim as fs
from fabricsim import FabricsimError, SimulationError, load
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.failures import ROUTING, SUBNET_MANAGER
from fabricsim.engine.flow.outages import Timer
from fabricsim.results.traffic import DEMAND
from fabricsim.topology.targets import find

Process = Generator[simpy.Event, Any, None]

MIB = 2**20
ENGINES = ("flow", "packet")
LEAVES = 'fabric={topology="leaf-spine",hosts_per_leaf=2,spines=2}'
RDMA = 4.294967296  # s: 4.096 us * 2^20
KNOWN = 0.9  # s: when routing knows


def _fabric(engine: str, *settings: str, transport: str = "roce-100g", hosts: int = 4) -> Fabric:
    given = [f"engine={engine}", f"cluster.hosts={hosts}", f"transport={transport}", *settings]
    return Fabric(simpy.Environment(), load("ideal-16", given))


def _at(fabric: Fabric, time: float, *deeds: Callable[[], None]) -> None:
    def process() -> Process:
        yield fabric.env.timeout(time)
        for deed in deeds:
            deed()

    fabric.env.process(process())


def _said(fabric: Fabric, event: simpy.Event) -> tuple[str, float]:
    with pytest.raises(SimulationError) as caught:
        fabric.env.run(event)
    return str(caught.value), fabric.env.now


# ---- a link that fails in the middle of an all-reduce ----------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("transport", "timeout"), [("roce-100g", RDMA), ("rdma-100g", RDMA), ("ideal-100g", 0.8), ("tcp-10g", 0.8)]
)
def test_an_all_reduce_goes_on_over_another_link_of_a_fat_tree(engine: str, transport: str, timeout: float) -> None:
    def took(link: str = "", begin: str = "0s", size: int = 64 * MIB) -> tuple[float, Fabric]:
        failures = f',failures=[{{link="{link}",from="{begin}"}}]' if link else ""
        fabric = _fabric(engine, f'fabric={{topology="fat-tree",k=4{failures}}}', transport=transport, hosts=8)
        return float(fabric.env.run(fabric.all_reduce(range(8), size))), fabric

    size = 8 * MIB if transport == "tcp-10g" else 64 * MIB
    whole, built = took(size=size)
    link = next(
        name
        for name, use in built.links().items()
        if name.startswith("edge0->") and "host" not in name and use.payload > 0
    )
    detour, _ = took(link, size=size)
    hit, fabric = took(link, f"{round(whole / 2 * 1e6)}us", size=size)
    known = SUBNET_MANAGER / 1e12 if transport == "rdma-100g" else KNOWN
    assert fabric.failures.reconvergence == known * 1e12
    # The fluid bound of what is left is half of the call over the links that are left; a timer that doubles is at
    # most as long as what it has waited already.
    assert max(whole, whole / 2 + known) <= hit <= 1.01 * (whole + detour) / 2 + known + timeout
    sent, had = (
        sum(use.payload for name, use in each.links().items() if name.startswith("host") and "->" in name)
        for each in (fabric, built)
    )
    assert sent == pytest.approx(had, rel=1e-9)  # every byte once: what is sent again does not count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fabric", "name"),
    [
        ('{topology="torus",dimensions=[2,4]}', "router0-router2"),  # dimension order: answers have ways of their own
        (
            '{topology="dragonfly",hosts_per_switch=1,switches_per_group=2,global_cables=1,routing="valiant"}',
            "switch0-switch1",
        ),
        ('{topology="multi-plane",planes=2,hosts_per_leaf=4,spines=1,link_rate="50Gbps"}', "leaf0"),
    ],
)
def test_engines_agree_on_longer_ways_and_planes(fabric: str, name: str) -> None:
    took = []
    for engine in ENGINES:
        network = _fabric(engine, f"fabric={fabric}", transport="ideal-100g", hosts=6 if "dragonfly" in fabric else 8)
        _at(network, 5e-4, lambda network=network: network.fail(name))  # type: ignore[misc]  # of a loop
        took.append(network.env.run(network.all_reduce(range(6), 16 * MIB)))
    assert took[0] > KNOWN
    assert took[1] == pytest.approx(took[0], rel=0.005)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plane_that_is_lost_leaves_half_the_rate(engine: str) -> None:
    def took(*more: str) -> float:
        fabric = _fabric(engine, LEAVES, *more, transport="ideal-100g")
        sends = [fabric.send(source, source + 2, 8 * MIB, port=port) for source, port in ((0, 0), (1, 1))]
        fabric.env.run(fabric.env.all_of(sends))
        return fabric.env.now

    assert took('fabric.failures=[{switch="spine1"}]') == pytest.approx(2 * 8 * MIB / 12.5e9, rel=0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cable_that_comes_back_before_routing_knows_is_used_with_the_next_timeout(engine: str) -> None:
    failures = 'fabric.failures=[{link="host0-switch0",from="200us",until="400us"}]'
    fabric = _fabric(engine, failures, transport="ideal-100g", hosts=2)
    size = 4 * MIB  # 336 us: the sender has sent all before the cable is back
    assert fabric.env.run(fabric.send(0, 1, size)) == pytest.approx(0.1 + size / 12.5e9, rel=0.01)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_timeout_is_waited_for_by_what_still_sends_when_a_cable_is_back(engine: str) -> None:
    failures = 'fabric.failures=[{link="host0-switch0",from="200us",until="300us"}]'
    fabric = _fabric(engine, failures, transport="ideal-100g", hosts=2)
    size = 16 * MIB
    assert fabric.env.run(fabric.send(0, 1, size)) == pytest.approx(100e-6 + size / 12.5e9, rel=0.01)


@pytest.mark.parametrize("engine", ENGINES)
def test_connections_go_back_to_a_cable_that_is_up_again(engine: str) -> None:
    failures = 'fabric.failures=[{switch="spine0",until="5ms"}]'
    fabric = _fabric(engine, LEAVES, failures, "fabric.reconvergence=1ms")
    over = {name: 0.0 for name in fabric.links() if name.endswith("spine0")}
    told = []
    for begin in (1e-3, 7e-3):
        fabric.env.run(until=begin)
        sends = [fabric.send(0, 2, MIB, port=port) for port in range(8)]
        fabric.env.run(fabric.env.all_of(sends))
        told.append({name: fabric.links()[name].payload for name in over})
    assert sum(told[0].values()) == 0
    assert sum(told[1].values()) > 0


# ---- what processes do -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_have_things_fail_and_come_back(engine: str) -> None:
    fabric = _fabric(engine, "fabric.reconvergence=1ms", transport="ideal-100g", hosts=2)
    size, env = 125_000_000, fabric.env  # 10 ms
    sent = fabric.send(0, 1, size)
    _at(fabric, 2e-3, lambda: fabric.fail("host0-switch0"))
    _at(fabric, 50e-3, lambda: fabric.restore("host0-switch0"))
    assert env.run(sent) == pytest.approx(0.102 + 0.0082, rel=0.02)  # with the timeout that follows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["host0-switch0", "host0->switch0", "host0", "host0/nic0", "switch0", "host*-switch?"])
def test_rates_change(engine: str, name: str) -> None:
    fabric = _fabric(engine, transport="ideal-100g", hosts=2)
    fabric.set_rate(name, "25Gbps")
    slow = fabric.env.run(fabric.send(0, 1, MIB))
    fabric.restore(name)
    fast = fabric.env.run(fabric.send(0, 1, MIB))
    assert slow / fast == pytest.approx(4, rel=0.02)


def test_bit_errors_begin_and_end() -> None:
    fabric = _fabric("packet", transport="ideal-100g", hosts=2)
    links = fabric.world.network.links["errors"]
    fabric.set_loss("host0-switch0", 1e-6)
    fabric.env.run(fabric.send(0, 1, 8 * MIB))
    assert links.sum() > 0
    fabric.restore("host0-switch0")
    before = links.sum()
    fabric.env.run(fabric.send(0, 1, 8 * MIB))
    assert links.sum() == before


def test_in_the_flow_engine_a_lossy_cable_carries_less() -> None:
    fabric = _fabric("flow", transport="ideal-100g", hosts=2)
    clean = fabric.env.run(fabric.send(0, 1, 8 * MIB))
    fabric.set_loss("host0-switch0", 1e-6)
    arrive = (1 - 1e-6) ** (8 * fabric.world.packet)
    assert fabric.env.run(fabric.send(0, 1, 8 * MIB)) == pytest.approx(clean / arrive, rel=1e-3)


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda fabric: fabric.fail("gpu77"), "there is no part of the fabric 'gpu77'; GPUs are gpu0 to gpu3"),
        (lambda fabric: fabric.fail("leaf9"), "there is no part of the fabric 'leaf9'; did you mean"),
        (lambda fabric: fabric.set_rate("gpu0", "1Gbps"), "gpu0 has no cables that are slow or lossy: name its NIC"),
        (lambda fabric: fabric.set_rate("host0", 0), "give one above 0, or fail"),
        (lambda fabric: fabric.set_loss("host0", 0.1), "the bit error rate of host0: 0.1 loses over half"),
    ],
)
def test_what_cannot_happen_is_refused(deed: Callable[[Fabric], None], said: str) -> None:
    with pytest.raises(FabricsimError, match=said):
        deed(_fabric("flow", LEAVES))


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("switch", "host1", "there is no switch 'host1'; it is a host: write host = 'host1'"),
        ("host", "spine0", "there is no host 'spine0'; it is a switch: write switch = 'spine0'"),
        ("switch", "spin0", "did you mean 'spine0'"),
        ("link", "xyz", "their names are such as host0-"),
    ],
)
def test_a_name_of_another_kind_is_told(kind: str, name: str, said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        find(_fabric("flow", LEAVES).platform, name, kind)


def test_the_note_of_a_short_outage_leaves_routing_out() -> None:
    short = [{"link": "host3-*", "from": "310ms", "until": "320ms"}]
    notes = " ".join(fs.simulate("what-if-ring", overrides={"fabric.failures": short}).notes)

    assert "sent again after a retransmission timeout" in notes
    assert "is the longer wait" not in notes


def test_a_folded_fabric_is_refused() -> None:
    fabric = _fabric("flow")
    fabric.wiring.folding = object()  # type: ignore[assignment]  # anything
    with pytest.raises(SimulationError, match=r'on a folded fabric.*set folding = "off"'):
        fabric.fail("host0")


# ---- what no way is left for ---------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_partition_names_ranks_and_cut_and_a_process_goes_on(engine: str) -> None:
    fabric = _fabric(engine, LEAVES, "fabric.reconvergence=1ms", transport="ideal-100g")
    log: list[str] = []

    def user() -> Process:
        for ranks in ([0, 1, 2, 3], [2, 3]):
            try:
                yield fabric.all_reduce(ranks, 64 * MIB)
                log.append("done")
            except SimulationError as error:
                log.append(str(error))

    _at(fabric, 1e-3, lambda: fabric.fail("leaf0-spine0"), lambda: fabric.fail("spine1-leaf0"))
    fabric.env.run(fabric.env.process(user()))
    assert (
        log[0].startswith("nothing is received any more from rank 3 (host3) to rank 0 (host0)")
        or "rank 1 (host1) to rank 2 (host2)" in log[0]
    )
    assert "->spine0 is down for good since 1 ms" in log[0] or "spine0->leaf0 is down" in log[0]
    assert "spine1" in log[0]
    assert log[1] == "done"
    fabric.env.run()  # ends


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("what", "ends"),
    [
        ('switch="spine0"', r"leaf[01] to spine0, leaf[01] to spine0"),
        ('link="leaf0-spine0"', "leaf0 to spine0"),
        ('link="host0-leaf0",from="1ms"', r"rank 0 \(host0\) to leaf0"),
    ],
)
def test_a_tree_of_switches_that_is_cut_is_a_partition(engine: str, what: str, ends: str) -> None:
    algorithm = "collectives.algorithm.all_reduce=collnet_chain"
    failures = f"fabric.failures=[{{{what}}}]"
    fabric = _fabric(engine, LEAVES, failures, algorithm, transport="ideal-100g")
    said, _ = _said(fabric, fabric.all_reduce(range(4), 64 * MIB))
    cable = "host0->leaf0" if "host0" in what else "leaf0->spine0"
    cut = rf"{cable} is down for good since {'1 ms' if 'host0' in what else '0 s'}"
    if "switch" in what:
        cut = cut.replace("leaf0", "leaf[01]")
    assert re.search(rf"from {ends}: no way is left, as {cut}", said), said
    assert said.endswith("or choose an algorithm by which no switch reduces (collectives.algorithm)")
    assert "/reducer" not in said
    beside = fabric.env.run(fabric.send(1, 3, MIB))  # by another spine
    assert beside < 1


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "gone"), [("gpu3", [3]), ("host3", [3])])
def test_whoever_waits_for_a_gpu_that_is_gone_is_told_at_once(engine: str, name: str, gone: list[int]) -> None:
    fabric = _fabric(engine, LEAVES, transport="ideal-100g")
    demands = np.zeros(1, DEMAND)
    demands["source"], demands["target"], demands["bytes"] = 2, 3, 64 * MIB
    lost = [fabric.all_reduce(range(4), 64 * MIB), fabric.send(3, 0, 64 * MIB), fabric.send_all(demands)]
    beside = fabric.send(0, 1, 64 * MIB)
    _at(fabric, 1e-3, lambda: fabric.fail(name))
    for event in lost:
        event.defused = True
    fabric.env.run(until=1.1e-3)
    assert [event.triggered and str(event.value) for event in lost] == [
        f"{name} is down since 1 ms, which ends a job (fabricsim goodput tells what that costs)"
    ] * 3
    assert fabric.env.run(beside) > 0
    with pytest.raises(SimulationError, match=rf"rank {gone[0]} \(host3\) cannot take part: {name} is down"):
        fabric.send(0, 3, 1)
    fabric.restore(name)
    fabric.env.run(until=10.0)
    assert fabric.env.run(fabric.all_reduce(range(4), MIB)) > 0


def test_flows_are_given_up_after_three_timeouts() -> None:
    fabric = _fabric("flow", hosts=2)
    sent = fabric.send(0, 1, 64 * MIB)
    _at(fabric, 1e-3, lambda: fabric.fail("host0-switch0"))
    assert _said(fabric, sent)[1] == pytest.approx(3 * RDMA + 1e-3, abs=0.02)


# ---- timers and defaults -------------------------------------------------------------------------------


def test_timers_double_up_to_their_bound() -> None:
    timer = Timer(100, 400)
    fires = [100, 300, 700, 1100, 1500]
    assert [timer.expired(0, times) for times in (1, 2, 3, 4, 5)] == fires
    assert [timer.expired(0, 2, since) for since in (0, 99, 100, 350, 700)] == [300, 300, 700, 1100, 1500]
    for time in range(1, 1500):
        assert timer.after(0, time) == min(fire for fire in fires if fire >= time)
    assert timer.after(50, 10**15) - 10**15 < 400


@pytest.mark.slow
def test_routing_knows_sooner_or_later() -> None:
    assert _fabric("flow").failures.reconvergence == ROUTING
    assert _fabric("flow", transport="rdma-100g").failures.reconvergence == SUBNET_MANAGER
    soon = _fabric("flow", "fabric.reconvergence=10us").failures
    assert (soon.reconvergence, soon.local_repair) == (10_000_000, 10_000_000)


# ---- direct networks -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, "reference"])
@pytest.mark.parametrize(
    ("topology", "dimensions", "target", "detour"),
    [("torus", [5], 2, "router4->router3"), ("mesh", [2, 2], 3, "router0->router2")],
)
def test_what_a_direct_host_forwards_stops_with_it(
    engine: str, topology: str, dimensions: list[int], target: int, detour: str
) -> None:
    failures = '{host="host1",from="10us",until="30s"}'
    fabric = f'fabric={{topology="{topology}",dimensions={dimensions},failures=[{failures}],reconvergence="1ms"}}'
    hosts = 5 if topology == "torus" else 4
    network = _fabric(engine, fabric, "transport.mtu=32768", transport="ideal-100g", hosts=hosts)
    size = 12_500_000
    took = network.env.run(network.send(0, target, size))
    assert took == pytest.approx(0.1 + size / 12.5e9, rel=0.01)  # by the other way, with the first timeout
    assert network.links()[detour].payload == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_direct_host_forwards_though_its_nic_or_gpu_is_gone(engine: str) -> None:
    failures = '{nic="host1"},{gpu="gpu1"}'
    torus = f'fabric={{topology="torus",dimensions=[5],failures=[{failures}]}}'
    fabric = _fabric(engine, torus, transport="ideal-100g", hosts=5)
    fabric.env.run(fabric.send(0, 2, MIB))
    assert fabric.links()["router0->router1"].payload == MIB


# ---- given paths ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, "reference"])
def test_what_is_routed_around_a_given_path_takes_no_path_of_another_port(engine: str, tmp_path: Path) -> None:
    ends = ["host0-leaf0", "host1-leaf1", "leaf0-s0", "leaf0-s1", "leaf1-s0", "leaf1-s1"]
    cables = [*ends, "leaf2-s1", "leaf2-s2", "leaf1-s2"]
    rows = [f"{cable.replace('-', ',')},100,0" for cable in cables]
    (tmp_path / "cables.csv").write_text("\n".join(["a,b,gbps,delay_ns", *rows]), encoding="utf-8")
    ways = ["host0-leaf0-s0-leaf1-host1", "host0-leaf0-s1-leaf2-s2-leaf1-host1"]
    (tmp_path / "paths.csv").write_text("\n".join(["src,dst,node_path", *(f"0,1,{way}" for way in ways)]))
    files = f"links='{tmp_path}/cables.csv',paths='{tmp_path}/paths.csv'"
    failures = 'failures=[{link="leaf0-s0",from="1ms",until="60ms"}],reconvergence="1ms"'
    told = (f"fabric={{topology='file',{files},{failures}}}", "transport.mtu=32768")
    fabric = _fabric(engine, *told, transport="ideal-100g", hosts=2)

    def carries(port: int) -> set[str]:
        before = {name: use.payload for name, use in fabric.links().items()}
        fabric.env.run(fabric.send(0, 1, MIB, port=port))
        return {name for name, use in fabric.links().items() if "->" in name and use.payload > before[name]}

    def crossed(way: str) -> set[str]:
        return {f"{here}->{there}" for here, there in pairwise(way.split("-"))}

    for begin, ways_by_port in (
        (0.1e-3, ways),
        (5e-3, ["host0-leaf0-s1-leaf1-host1", ways[1]]),  # the only shortest way that is left
        (70e-3, ways),
    ):
        fabric.env.run(until=begin)
        assert [carries(port) for port in (0, 1)] == [*map(crossed, ways_by_port)]
