"""A fabric from a file of cables, and given paths over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from pydantic import ValidationError

from fabricsim.errors import SimulationError, TraceError
from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Cable, Ends
from fabricsim.topology.platform import Platform
from tests.reference.platforms import build
from tests.reference.scenarios import ideal_scenario

Make = Callable[..., Platform]

SQUARE = (
    "a,b,gbps,delay_ns\n0,4,100,10\n1,4,100,20\n2,7,50,30\n3,7,100,40\n7,5,100,50\n4,5,200,60\n4,6,100,70\n6,7,100,80\n"
)
"""Two edge switches, 4 and 7, of two hosts each, and two switches between them, 5 and 6."""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Builds a platform of the cables in a text, with given paths in another."""

    def _(cables: str = SQUARE, hosts: int = 4, given: str | None = None, **keys: Any) -> Platform:  # noqa: ANN401
        (tmp_path / "cables.csv").write_text(cables, encoding="utf-8")
        update = {"topology": "file", "links": str(tmp_path / "cables.csv"), **keys.pop("fabric", {})}
        if given is not None:
            (tmp_path / "paths.csv").write_text(given, encoding="utf-8")
            update["paths"] = str(tmp_path / "paths.csv")
        plain = ideal_scenario(hosts, **keys)
        return build(plain.model_copy(update={"fabric": fabric_of(update)}))

    return _


def stops(platform: Platform, wires: list[int]) -> list[str]:
    table = platform.wires
    return [platform.nodes[node] for node in (table.source[wires[0]], *table.target[wires])]


def test_edges_carry_rate_and_delay(tmp_path: Path) -> None:
    (tmp_path / "cables.csv").write_text(SQUARE, encoding="utf-8")
    graph = fabric_of({"topology": "file", "links": str(tmp_path / "cables.csv")}).network(Ends(4)).graph()
    assert list(graph) == ["host0", "host1", "host2", "host3", "switch4", "switch5", "switch6", "switch7"]
    assert graph.edges["host2", "switch7"] == {"cable": Cable(6.25e9, delay=30_000), "times": 1}
    assert graph.edges["switch4", "switch5"] == {"cable": Cable(25e9, delay=60_000), "times": 1}
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == 8


def test_named_switches_stand_in_natural_order(tmp_path: Path) -> None:
    cables = [("host1", "leaf10"), ("host0", "leaf2"), ("leaf10", "core"), ("leaf2", "core")]
    text = "a,b,gbps,delay_ns\n" + "".join(f"{a},{b},1,1\n" for a, b in cables)
    (tmp_path / "cables.csv").write_text(text, encoding="utf-8")
    graph = fabric_of({"topology": "file", "links": str(tmp_path / "cables.csv")}).network(Ends(2)).graph()
    assert list(graph) == ["host0", "host1", "core", "leaf2", "leaf10"]


def test_a_file_is_needed() -> None:
    with pytest.raises(ValidationError, match="links"):
        fabric_of({"topology": "file"})


def test_rates_and_delays_of_the_file_count(make: Make) -> None:
    platform = make(switch_latency="200ns", fabric={"routing": "d-mod-k"})
    path = platform.path(0, 2)
    wires = [wire for wire, _ in path.hops]
    assert stops(platform, wires) == ["host0", "switch4", "switch5", "switch7", "host2"]
    assert [platform.resources.capacities[wire] for wire in wires] == [12.5e9, 25e9, 12.5e9, 6.25e9]
    assert path.latency == 10_000 + 60_000 + 50_000 + 30_000 + 3 * 200_000


def test_unjoined_hosts_are_named(make: Make) -> None:
    platform = make("a,b,gbps,delay_ns\n0,2,1,1\n1,3,1,1\n", 2)
    with pytest.raises(SimulationError, match="no cable leads from host0 to host1: join their switches"):
        platform.path(0, 1)
    assert platform.next_hops().group_of.tolist() == [0, -1, -1, 1]


def test_hosts_back_to_back_reach_each_other(make: Make) -> None:
    platform = make("a,b,gbps,delay_ns\n0,1,1,1\n2,3,1,1\n", 3)
    assert stops(platform, platform.route_links(0, 1, 0)) == ["host0", "host1"]
    assert platform.next_hops().group_of.tolist() == [-1, -1, 0]  # the switch has host 2 alone


# ---- given paths --------------------------------------------------------------------------------

GIVEN = "id,src,dst,hops,node_path\n1,0,2,4,0-4-6-7-2\n2,1,3,4,1-4-5-7-3\n3,0,2,4,0-4-5-7-2\n"


@pytest.mark.parametrize("routing", ["ecmp", "d-mod-k"])
def test_connections_take_their_given_paths_by_port(make: Make, routing: str) -> None:
    platform = make(given=GIVEN, fabric={"routing": routing})
    ways = [stops(platform, [wire for wire, _ in platform.path(0, 2, port).hops]) for port in range(2)]
    assert [way[2] for way in ways] == ["switch6", "switch5"]
    assert stops(platform, platform.route_links(1, 3, 0)) == ["host1", "switch4", "switch5", "switch7", "host3"]


def test_what_is_not_given_is_routed(make: Make) -> None:
    platform, plain = make(given=GIVEN), make()
    for source, target, port in [(2, 0, 0), (0, 2, 2), (1, 3, 1), (0, 3, 0), (0, 1, 0)]:
        assert platform.path(source, target, port) == plain.path(source, target, port)


def test_a_given_path_may_be_a_detour(make: Make) -> None:
    longer = SQUARE + "8,4,100,1\n8,5,100,1\n"
    assert len(make(longer).path(0, 2).hops) == 4
    assert len(make(longer, given="src,dst,node_path\n0,2,0-4-8-5-7-2\n").path(0, 2).hops) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,2,0-4-9-7-2", r"paths\.csv:2: the fabric has no node switch9; mend node_path"),
        ("0,2,0-4-7-2", r"paths\.csv:2: no cable joins switch4 and switch7; mend node_path"),
        ("0,1,0-1", r"paths\.csv:2: no cable joins host0 and host1; mend node_path"),
    ],
)
def test_a_path_that_the_fabric_does_not_have_is_refused(make: Make, line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        make(given=f"src,dst,node_path\n{line}\n")


def test_paths_over_a_made_fabric_name_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "paths.csv").write_text("src,dst,node_path\n0,3,0-leaf0-spine1-leaf1-3\n", encoding="utf-8")
    keys = {"hosts_per_leaf": 2, "spines": 2, "paths": str(tmp_path / "paths.csv")}
    platform = build(ideal_scenario(4, "leaf-spine", **keys))
    assert stops(platform, platform.route_links(0, 3, 0)) == ["host0", "leaf0", "spine1", "leaf1", "host3"]
