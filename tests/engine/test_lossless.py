"""Networks without loss: which are refused before a run, and that those which are not refused never deadlock."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.errors import ScenarioError, SimulationError
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario

FLOWS = np.dtype([("source", np.int64), ("target", np.int64), ("bytes", np.int64), ("start", np.int64)])
PFC = 'pfc = {above = "12kB", below = "8kB", headroom = "60kB", classes = [0, 1, 2, 3, 4, 5, 6, 7]}'
CREDITS = 'credits = {per_class = "8KiB"}'
TORUS = "fabric={topology='torus', dimensions=[4, 4]}"


def fabric_of(*settings: str, control: str = CREDITS, engine: str = "packet") -> Fabric:
    return Fabric(simpy.Environment(), scenario_of(*settings, control=control, engine=engine), time_unit=1)


@cache
def scenario_of(*settings: str, control: str, engine: str) -> Scenario:
    kind = 'name = "lossless", latency = "100ns", forwarding = "store-and-forward"'
    switch = f"fabric.switch={{{kind}, classes = 8, {control}}}"
    return load("ideal-16", [f"engine={engine}", *settings, switch], with_job=False).scenario


def send(fabric: Fabric, pairs: list[tuple[int, int]], size: int) -> np.ndarray:
    flows = np.array([(source, target, size, 0) for source, target in pairs], FLOWS)
    done: Any = fabric.env.run(fabric.send_all(flows, [0] * len(flows)))
    return np.asarray(done)


@pytest.mark.parametrize("control", [PFC, CREDITS])
def test_a_torus_is_refused_without_lanes_and_the_circle_named(control: str) -> None:
    with pytest.raises(SimulationError, match="cyclic buffer dependency over") as refused:
        fabric_of(TORUS, control=control)
    circle = str(refused.value).partition("over ")[2].partition(", and ")[0].split(", ")
    ends = [wire.split("->") for wire in circle]
    assert all(here[1] == there[0] for here, there in zip(ends, ends[1:] + ends[:1], strict=True))
    assert "fabric.virtual_lanes = 3" in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("control", [PFC, CREDITS])
def test_a_torus_with_lanes_delivers_what_deadlocks_without(control: str) -> None:
    ring = ["fabric={topology='torus', dimensions=[8]}", "cluster.hosts=8"]
    around = [(host, (host + 3) % 8) for host in range(8)]
    with pytest.raises(SimulationError, match="deadlock: cyclic buffer dependency"):
        send(fabric_of(*ring, "fabric.deadlocks=allow", control=control), around, 400_000)
    assert (send(fabric_of(*ring, "fabric.virtual_lanes=2", control=control), around, 400_000) > 0).all()


def test_too_few_lanes_or_classes_are_refused() -> None:
    with pytest.raises(SimulationError, match="in each of 2 virtual lanes the way from host"):
        fabric_of(TORUS, "fabric.virtual_lanes=2")
    with pytest.raises(ScenarioError, match="3 lanes are more than the 2 classes of the switch"):
        fabric_of(TORUS, "fabric.virtual_lanes=3", control=PFC.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 1]"))
    dragonfly = "{topology='dragonfly', hosts_per_switch=2, switches_per_group=2, global_cables=1, routing='ugal'}"
    with pytest.raises(ScenarioError, match="does not go with 'ugal'"):
        fabric_of(f"fabric={dragonfly}", "fabric.virtual_lanes=3")


@pytest.mark.parametrize(
    "fabric",
    [
        "{topology='mesh', dimensions=[4, 4]}",
        "{topology='leaf-spine', hosts_per_leaf=4, spines=2}",
        "{topology='fat-tree', k=4, routing='d-mod-k'}",
        "{topology='dragonfly-plus', hosts_per_leaf=2, leaves_per_group=2, spines_per_group=2, global_cables=2}",
        "{topology='full-mesh', hosts_per_switch=4}",
        "{topology='single-switch'}",
    ],
)
def test_networks_without_circles_are_accepted(fabric: str) -> None:
    fabric_of(f"fabric={fabric}")


def test_a_lossy_torus_is_not_refused() -> None:
    fabric_of(TORUS, control='buffer = {per_port = "100kB"}')


def random_network(seed: int, folder: Path) -> list[str]:
    """Draw a connected graph of switches with a host each, its routing and lanes.

    All are written to one file: most scenarios are then those of others, and are loaded once.
    """
    draw = random.Random(seed)  # noqa: S311  a network to try
    switches = draw.randint(3, 8)
    graph = nx.gnm_random_graph(switches, draw.randint(switches, 2 * switches), seed=seed)
    graph.add_edges_from((n, draw.randrange(n)) for n in range(1, switches))
    cables = ["a,b,gbps,delay_ns", *(f"{n},{switches + n},100,50" for n in range(switches))]
    cables += [f"{switches + a},{switches + b},100,50" for a, b in graph.edges]
    (folder / "cables.csv").write_text("\n".join(cables) + "\n", encoding="utf-8")
    routing, lanes = draw.choice(["ecmp", "d-mod-k"]), draw.choice([1, 1, 2, 4])
    routing = "ecmp" if lanes > 1 else routing
    file = f'topology = "file", links = "{folder}/cables.csv", routing = "{routing}", virtual_lanes = {lanes}'
    return [f"cluster.hosts={switches}", f"fabric={{{file}}}"]


def deadlocks(fabric: Fabric) -> bool:
    """Send between all pairs at once; tell whether the run ended in a deadlock."""
    hosts = range(fabric.scenario.cluster.hosts)
    try:
        send(fabric, [(a, b) for a in hosts for b in hosts if a != b], 40_000)
    except SimulationError as error:
        if "deadlock: cyclic buffer dependency" not in str(error):
            raise
        return True
    return False


@pytest.mark.slow
def test_no_random_lossless_network_that_is_accepted_deadlocks(tmp_path: Path) -> None:
    """All pairs send at once through buffers of two packets."""
    refused, networks = 0, 400
    for seed in range(networks):
        try:
            fabric = fabric_of(*random_network(seed, tmp_path), control=CREDITS if seed % 2 else PFC)
        except SimulationError:
            refused += 1
        else:
            assert not deadlocks(fabric), seed
    assert 0.1 * networks < refused < 0.7 * networks


@pytest.mark.parametrize("control", [PFC, CREDITS])
def test_sums_in_switches_of_a_tree_are_no_circle(control: str) -> None:
    tree = "fabric={topology='leaf-spine', hosts_per_leaf=4, spines=2}"
    fabric = fabric_of(tree, "collectives.algorithm={all_reduce='collnet_chain'}", control=control)
    assert fabric.env.run(fabric.all_reduce(range(16), 200_000)) > 0
