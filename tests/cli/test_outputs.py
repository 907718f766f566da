"""What a command reads is never what it writes: scenarios, what they extend and name, studies, settings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.scenario.load import load
from fabricsim.topology.networks import single_switch as star
from tests.cli.test_mistakes import refused

Fabricsim = Callable[..., tuple[int, str, str]]

CABLES = "a,b,gbps,delay_ns\n0,2,100,25\n1,2,100,25\n"


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder with a scenario and a file of each kind that one may name."""
    (tmp_path / "cables.csv").write_text(CABLES, encoding="utf-8")
    (tmp_path / "matrix.csv").write_text("src,dst,bytes\n0,1,1000\n", encoding="utf-8")
    (tmp_path / "wire.toml").write_text('include = "rdma-100g"\nname = "wire"\n', encoding="utf-8")
    (tmp_path / "base.toml").write_text(
        'extends = "gpt2-medium-dp"\ncluster.hosts = 2\ntransport = "wire.toml"\n'
        "job.micro_batch = 1\njob.global_batch = 2\njob.parallelism.data = 2\n"
        'traffic.other.pattern = "matrix.csv"\n',
        encoding="utf-8",
    )
    (tmp_path / "top.toml").write_text(
        'extends = "base.toml"\n[fabric]\ntopology = "file"\nlinks = "cables.csv"\n', encoding="utf-8"
    )
    (tmp_path / "study.toml").write_text('scenario = "top.toml"\ngrid.seed = [1, 2]\n', encoding="utf-8")
    return tmp_path


def test_a_loaded_scenario_keeps_the_files_that_it_was_read_from_and_names(named: Path) -> None:
    files = {file.name for file in load(named / "top.toml").files}

    assert files >= {"top.toml", "base.toml", "wire.toml", "cables.csv", "matrix.csv"}


def test_files_of_algorithms_and_extensions_are_kept(named: Path) -> None:
    for name in ("ring.0.et", "ring.1.et", "ag.xml"):
        (named / name).touch()
    (named / "mine.py").write_text(inspect.getsource(star), encoding="utf-8")
    chosen = [
        f"fabric={{topology = '{named / 'mine.py'}'}}",
        f"collectives.algorithm.all_reduce='{named / 'ring.*.et'}'",
        f"collectives.algorithm.all_gather='{named / 'ag.xml'}'",
    ]
    files = {file.name for file in load(named / "top.toml", chosen).files}

    assert files >= {"ring.0.et", "ring.1.et", "ag.xml", "mine.py"}


@pytest.mark.parametrize("command", [["run", "top.toml"], ["bench", "all_reduce", "top.toml"]])
@pytest.mark.parametrize("output", ["top.toml", "base.toml", "wire.toml", "cables.csv"])
def test_no_result_takes_the_place_of_what_it_was_made_from(
    fabricsim: Fabricsim, named: Path, command: list[str], output: str
) -> None:
    before = (named / output).read_bytes()
    message = refused(fabricsim, *command, "-o", output)

    lost = f"-o {output}: is what is read, and would be lost; name another file"
    assert message == lost or (output.endswith(".toml") and " is written as " in message)
    assert (named / output).read_bytes() == before


@pytest.mark.usefixtures("named")
def test_pictures_and_tables_take_no_place_of_inputs_either(fabricsim: Fabricsim) -> None:
    lost = "is what is read, and would be lost; name another file"

    assert refused(fabricsim, "volumes", "top.toml", "--matrix", "-o", ".") == f"-o matrix.csv: {lost}"
    Path("cables.csv").rename("index.csv")
    assert refused(fabricsim, "sweep", "study.toml", "--set", 'fabric.links="index.csv"', "-o", ".").endswith(lost)
    Path("index.csv").rename("comparison.png")
    links = 'fabric.links="comparison.png"'
    assert refused(fabricsim, "compare", "top.toml", "--set", links, "--set", "seed=1,2", "-o", ".").endswith(lost)


@pytest.mark.slow
@pytest.mark.usefixtures("named")
def test_parts_of_a_sweep_draw_no_pictures(fabricsim: Fabricsim) -> None:
    Path("study.toml").write_text('scenario = "base.toml"\ngrid.seed = [1, 2]\n', encoding="utf-8")
    common = ("sweep", "study.toml", "-o", "made", "--resume", "--workers", "1")
    for part in ("1/2", "2/2"):
        assert fabricsim(*common, "--shard", part)[0] == 0
    assert not [*Path("made").glob("*.png")]
    assert fabricsim(*common)[0] == 0
    assert [file.name for file in Path("made").glob("*.png")] == ["picture-1.png"]


@pytest.mark.usefixtures("named")
def test_a_picture_that_cannot_be_drawn_loses_no_runs(fabricsim: Fabricsim) -> None:
    text = 'scenario = "base.toml"\ngrid.seed = [1, 2]\n[[pictures]]\nx = "seed"\ny = "first_cause"\n'
    Path("study.toml").write_text(text, encoding="utf-8")

    code, out, err = fabricsim("sweep", "study.toml", "-o", "made", "--workers", "1", "--json")

    assert (code, len(json.loads(out))) == (2, 2)
    assert "wrote made/index.csv" in err
    assert "2 done, 0 failed" in err
    assert "y: 'first_cause' has " in err


@pytest.mark.slow
def test_a_folder_that_is_called_as_a_pattern_is_no_input(fabricsim: Fabricsim) -> None:
    for _ in range(2):
        assert fabricsim("traffic", "incast", "ideal-16", "--flows", "2", "--size", "1kB", "-o", "incast")[0] == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bench all_reduce hkbu -o mine.toml", "-o mine.toml: the table is written as a log of nccl-tests"),
        ("bench all_reduce hkbu -o mine.json", "name it mine.txt"),
        ("bench all_reduce hkbu --json -o mine.txt", "name it mine.json"),
        ("run gpt2-medium-dp -o mine.toml", "name it mine.h5"),
        ("calibrate gpt2-medium-dp --iteration 1s -o mine.toml", "mine.toml is there already; add --force"),
        ("calibrate gpt2-medium-dp --iteration 1s --force", "--force has no effect without -o"),
        (
            "timeline mine.h5 --per-rank -o mine.json.gz",
            "is called like a file, and --per-rank writes one for each rank",
        ),
    ],
)
def test_what_users_write_is_not_replaced_by_another_form(fabricsim: Fabricsim, command: str, said: str) -> None:
    Path("mine.toml").write_text("seed = 1\n")
    code, _, err = fabricsim(*command.split())

    assert code == 2
    assert said in err
    assert Path("mine.toml").read_text() == "seed = 1\n"
    assert not Path("mine.json").exists()


@pytest.mark.parametrize(("logs", "picture"), [(["default"], "fitted.png"), (["default", "ring"], "fitted-2.png")])
def test_pictures_beside_a_preset_are_not_replaced_either(fabricsim: Fabricsim, logs: list[str], picture: str) -> None:
    Path(picture).write_text("mine")
    tables = [f"hkbu-10gbe-{log}" for log in logs]
    code, _, err = fabricsim("calibrate", *tables, "--cluster", "hkbu", "--transport", "tcp-10g", "-o", "fitted.toml")

    assert code == 2
    assert f"-o: {picture} is there already; add --force to replace it" in err
    assert Path(picture).read_text() == "mine"
