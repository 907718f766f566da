"""The public names: pages, their examples, and types as a user's script sees them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
import simpy

import fabricsim as fs
from fabricsim import errors
from tests import test_docs

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
EXAMPLES = [
    text
    for page in [*PAGES, ROOT / "docs" / "howto" / "extend.md"]
    for name, language, text in test_docs.blocks(page)
    if language == "python" and (page in PAGES or name == "steps_form.py")
]
SCRIPT = """
import fabricsim as fs

result: fs.Result = fs.simulate("gpt2-medium-dp", overrides={"transport": "tcp-10g"})
time: float = result.summary()["iteration_time_s"]
result.save("run.h5")
for each in fs.compare({"extends": "gpt2-medium-dp"}, {"seed": [0, 1]}):
    print(each.plot("breakdown"), each.to_xarray("ops"))
times: dict[int, float] = fs.bench("all_reduce", "gpt2-medium-dp", sizes=[1024])
traffic: fs.TrafficResult = fs.traffic("incast", "gpt2-medium-dp", size="1MB")
replayed: fs.Result = fs.replay(["trace.json"], "dgx-a100", gpu_speed=2.0)
program: fs.Program = fs.program("gpt2-medium-dp")
"""


def test_each_public_name_has_a_page() -> None:
    shown = set(re.findall(r"^::: fabricsim\.(\w+)$", "".join(page.read_text("utf-8") for page in PAGES), re.MULTILINE))

    assert set(fs.__all__) - {"__version__"} - set(dir(errors)) == shown - {"errors"}
    assert "errors" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_an_example_that_is_run(page: Path) -> None:
    """By tests/test_docs.py."""
    assert page in test_docs.PYTHON
    assert any(language == "python" for _, language, _ in test_docs.blocks(page))


@pytest.mark.slow
def test_scripts_that_use_the_public_names_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'fabricsim[lint]'")
    for number, text in enumerate([SCRIPT, *EXAMPLES]):
        typed = text.replace("import networkx as nx", "import networkx as nx  # type: ignore")  # it comes without types
        (tmp_path / f"script{number}.py").write_text(typed, encoding="utf-8")

    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *map(str, tmp_path.glob("*.py"))]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  our own words

    assert run.returncode == 0, run.stdout


@pytest.mark.slow
def test_results_are_equal_if_they_say_the_same(tmp_path: Path) -> None:
    result = fs.simulate("gpt2-medium-dp")
    result.save(tmp_path / "run.h5")

    assert fs.read(tmp_path / "run.h5") == fs.simulate("gpt2-medium-dp") == result
    assert result != fs.simulate("gpt2-medium-dp", overrides={"transport": "tcp-10g"})


@pytest.mark.slow
def test_results_of_packets_are_equal_if_they_say_the_same(tmp_path: Path) -> None:
    watch = fs.Watch.parse(["queue:switch0->host1", "rate:switch0->host1", "flow:*"], ["switch0->host1"])

    def sent(size: str) -> fs.TrafficResult:
        return fs.traffic("incast", "ideal-16", flows=2, size=size, overrides={"engine": "packet"}, watch=watch)

    result = sent("20kB")
    result.save(tmp_path / "sent.h5")
    assert result.packets is not None
    assert result.packets.taps
    assert result.packets.log is not None

    assert fs.read(tmp_path / "sent.h5") == sent("20kB") == result
    assert result != sent("21kB")
    log = replace(result.packets.log, payload=1)
    tap = replace(result.packets.taps[0], value=result.packets.taps[0].value + 1)
    assert replace(result, packets=replace(result.packets, log=log)) != result
    assert replace(result, packets=replace(result.packets, taps=(tap, *result.packets.taps[1:]))) != result


def _only_of(value: object) -> set[type]:
    if isinstance(value, dict):
        return set().union(*map(_only_of, (*value, *value.values())))
    return set().union(*map(_only_of, value)) if isinstance(value, list) else {type(value)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "simulated",
    [
        lambda: fs.simulate("gpt2-medium-dp"),
        lambda: fs.simulate("two-jobs"),
        lambda: fs.replay("dlrm-v100", "dgx-a100"),
        lambda: fs.traffic("incast", "ideal-16", size="20kB", overrides={"engine": "packet"}),
    ],
)
def test_equal_results_have_equal_summaries_of_plain_values(
    simulated: Callable[[], fs.Result | fs.TrafficResult], tmp_path: Path
) -> None:
    result = simulated()
    result.save(tmp_path / "run.h5")

    told = result.summary()

    assert _only_of(told) <= {str, int, float, bool, type(None)}
    assert fs.read(tmp_path / "run.h5").summary() == {**told, "wall_seconds": None}


def test_a_dict_says_what_a_file_would(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nextends = "gpt2-medium-dp"\n[job]\nmicro_batch = 2\n', encoding="utf-8")

    told = fs.load({"name": "mine", "extends": "gpt2-medium-dp", "job": {"micro_batch": 2}})

    assert told.resolved == fs.load(file).resolved
    with pytest.raises(fs.InputError, match="of type object; give a text"):
        fs.load({"name": object()})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"job.micro_batch": 2}, r'the dict: "job\.micro_batch": unknown key .*nested dicts, or'),
        ({"job": None}, "^job: None is of type NoneType; give"),
        ({"job": {"parallelism": {"data": [None]}}}, r"^job\.parallelism\.data: None is of type"),
        ({"transport": {"efficiency": float("nan")}}, r"transport\.efficiency: nan is not a number"),
        ({"transport": {"efficiency": float("inf")}}, r"transport\.efficiency: inf is too large"),
    ],
)
def test_a_mistake_of_a_dict_is_said_of_its_key(told: dict[str, Any], said: str) -> None:
    with pytest.raises(fs.InputError, match=said):
        fs.load({"extends": "gpt2-medium-dp", **told})


@pytest.mark.parametrize("value", [float("nan"), np.float64("nan")])
def test_an_override_that_is_no_number_is_no_text(value: float) -> None:
    with pytest.raises(fs.InputError, match=r"efficiency: nan is not a number \(at most"):
        fs.load("gpt2-medium-dp", {"transport.efficiency": value})


@pytest.mark.parametrize(("overrides", "place"), [({"cluster.hosts": 0}, "overrides"), (["cluster.hosts=0"], "--set")])
def test_mistakes_in_overrides_are_said_to_be_there(overrides: dict[str, int] | list[str], place: str) -> None:
    with pytest.raises(fs.ScenarioError, match=f"(?m)^  {place}: cluster.hosts: |^{place}: cluster.hosts: "):
        fs.load("gpt2-medium-dp", overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"cluster hosts": 4}, "^overrides 'cluster hosts=4' is not of the form"),
        ({"extends": "ideal-16"}, "^overrides 'extends=.*what a scenario extends is written in its file"),
        (["extends=ideal-16"], "^--set 'extends=ideal-16': what a scenario extends is written in its file"),
    ],
)
def test_overrides_that_are_none_are_said_to_be_there(overrides: dict[str, Any] | list[str], said: str) -> None:
    with pytest.raises(fs.InputError, match=said):
        fs.load("gpt2-medium-dp", overrides)


@pytest.mark.parametrize(("picture", "said"), [("timelines", "there are .*breakdown"), ([], "picture []: give a text")])
def test_a_picture_that_is_none_is_named(picture: object, said: str) -> None:
    with pytest.raises(fs.InputError, match=said.replace("[]", r"\[\]")):
        fs.simulate("gpt2-medium-dp").plot(cast("Any", picture))


@pytest.mark.slow
def test_tables_are_not_joined_with_each_other() -> None:
    result = fs.simulate("gpt2-medium-dp")

    assert len(result.to_dataframe("links")) == len(result.links)
    assert len(result.to_dataframe("ops")) == len(result.ops)
    with pytest.raises(fs.InputError, match="no table 'wires'; there are calls, "):
        result.to_xarray("wires")


def test_a_result_is_shown_on_one_screen() -> None:
    result = fs.simulate("gpt2-medium-dp")

    lines = repr(result).splitlines()

    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("Iteration time 413.1 ms")
    assert "Iteration time" in result._repr_html_()


def test_a_graph_is_written_as_cables(tmp_path: Path) -> None:
    star = nx.star_graph(["switch", *(f"host{number}" for number in range(8))])
    nx.set_edge_attributes(star, "100Gbps", "rate")
    with pytest.raises(fs.InputError, match="edge switch - host0 has no delay; give each one"):
        fs.write(star, tmp_path / "star.csv")
    nx.set_edge_attributes(star, "500ns", "delay")

    fs.write(star, tmp_path / "star.csv")

    lines = (tmp_path / "star.csv").read_text("utf-8").splitlines()
    assert lines[:2] == ["a,b,gbps,delay_ns", "switch,host0,100,500"]
    assert len(lines) == 9


@pytest.mark.parametrize(
    "edge", [{"gbps": 100, "delay_ns": 500.0}, {"gbps": "100", "delay": "500ns"}, {"rate": "100Gbps", "delay_ns": 500}]
)
def test_edges_have_quantities_or_the_numbers_of_cable_files(edge: dict[str, object], tmp_path: Path) -> None:
    fs.write(nx.Graph([("switch", "host0", edge)]), tmp_path / "one.csv")

    assert (tmp_path / "one.csv").read_text("utf-8").splitlines()[1] == "switch,host0,100,500"


@pytest.mark.parametrize(
    ("edge", "said"),
    [
        ({"gbps": -1, "delay_ns": 5}, "is negative"),
        ({"gbps": 1, "delay_ns": "x"}, "edge"),
        ({"gbps": 1}, "no delay"),
        ({"gbps": 1, "rate": "10Gbps", "delay_ns": 5}, "has both gbps and rate; take one out"),
    ],
)
def test_numbers_of_edges_that_no_cable_has_are_refused(edge: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(fs.InputError, match=said):
        fs.write(nx.Graph([("switch", "host0", edge)]), tmp_path / "one.csv")


def _joined(kind: type[nx.Graph], *edges: tuple[object, object], **other: str) -> nx.Graph:
    graph = kind()
    graph.add_edges_from(edges, rate="100Gbps", delay="500ns")
    graph.add_edges_from([("host1", "switch0")], **{"rate": "100Gbps", "delay": "500ns", **other})
    return graph


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_both_directions_of_a_graph_are_one_cable(kind: type[nx.Graph], tmp_path: Path) -> None:
    fs.write(
        _joined(kind, ("host0", "switch0"), ("switch0", "host0"), ("switch0", "host1")), file := tmp_path / "pair.csv"
    )

    assert len(file.read_text("utf-8").splitlines()) == 3
    fabric = {"topology": "file", "links": str(file)}
    scenario = fs.load("ideal-16", {"cluster.hosts": 2, "fabric": fabric})
    assert fs.Fabric(simpy.Environment(), scenario).links().keys() >= {"host0->switch0", "switch0->host1"}


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (nx.Graph(), "the graph has no edges"),
        (_joined(nx.MultiGraph, ("host1", "switch0")), "edge host1 - switch0: is there several times"),
        (_joined(nx.DiGraph), "edge host1 -> switch0: none like it leads back"),
        (_joined(nx.DiGraph, ("switch0", "host1"), rate="10Gbps"), "none like it leads back"),
        (_joined(nx.Graph, ("switch0", "switch0")), "edge switch0 - switch0: leads back to its node"),
        *(
            (_joined(nx.Graph, ("host0", name)), "a name has letters, digits")
            for name in ("a,b", "a b", "#a", "a\nb", (0, 1))
        ),
        (_joined(nx.Graph, ("host0", 7)), "some nodes are numbers, others names"),
        (_joined(nx.Graph, rate="fast"), "edge host1 - switch0: 'fast'"),
    ],
)
def test_a_graph_that_is_no_fabric_is_refused(graph: nx.Graph, said: str, tmp_path: Path) -> None:
    with pytest.raises(fs.InputError, match=said):
        fs.write(graph, tmp_path / "fabric.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "overrides", "said"),
    [
        ("fabric.uplink_rat", {}, "over: fabric.uplink_rat: unknown key"),
        ("a b", {}, "over 'a b=1' is not of the form"),
        ("seed", {"fabric.uplink_rat": 1}, "overrides: fabric.uplink_rat: unknown key"),
        ("seed", ["fabric.uplink_rat=1"], "--set: fabric.uplink_rat: unknown key"),
    ],
)
def test_mistakes_of_a_comparison_are_where_they_were_written(
    key: str, overrides: dict[str, Any] | list[str], said: str
) -> None:
    with pytest.raises(fs.FabricsimError) as caught:
        fs.compare("what-if-leaf-spine", {key: [1, 2]}, overrides=overrides)
    assert said in str(caught.value)
