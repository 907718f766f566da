"""What is known of topologies in closed form, by flows and by packets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.scenario.load import load

FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
RATE = 12.5e9  # bytes/s of all cables here
BOTH = pytest.mark.parametrize("engine", ["flow", pytest.param("packet", marks=pytest.mark.slow)])
LOSSLESS = (
    'fabric.switch={name = "deep", latency = "0ns", forwarding = "store-and-forward",'
    ' buffer = {per_port = "1GB"}, classes = 1}'
)


def build(hosts: int, fabric: str, engine: str, *more: str) -> Fabric:
    settings = [f"cluster.hosts={hosts}", f"fabric={fabric}", f"engine={engine}", LOSSLESS, *more]
    return Fabric(simpy.Environment(), load("ideal-16", settings, with_job=False), time_unit=1)


def throughput(fabric: Fabric, pairs: Sequence[tuple[int, int]], size: int) -> float:
    """Share of what hosts could inject that all pairs together have, until the last is through."""
    flows = np.array([(source, target, size, 0) for source, target in pairs], FLOWS)
    taken: Any = fabric.env.run(fabric.send_all(flows, [*range(len(flows))]))
    hosts = len({source for source, _ in pairs})
    return len(pairs) * size / (float(np.max(taken)) / 1e12) / (hosts * RATE)


# p = h = 2, a = 4: 9 groups of 8 hosts; each host sends to all hosts of the next group
ADVERSARIAL = [(host, (host + 8 + i) % 72) for host in range(72) for i in range(-(host % 8), 8 - host % 8)]
DRAGONFLY = "topology='dragonfly', hosts_per_switch=2, switches_per_group=4, global_cables=2"


@pytest.mark.slow
@BOTH
def test_a_dragonfly_under_adversarial_traffic(engine: str) -> None:
    # Kim, Dally, Scott and Abts (ISCA 2008), section 4: all a p = a h hosts of a group share one cable to the next
    # group, 1/(a h) of their rate. Valiant's routing spreads them over the cables to the g - 2 other groups, each of
    # which carries a detour's first part and its second: (g - 2) / (2 (g - 1)) of that rate at most, near one half.
    groups, connections, size = 9, 16, 400_000
    minimal = throughput(build(72, f"{{{DRAGONFLY}, routing='ecmp'}}", engine), ADVERSARIAL, size)
    each = size // connections
    valiant = throughput(build(72, f"{{{DRAGONFLY}, routing='valiant'}}", engine), ADVERSARIAL * connections, each)
    most = (groups - 2) / (2 * (groups - 1))
    assert minimal == pytest.approx(1 / 8, rel=0.05)
    assert 0.85 * most < valiant <= most  # draws are uneven, and the last flow counts


@BOTH
def test_a_ring_on_an_oversubscribed_leaf_spine_has_its_max_min_share(engine: str) -> None:
    # 2 leaves of 4 hosts and one spine at twice the rate of a host; every host sends to its twin on the other leaf
    fabric = build(8, "{topology='leaf-spine', hosts_per_leaf=4, spines=1, uplink_rate='200Gbps'}", engine)
    share = throughput(fabric, [(host, (host + 4) % 8) for host in range(8)], 4_000_000)
    assert share == pytest.approx(1 / 2, rel=0.02)


@BOTH
@pytest.mark.parametrize("sides", [(8,), (4, 4)])
def test_a_ring_along_a_torus_takes_its_closed_form(engine: str, sides: tuple[int, ...]) -> None:
    # neighbours of a snake through the torus are joined by a cable each, so that all steps have the full rate
    hosts, size = int(np.prod(sides)), 8_000_000
    fabric = build(hosts, f"{{topology='torus', dimensions={list(sides)}}}", engine)
    rows = np.arange(hosts).reshape(-1, sides[0])
    rows[1::2] = rows[1::2, ::-1]
    time = float(fabric.env.run(fabric.all_reduce(rows.ravel().tolist(), size)))
    assert time / 1e12 == pytest.approx(2 * (hosts - 1) / hosts * size / RATE, rel=0.03)


@BOTH
def test_an_all_reduce_dimension_by_dimension_takes_its_closed_form(engine: str) -> None:
    # 4 x 4: reduce-scatter along rows, all-reduce of a quarter along columns, all-gather along rows
    fabric, size = build(16, "{topology='torus', dimensions=[4, 4]}", engine), 8_000_000
    grid = np.arange(16).reshape(4, 4)
    begin = fabric.env.now
    for call, lines, part in (
        (fabric.reduce_scatter, grid, size),
        (fabric.all_reduce, grid.T, size // 4),
        (fabric.all_gather, grid, size),
    ):
        fabric.env.run(simpy.AllOf(fabric.env, [call(line.tolist(), part) for line in lines]))
    closed = (3 / 4 + 2 * 3 / 4 / 4 + 3 / 4) * size / RATE
    assert (fabric.env.now - begin) / 1e12 == pytest.approx(closed, rel=0.03)


def test_ecmp_spreads_as_balls_in_bins() -> None:
    # 4,000 connections over 16 spines: each has 250, with the variance of a binomial
    fabric = build(2, "{topology='leaf-spine', hosts_per_leaf=1, spines=16}", "flow")
    first = [fabric.platform.path(0, 1, port).wires[1] for port in range(4000)]
    counts = np.bincount(np.unique(first, return_inverse=True)[1], minlength=16)
    chi = float(((counts - 250) ** 2 / 250).sum())
    assert 4.6 < chi < 32.8  # chi-square of 15 degrees of freedom: 0.5 % and 99.5 %


@BOTH
def test_a_multi_plane_adapter_uses_both_planes(engine: str) -> None:
    fabric = build(2, "{topology='multi-plane', planes=2, hosts_per_leaf=1, spines=1}", engine)
    one = throughput(fabric, [(0, 1)], 4_000_000)
    fabric = build(2, "{topology='multi-plane', planes=2, hosts_per_leaf=1, spines=1}", engine)
    many = throughput(fabric, [(0, 1)] * 64, 400_000)
    assert one == pytest.approx(1, rel=0.02)
    assert 1.4 < many <= 2


EVERY = [
    "{topology='single-switch'}",
    "{topology='leaf-spine', hosts_per_leaf=4, spines=2}",
    "{topology='fat-tree', tiers=2}",
    "{topology='multi-plane', hosts_per_leaf=4, spines=2}",
    "{topology='dragonfly', hosts_per_switch=2, switches_per_group=2, global_cables=2}",
    "{topology='dragonfly-plus', hosts_per_leaf=2, leaves_per_group=2, spines_per_group=2, global_cables=2}",
    "{topology='torus', dimensions=[4, 4]}",
    "{topology='mesh', dimensions=[4, 4]}",
    "{topology='hammingmesh', board=[2, 2], boards=[2, 2]}",
    "{topology='full-mesh', hosts_per_switch=4}",
    "{topology='optical-circuits', hosts_per_pod=4}",
]


@BOTH
@pytest.mark.parametrize("fabric", EVERY)
def test_rings_run_on_every_topology_and_send_what_they_must(fabric: str, engine: str) -> None:
    made, size = build(16, fabric, engine), 8_000_000
    time = float(made.env.run(made.all_reduce(range(16), size))) / 1e12
    links = made.links()
    sent = [use.payload for name, use in links.items() if name.startswith("host") and "->" in name]
    assert sum(sent) == pytest.approx(2 * 15 * size, rel=1e-6)
    assert time >= 0.999 * 2 * 15 / 16 * size / RATE  # each rank sends that over a cable of the rate of one at least
    assert time == pytest.approx(max(use.busy for name, use in links.items() if "->" in name) / 1e12, rel=0.05)


@BOTH
@pytest.mark.parametrize("fabric", EVERY)
def test_reduction_in_switches_runs_on_every_topology(fabric: str, engine: str) -> None:
    switches = ["collectives.algorithm={all_reduce='collnet_chain'}", "collectives.chunk=500kB"]
    made, size = build(16, fabric, engine, *switches), 8_000_000
    time = float(made.env.run(made.all_reduce(range(16), size))) / 1e12
    if engine == "packet":
        fluid = build(16, fabric, "flow", *switches)
        ratio = time * 1e12 / float(fluid.env.run(fluid.all_reduce(range(16), size)))
        assert 0.97 < ratio < 1.15  # queues serve who comes first: near and far switches have no equal shares in a grid
    sent = [use.payload for name, use in made.links().items() if name.startswith("host") and "->" in name]
    assert sent == [pytest.approx(size)] * 16  # each rank sends its buffer once, whatever the network
    assert size / (4 * RATE) <= time <= 2 * 16 * size / RATE  # at worst all cross one cable to the root and back


@pytest.mark.slow
@pytest.mark.parametrize("fabric", EVERY)
def test_rings_take_as_long_by_packets(fabric: str) -> None:
    times = []
    for engine in ("flow", "packet"):
        made = build(16, fabric, engine)
        times.append(float(made.env.run(made.all_reduce(range(16), 8_000_000))))
    assert times[1] == pytest.approx(times[0], rel=0.1)


@pytest.mark.parametrize("gpus", [8, 72, 256, 576])
def test_a_scale_up_domain_is_as_wide_as_a_rack(gpus: int) -> None:
    # within a rack data goes over NVLink alone; to another rail of another rack it is forwarded there first
    rack = ["cluster=gb200-nvl72", "cluster.pxn=true", "cluster.hosts=2", "transport=rdma-400g"]
    more = [f"cluster.gpus_per_host={gpus}", f"cluster.nics_per_host={gpus}", "fabric={topology='rail-only'}"]
    fabric = Fabric(simpy.Environment(), load("ideal-16", [*rack, *more], with_job=False))
    names = fabric.platform.resources.names
    within = [names[hop] for hop, _ in fabric.platform.path(0, gpus - 1).hops]
    assert within == ["host0/gpu0/nvlink/up", f"host0/gpu{gpus - 1}/nvlink/down"]
    across = [names[hop] for hop, _ in fabric.platform.path(0, 2 * gpus - 1).hops]
    assert across[:2] == within
    rail = [f"host{host}/nic{gpus - 1}" for host in (0, 1)]
    assert across[2].startswith(f"{rail[0]}->leaf")
    assert across[-1].endswith(f"->{rail[1]}")
    size, gpu = 1 << 28, fabric.scenario.cluster.gpu
    assert gpu.nvlink_rate is not None
    time = float(fabric.env.run(fabric.send(0, gpus - 1, size)))
    assert time == pytest.approx(size / (gpu.nvlink_rate * gpu.nvlink_efficiency), rel=0.05)
