"""Networks of ASTRA-sim and InfraGraph as fabrics: as if their cables were in a CSV file."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.topology import cable_file

NETWORK = "topology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]\nlatency: [ {} ]\n"
GBPS = 2**30 * 8 / 1e9  # what ASTRA-sim writes as 1 GB/s


def infragraph() -> dict[str, Any]:
    """Two servers of two GPUs and two NICs, each NIC on a leaf of its own, below a spine that is joined twice."""

    def component(name: str, count: int, choice: str) -> dict[str, object]:
        return {"name": name, "count": count, "choice": choice}

    def edge(one: tuple[str, str], other: tuple[str, str], link: str, scheme: str = "one2one") -> dict[str, object]:
        ends = [dict(zip(("instance", "component"), each, strict=True)) for each in (one, other)]
        return {"ep1": ends[0], "ep2": ends[1], "link": link, "scheme": scheme}

    return {
        "name": "small",
        "devices": [
            {"name": "server", "components": [component("xpu", 2, "xpu"), component("cx", 2, "device")]},
            {"name": "cx", "components": [component("asic", 1, "cpu"), component("port", 1, "port")]},
            {"name": "switch", "components": [component("port", 8, "port")]},
        ],
        "links": [
            {"name": "down", "physical": {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 100}}},
            {
                "name": "up",
                "physical": {"bandwidth": {"gigabytes_per_second": 25}, "latency": {"choice": "us", "us": 0.2}},
            },
        ],
        "instances": [
            {"name": "box", "device": "server", "count": 2},
            {"name": "leaf", "device": "switch", "count": 2},
            {"name": "spine", "device": "switch", "count": 1},
        ],
        "edges": [
            edge(("box[0]", "cx[:].port[0]"), ("leaf", "port[0:1]"), "down"),
            edge(("box[1]", "server.cx.port"), ("leaf[0:2]", "port[1]"), "down"),
            edge(("leaf", "port[2:4]"), ("spine", "port[0:4]"), "up"),
        ],
    }


def listed(path: Path, hosts: int, nics: int = 1) -> list[tuple[str, str, float, int]]:
    return sorted(
        (*sorted((cable.a, cable.b)), cable.rate * 8 / 1e9, cable.delay) for cable in cable_file.read(path, hosts, nics)
    )


SMALL = [
    ("host0/nic0", "leaf0", 100.0, 25_000),
    ("host0/nic1", "leaf1", 100.0, 25_000),
    ("host1/nic0", "leaf0", 100.0, 25_000),
    ("host1/nic1", "leaf1", 100.0, 25_000),
    ("leaf0", "spine0", 400.0, 200_000),
    ("leaf1", "spine0", 400.0, 200_000),
]


@pytest.mark.parametrize("wrapped", [False, True])
def test_infragraph_in_yaml_and_json(tmp_path: Path, wrapped: bool) -> None:  # noqa: FBT001  a parameter of the test
    whole = {"infrastructure": infragraph(), "annotations": {}} if wrapped else infragraph()
    (tmp_path / "a.json").write_text(json.dumps(whole), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    for name in ("a.json", "a.yaml"):
        assert listed(tmp_path / name, 2, 2) == SMALL


def test_gpus_that_are_joined_directly_are_left_to_the_hosts_or_are_the_hosts(tmp_path: Path) -> None:
    whole = infragraph()
    whole["instances"].append({"name": "nvswitch", "device": "switch", "count": 1})
    scale_up = {"ep1": {"instance": "box", "component": "xpu"}, "ep2": {"instance": "nvswitch", "component": "port"}}
    whole["edges"].append({**scale_up, "link": "up", "scheme": "one2one"})
    (tmp_path / "a.json").write_text(json.dumps(whole), encoding="utf-8")
    assert listed(tmp_path / "a.json", 2, 2) == SMALL

    whole["edges"] = whole["edges"][-1:]
    (tmp_path / "a.json").write_text(json.dumps(whole), encoding="utf-8")
    assert len(listed(tmp_path / "a.json", 2, 2)) == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"devices"', '"machines"', "is no InfraGraph"),
        ('"leaf[0:2]"', '"laef[0:2]"', "line 2: 'laef' is not there; did you mean 'leaf'"),
        ('"port[2:4]"', '"port[2:9]"', "goes beyond what is there: 8"),
        ('"port[1]"', '"port[8]"', "is not there: there are 8"),
        ('"port[1]"', '"port[x]"', "is no name with a slice"),
        ('"one2one"', '"ring"', "scheme is 'ring'; it is one2one or many2many"),
        ('"gigabytes_per_second"', '"gigatransfers_per_second"', "bandwidth of link 'up' is no number of gigabits"),
        ('"gigabytes_per_second": 25', '"gigabytes_per_second": "nan"', "bandwidth of link 'up' is no number"),
        ('{"gigabytes_per_second": 25}', "{}", "link 'up' has no physical.bandwidth"),
        ('"count": 8', '"count": 0', "count of 'port' is '0'"),
        ('"device": "server"', '"device": "sever"', "'sever' is not there; did you mean 'server'"),
        ('"choice": "xpu"', '"choice": "cpu"', "has 0 hosts, instances with an xpu, and the cluster 2"),
        ('"cx[:].port[0]"', '"cx[0].port[0]"', "box[0] has cables at 1 of its components"),
    ],
)
def test_mistakes_in_an_infragraph(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = json.dumps(infragraph())
    assert old in text
    (tmp_path / "a.json").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(TraceError) as error:
        cable_file.read(tmp_path / "a.json", 2, 2)
    assert message.removeprefix("line 2: ") in str(error.value)
    assert ":2: " in str(error.value) or not message.startswith("line 2")
    assert "\n" not in str(error.value)


def test_a_device_that_is_inside_of_itself_is_no_circle(tmp_path: Path) -> None:
    text = json.dumps(infragraph()).replace(
        '"name": "asic", "count": 1, "choice": "cpu"', '"name": "cx", "count": 1, "choice": "device"'
    )
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert listed(tmp_path / "a.json", 2, 2) == SMALL


@pytest.mark.slow
def test_edges_that_multiply_are_refused_before_they_are_written_out(tmp_path: Path) -> None:
    text = json.dumps(infragraph()).replace('"count": 8', '"count": 900000').replace("port[2:4]", "port[:]")
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match="more than 500000 ends"):
        cable_file.read(tmp_path / "a.json", 2, 2)


def test_a_ring_of_astrasim_has_a_router_for_each_npu(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(NETWORK.format("Ring", 4, 50, 500), encoding="utf-8")
    to_host = [(f"host{n}", f"npu{n}", pytest.approx(100 * GBPS), 0) for n in range(4)]
    around = [(f"npu{a}", f"npu{b}", pytest.approx(50 * GBPS), 500_000) for a, b in ((0, 1), (0, 3), (1, 2), (2, 3))]
    assert listed(tmp_path / "a.yml", 4) == [*to_host, *around]


def test_the_first_dimension_of_several_nics_is_inside_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        NETWORK.format("FullyConnected, Switch", "2, 3", "400, 50", "900, 700"), encoding="utf-8"
    )
    expected = [
        (f"host{h}/nic{r}", f"rail{r}switch", pytest.approx(50 * GBPS), 700_000) for h in range(3) for r in range(2)
    ]
    assert listed(tmp_path / "a.yaml", 3, 2) == expected
    assert len(listed(tmp_path / "a.yaml", 6)) == 6 + 3 + 6
    with pytest.raises(
        TraceError, match=r"has 2 x 3 NPUs, the cluster 4 hosts of 1 NICs; set cluster.hosts = 6 with one"
    ):
        cable_file.read(tmp_path / "a.yaml", 4)


def test_they_are_fabrics_of_scenarios(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(NETWORK.format("Switch", 5, 12.5, 500), encoding="utf-8")
    network = fabric_of({"topology": "file", "links": str(tmp_path / "a.yml")}).network(Ends(5))
    assert [*network.nodes][5:] == ["switch"]
    assert len(network.links) == 5


@pytest.mark.slow
@given(st.sampled_from(["json", "yaml", "yml"]), st.data())
def test_cut_and_changed_files_end_in_one_error_or_none(
    tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    texts = {
        "json": json.dumps(infragraph()),
        "yaml": yaml.safe_dump(infragraph()),
        "yml": NETWORK.format("Ring, Switch", "2, 2", "400, 50", "900, 700"),
    }
    whole = texts[form]
    at, end = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))
    text = whole[:at] + data.draw(st.text(max_size=5)) + whole[max(at, end) :]
    file = tmp_path_factory.mktemp("damaged") / f"a.{form}"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(TraceError):  # and nothing else
        cable_file.read(file, 2, 2)
