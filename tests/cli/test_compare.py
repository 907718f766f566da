"""Scenarios times fabrics, transports, engines and settings, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.cli.variants import axes, fabric_settings, split, variants

Fabricsim = Callable[..., tuple[int, str, str]]
QUICK = ("--set", "job.model.layers=1", "--set", "cluster.hosts=2", "--set", "job.parallelism.data=2")
SMALL = (*QUICK, "--set", "job.global_batch=16")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4, 8", ["4", "8"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ('"0,8,1","0-2"', ['"0,8,1"', '"0-2"']),
        ("{a = 1, b = '},'}", ["{a = 1, b = '},'}"]),
        ("a,a,b", ["a", "a", "b"]),
        ("", [""]),
    ],
)
def test_values_end_at_commas_outside_of_brackets_and_quotes(text: str, values: list[str]) -> None:
    assert split(text) == values


def test_variants_are_all_combinations_with_the_last_axis_first() -> None:
    found, fixed = axes(["two-tier"], ["tcp-10g", "rdma-100g"], [], ["seed=1", "job.micro_batch=4,8"])
    by, every = variants(["a.toml", "b.toml"], found, fixed)

    assert by == "scenario and transport and job.micro_batch"
    assert [each.labels for each in every[:3]] == [
        ("a", "tcp-10g", "4"),
        ("a", "tcp-10g", "8"),
        ("a", "rdma-100g", "4"),
    ]
    assert len(every) == 8
    assert every[-1].settings == ("seed=1", "fabric=two-tier", "transport=rdma-100g", "job.micro_batch=8")


def test_values_of_a_setting_are_given_once_and_one_value_is_no_comparison(fabricsim: Fabricsim) -> None:
    (axis,), _ = axes([], [], [], ["seed=1,2"])
    assert [label for label, _ in axis.values] == ["1", "2"]

    code, _, err = fabricsim("compare", "two-jobs", "--set", "seed=1,1")
    assert (code, err) == (2, "fabricsim: --set seed=1,1: names one value only, 2 times; give different ones\n")
    code, _, err = fabricsim("compare", "two-jobs", "--set", "seed=")
    assert code == 2
    assert err.endswith("or several scenarios (--set seed= gives one value)\n")


def test_a_fabric_is_a_preset_a_file_a_topology_or_that_of_a_scenario() -> None:
    assert fabric_settings("two-tier") == ["fabric=two-tier"]
    assert fabric_settings("mine.toml") == ["fabric=mine.toml"]
    assert fabric_settings("full-mesh") == ['fabric={topology="full-mesh"}']
    assert fabric_settings("pair.py") == ['fabric={topology="pair.py"}']
    assert 'uplink_rate = "400Gbps"' in fabric_settings("two-jobs")[0]


@pytest.mark.slow
def test_a_comparison_of_fabrics_and_values_says_what_each_run_is(fabricsim: Fabricsim, tmp_path: Path) -> None:
    options = ("--fabric", "two-tier,single-switch", "--set", "job.micro_batch=4,8", "--json")
    code, out, _ = fabricsim("compare", "gpt2-medium-dp", *SMALL, *options)
    rows = json.loads(out)

    assert code == 0
    assert [row["compared"] for row in rows] == ["two-tier, 4", "two-tier, 8", "single-switch, 4", "single-switch, 8"]
    assert rows[1]["iteration_time_s"] != rows[0]["iteration_time_s"]
    assert rows[1]["breakdown_s"]["compute"] == rows[3]["breakdown_s"]["compute"]
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.slow
def test_differences_are_explained_by_causes(fabricsim: Fabricsim, tmp_path: Path) -> None:
    code, out, _ = fabricsim("compare", "gpt2-medium-dp", *SMALL, "--set", "cluster.gpu_speed=1,0.5", "-o", "out")
    said = " ".join(out.split())

    assert code == 0
    assert "cluster.gpu_speed" in said.lower()
    assert "0.5 against 1: +" in said
    assert " compute)" in said
    assert (tmp_path / "out" / "comparison.png").is_file()


@pytest.mark.slow
def test_several_scenarios_and_engines_stand_side_by_side(fabricsim: Fabricsim) -> None:
    _, out, _ = fabricsim("compare", "gpt2-medium-dp", "bert-large-dp", *SMALL, "--engine", "flow,packet", "--json")

    assert [row["compared"] for row in json.loads(out)] == [
        "gpt2-medium-dp, flow",
        "gpt2-medium-dp, packet",
        "bert-large-dp, flow",
        "bert-large-dp, packet",
    ]


@pytest.mark.slow
def test_traffic_is_compared_as_jobs_are(fabricsim: Fabricsim, tmp_path: Path) -> None:
    """8 x 1 MB into one host take twice as long at half the rate."""
    options = ("--traffic", "incast", "--size", "1MB", "--flows", "8", "--set", "fabric.link_rate=100Gbps,50Gbps")
    _, out, _ = fabricsim("compare", "ideal-16", *options, "--json")
    fast, slow = (row["makespan_s"] for row in json.loads(out))

    assert slow == pytest.approx(2 * fast, rel=0.01)
    code, table, _ = fabricsim("compare", "ideal-16", *options, "-o", "out")
    assert code == 0
    assert "incast: 8 flows" in table
    assert (tmp_path / "out" / "comparison.png").is_file()
