"""Fabrics in GraphML, node-link JSON and htsim's ``.topo``: as if their cables were in a CSV file."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.topology import cable_file

TREE = nx.Graph()
TREE.add_edges_from([(f"host{n}", f"leaf{n // 2}", {"rate": "100Gbps", "delay": "25ns"}) for n in range(4)])
TREE.add_edges_from([(f"leaf{n}", "spine0", {"gbps": 400, "delay_ns": 150}) for n in range(2)])
TOPO = """# as csg-htsim has them
Nodes 16
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 100
Radix_Up 2
Radix_Down 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Up 2
Radix_Down 2
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 1000
"""


def ordered(cables: list[cable_file.ListedCable]) -> list[tuple[list[str], float, int]]:
    return sorted((sorted((cable.a, cable.b)), cable.rate, cable.delay) for cable in cables)


def as_csv(folder: Path) -> list[tuple[list[str], float, int]]:
    lines = [f"host{n},leaf{n // 2},100,25" for n in range(4)] + [f"leaf{n},spine0,400,150" for n in range(2)]
    (folder / "a.csv").write_text("\n".join(["a,b,gbps,delay_ns", *lines]) + "\n", encoding="utf-8")
    return ordered(cable_file.read(folder / "a.csv", 4))


def test_graphml_and_node_link_give_what_csv_gives(tmp_path: Path) -> None:
    nx.write_graphml(TREE, tmp_path / "a.graphml")
    for key in ("edges", "links"):
        (tmp_path / f"{key}.json").write_text(json.dumps(nx.node_link_data(TREE, edges=key)), encoding="utf-8")
    for name in ("a.graphml", "edges.json", "links.json"):
        assert ordered(cable_file.read(tmp_path / name, 4)) == as_csv(tmp_path)


def test_a_topo_of_htsim_is_the_fat_tree(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(TOPO, encoding="utf-8")
    read = fabric_of({"topology": "file", "links": str(tmp_path / "a.topo")}).network(Ends(16)).graph()
    made = fabric_of({"topology": "fat-tree", "k": 4}).network(Ends(16)).graph()
    assert {*map(frozenset, read.edges)} == {*map(frozenset, made.edges)}
    assert read.edges["aggregation0", "core0"]["cable"].rate == 25e9
    assert read.edges["host0", "edge0"]["cable"].delay == 1_000_000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "is no JSON"),
        ("a.json", "[1]", "needs a list of edges"),
        ("a.json", '{"edges": [{"source": 0, "target": 1}]}', "rate of the edge 0 - 1: is missing"),
        ("a.json", '{"edges": [{"source": [0], "target": 1}]}', "is no node"),
        ("a.json", '{"edges": [{"source": 0, "target": 1, "gbps": 1e99, "delay": "1ns"}]}', "gbps"),
        (
            "a.json",
            '{"edges": [{"source": 0, "target": 1, "gbps": 400, "rate": "100Gbps", "delay": "1ns"}]}',
            "the edge 0 - 1 has rate '100Gbps' and gbps '400'; take one out",
        ),
        (
            "a.json",
            '{"edges": [{"source": 0, "target": 1, "gbps": 400, "delay_ns": 1, "delay": "1ns"}]}',
            "the edge 0 - 1 has delay '1ns' and delay_ns '1'; take one out",
        ),
        ("a.graphml", "<graphml>", "is no XML"),
        ("a.graphml", '<!DOCTYPE a [<!ENTITY b "c">]><graphml/>', "has a document type"),
        ("a.graphml", "<graphml/>", "has no edges"),
        ("a.topo", "Nodes many", "is no key with a whole number"),
        ("a.topo", TOPO.replace("Podsize 4", "Podsize 5"), "do not divide"),
        ("a.topo", TOPO.replace("Radix_Down 4\n", ""), "Tier 2 lacks radix_down"),
        ("a.topo", TOPO.replace("Tiers 3", "Tiers 4"), "needs Tiers 2 or 3"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=message):
        cable_file.read(tmp_path / name, 16)


@pytest.mark.slow
@given(st.sampled_from(["graphml", "json", "topo"]), st.data())
def test_cut_and_changed_files_end_in_one_error_or_none(
    tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    whole = {
        "graphml": "\n".join(nx.generate_graphml(TREE)),
        "json": json.dumps(nx.node_link_data(TREE, edges="edges")),
        "topo": TOPO,
    }[form]
    at, end = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))
    text = whole[:at] + data.draw(st.text(max_size=5)) + whole[max(at, end) :]
    file = tmp_path_factory.mktemp("damaged") / f"a.{form}"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(TraceError):  # and nothing else
        cable_file.read(file, 16 if form == "topo" else 4)
