"""The command `fabricsim convert`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.run.pipeline import build_plan, load
from fabricsim.traces.export import exported
from fabricsim.traces.readers import read

Fabricsim = Callable[..., tuple[int, str, str]]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_scenario_becomes_chakra_and_is_read_back_equal(fabricsim: Fabricsim, small: Path) -> None:
    code, out, err = fabricsim("convert", small.name, "-o", "out/")

    assert (code, out) == (0, "")
    assert err == "wrote 3 files, out/small.0.et to out/small.groups.json\n"
    assert _names(small.with_name("out")) == ["small.0.et", "small.1.et", "small.groups.json"]
    assert json.loads((small.parent / "out/small.groups.json").read_text()) == {"1": [0, 1]}
    wanted = exported(build_plan(load(small)).program(None), "small.toml")
    again = read([small.with_name("out")])
    assert again.world == wanted.world == 2
    for one, other in zip(again.recordings, wanted.recordings, strict=True):
        assert one.nodes.tolist() == other.nodes.tolist()
        assert sorted(one.edges.tolist()) == sorted(other.edges.tolist())
        assert (one.names, one.groups, one.communications) == (other.names, other.groups, other.communications)


def test_a_replay_of_what_was_written_takes_as_long(fabricsim: Fabricsim, small: Path) -> None:
    ran = json.loads(fabricsim("run", small.name, "--json")[1])
    fabricsim("convert", small.name, "-o", "out/")
    replayed = json.loads(fabricsim("replay", "out", "--fabric", small.name, "--json")[1])

    assert replayed["iteration_time_s"] == ran["iteration_time_s"]


def test_goal_needs_collectives_written_out(fabricsim: Fabricsim, small: Path) -> None:
    code, _, err = fabricsim("convert", small.name, "-o", "small.goal")

    assert code == 2
    assert err.startswith(
        "fabricsim: small.toml: has all_reduce, but goal holds only sends, receives and work; add --lower"
    )
    assert _names(small.parent) == ["small.toml"]
    assert fabricsim("convert", small.name, "-o", "small.goal", "--algorithm", "ring")[0] == 0
    written = (small.parent / "small.goal").read_text()
    assert written.startswith("num_ranks 2\n")
    assert written.count("send ") == written.count("recv ") == 2 * 2
    assert fabricsim("convert", small.name, "-o", "x/", "--to", "chakra", "--lower")[0] == 0
    assert fabricsim("convert", "x", "-o", "again.goal")[0] == 0  # a trace
    assert sorted((small.parent / "again.goal").read_text().splitlines()) == sorted(written.splitlines())


def test_a_trace_with_collectives_is_written_out_too(fabricsim: Fabricsim, small: Path) -> None:
    fabricsim("convert", small.name, "-o", "a/")
    assert fabricsim("convert", "a", "-o", "a.goal", "--lower")[0] == 0
    assert fabricsim("convert", small.name, "-o", "b.goal", "--lower")[0] == 0
    assert (small.parent / "a.goal").read_text() == (small.parent / "b.goal").read_text()


def test_files_that_are_there_stay_unless_told_otherwise(fabricsim: Fabricsim, small: Path) -> None:
    (small.parent / "out.1.et").write_text("mine")
    code, _, err = fabricsim("convert", small.name, "-o", "out")

    assert code == 2
    assert err == "fabricsim: -o: out.1.et is there already; add --force to replace it, or name another place\n"
    assert (small.parent / "out.1.et").read_text() == "mine"
    assert _names(small.parent) == ["out.1.et", "small.toml"]
    assert fabricsim("convert", small.name, "-o", "out", "--force")[0] == 0
    assert read([small.parent / f"out.{rank}.et" for rank in range(2)]).world == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["small.toml", "-o", "x", "--to", "otf2"],
            "--to 'otf2': is no form that is written; there are chakra: Chakra",
        ),
        (
            ["small.toml", "-o", "x.goal", "--algorithm", "star"],
            "--algorithm star: is none of any collective",
        ),
        (["small.toml", "-o", "x", "--algorithm", "gossip=ring"], "there is no collective 'gossip'"),
        (["small.toml", "-o", "x", "--algorithm", "broadcast=pat"], "--algorithm broadcast=pat: is none of broadcast"),
        (["small.toml", "-o", "small.toml/x"], "small.toml is not a folder"),
        (["small.toml", "-o", "/"], "-o '/': is no place for files"),
        (["absent.toml", "-o", "x"], "absent.toml"),
        (["absent.0.et", "-o", "x"], "absent.0.et: no such file"),
        (["small.toml", "small.toml", "-o", "x"], "small.toml: is a scenario: `fabricsim run` runs it"),
        (["trace.0.et", "-o", "x", "--set", "seed=4"], "--set seed=4: trace.0.et is a trace"),
    ],
)
def test_mistakes(fabricsim: Fabricsim, small: Path, arguments: list[str], problem: str) -> None:
    code, out, err = fabricsim("convert", *arguments)

    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1
    assert _names(small.parent) == ["small.toml"]


NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"


def test_a_network_of_astrasim_becomes_a_scenario(fabricsim: Fabricsim, small: Path) -> None:
    (small.parent / "net.yml").write_text(NETWORK)
    (small.parent / "system.json").write_text('{"all-reduce-implementation": ["ring"], "endpoint-delay": 10}')

    code, _, err = fabricsim("convert", "net.yml", "system.json", "-o", "made.toml")

    assert (code, err) == (0, "not in the scenario: endpoint-delay = 10\nwrote made.toml\n")
    assert _names(small.parent) == ["made-cables.csv", "made.toml", "net.yml", "small.toml", "system.json"]
    assert fabricsim("check", "made.toml")[0] == 0
    assert "is there already" in fabricsim("convert", "net.yml", "-o", "made.toml")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "made.goal"],
            "-o made.goal: a network configuration becomes a scenario; name a file that ends in .toml",
        ),
        (["-o", "made.toml", "--lower"], "--lower has no effect on the configuration net.yml"),
        (["a.json", "b.json", "-o", "made.toml"], "b.json: a network configuration goes with one system configuration"),
        (["a.json", "-o", "made.toml"], "a.json: no such file"),
    ],
)
def test_mistakes_with_a_network_of_astrasim(
    fabricsim: Fabricsim, small: Path, arguments: list[str], message: str
) -> None:
    (small.parent / "net.yml").write_text(NETWORK)
    code, _, err = fabricsim("convert", "net.yml", *arguments)

    assert code == 2
    assert message in err
    assert _names(small.parent) == ["net.yml", "small.toml"]
