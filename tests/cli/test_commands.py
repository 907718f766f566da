from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fabricsim import measured, provenance
from fabricsim.cli.common import announce_compilation, show
from fabricsim.cli.main import app
from fabricsim.errors import AbsentTracesError
from fabricsim.results.hdf5 import read
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.bench import TESTS
from fabricsim.scenario import library
from fabricsim.scenario.balancing import RULES
from fabricsim.scenario.congestion import LAWS
from fabricsim.scenario.fabric import TOPOLOGIES
from fabricsim.scenario.schedule import SCHEDULES
from fabricsim.studies import names
from fabricsim.studies.frame import study as frame
from fabricsim.traces import nccl_tests, osu
from fabricsim.traces.chakra.schema import (
    COMM_RECV,
    COMM_SEND,
    Attribute,
    ChakraNode,
    Metadata,
    encode_file_message,
    encode_metadata,
    encode_node,
)
from fabricsim.traces.form import FORMS

Fabricsim = Callable[..., tuple[int, str, str]]

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
COMMANDS = [
    "bench",
    "calibrate",
    "check",
    "compare",
    "convert",
    "doctor",
    "goodput",
    "inspect",
    "list",
    "plot",
    "replay",
    "report",
    "rerun",
    "run",
    "search",
    "show",
    "sweep",
    "timeline",
    "topology",
    "traffic",
    "validate",
    "volumes",
    "warmup",
]
TRANSPORTS = "tcp-10g,ipoib-100g,rdma-100g"


def documented_options() -> set[tuple[str, str]]:
    """Command and option of each row of the reference's table of options."""
    rows = re.findall(r"^\| `(-[^`]*)`.*? \| ([^|]*) \|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    return {(command, option.split()[0]) for option, commands in rows for command in re.findall(r"`(\w+)`", commands)}


def options_of(command: str, fabricsim: Fabricsim) -> set[str]:
    code, out, _ = fabricsim(command, "--help")
    assert code == 0
    listed = re.findall(r"^  (-\S.*?)(?:  |$)", out, re.MULTILINE)
    return {re.split(r"[ =]", name)[0] for names in listed for name in names.split(", ")} - {"-h", "--help"}


STUDIES = [
    name for kind in frame.AGAINST for name in sorted(frame.STUDIES.own) if frame.STUDIES.own[name].against == kind
]


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# ---- what there is ------------------------------------------------------------------------------


def test_every_command_is_documented(fabricsim: Fabricsim) -> None:
    listed = re.findall(r"^\| `fabricsim (\w+)", REFERENCE.read_text("utf-8"), re.MULTILINE)
    _, out, _ = fabricsim("--help")

    assert sorted(set(listed)) == COMMANDS
    assert sorted(re.findall(r"^  (\w+) ", out.split("Commands:")[1], re.MULTILINE)) == COMMANDS
    assert len(app.registered_commands) == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_options_are_those_that_there_are(command: str, fabricsim: Fabricsim) -> None:
    documented = {option for name, option in documented_options() if name == command}
    there = options_of(command, fabricsim)

    assert documented == there - {"--output"}  # documented by its short form


def test_every_study_and_test_is_documented() -> None:
    page = REFERENCE.read_text("utf-8")
    said = page.split("The studies are\n")[1].split("]")[0]
    tests = page.split("`TEST` is ")[1].split(".")[0]

    assert sorted(re.findall(r"`([\w-]+)`", said)) == names()
    assert sorted(STUDIES) == names()
    assert re.findall(r"`(\w+)`", tests) == [*TESTS, "latency"]


# ---- run, rerun, plot ---------------------------------------------------------------------------


def test_run_prints_a_summary(fabricsim: Fabricsim, small: Path) -> None:
    code, out, err = fabricsim("run", small.name)

    assert (code, err) == (0, "")
    assert "params-all-reduce" in out
    assert files(small.parent) == ["small.toml"]


def test_json_is_one_object_and_nothing_else(fabricsim: Fabricsim, small: Path) -> None:
    _, out, err = fabricsim("run", small.name, "--json", "-o", "x.h5")

    content = json.loads(out)
    assert content["iteration_time_s"] == pytest.approx(read(small.with_name("x.h5")).iteration / 1e12)
    assert {
        "iteration_time_s",
        "breakdown_s",
        "timers_s",
        "exposed_communication_s",
        "collectives",
        "links",
        "engine",
        "seed",
        "version",
    } <= set(content)
    assert err == "wrote x.h5\n"


@pytest.mark.slow
def test_options_of_run_reach_the_scenario(fabricsim: Fabricsim, small: Path) -> None:
    options = ["--set", "transport=tcp-10g", "--set", "job.overlap=ddp", "--engine", "flow", "--seed", "7"]
    _, out, _ = fabricsim("run", small.name, "--json", *options, "-o", "x.h5")

    content, result = json.loads(out), read(small.with_name("x.h5"))
    assert (content["transport"], content["engine"], content["seed"]) == ("tcp-10g", "flow", 7)
    assert result.resolved["job"]["overlap"] == "ddp"
    assert result.seed == 7


@pytest.mark.slow
def test_rerun_gives_the_same_bytes(fabricsim: Fabricsim, result: Path) -> None:
    before = result.read_bytes()

    code, out, err = fabricsim("rerun", result.name, "-o", "again.h5", "--json")

    assert (code, err) == (0, "wrote again.h5\n")
    assert json.loads(out)["name"] == "small"
    assert result.with_name("again.h5").read_bytes() == before
    assert fabricsim("rerun", result.name, "-o", result.name)[0] == 0  # onto itself
    assert result.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run ideal-16", "traffic incast ideal-16 --flows 3"])
def test_rerun_keeps_what_was_said_of_settings(fabricsim: Fabricsim, tmp_path: Path, command: str) -> None:
    settings = ["--set", "transport=roce-100g", "--set", "transport.congestion_control.gain=0.01"]
    if command.startswith("run"):
        settings += ["--set", "job.model.layers=1"]
        command = command.replace("ideal-16", "gpt2-medium-dp")
    code, out, _ = fabricsim(*command.split(), *settings, "-o", "one.h5" if command.startswith("run") else "out")
    first = next(tmp_path.rglob("*.h5"))

    assert (code, "transport.congestion_control.gain: no effect in the flow engine" in " ".join(out.split())) == (
        0,
        True,
    )
    assert fabricsim("rerun", str(first.relative_to(tmp_path)), "-o", "again.h5")[0] == 0
    assert (tmp_path / "again.h5").read_bytes() == first.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_makes_its_folder_and_three_pictures(fabricsim: Fabricsim, result: Path, form: str, magic: bytes) -> None:
    code, out, err = fabricsim("plot", result.name, "-o", "a/b", "--format", form)

    pictures = [f"small-{name}.{form}" for name in ("breakdown", "timeline", "utilisation")]
    assert (code, out) == (0, "")
    assert files(result.parent / "a") == [f"b/{name}" for name in pictures]
    assert [(result.parent / "a/b" / name).read_bytes()[: len(magic)] for name in pictures] == [magic] * 3
    assert err.splitlines() == [f"wrote a/b/{name}" for name in pictures]


@pytest.mark.slow
def test_plot_draws_beside_the_result_where_no_folder_is_named(fabricsim: Fabricsim, result: Path) -> None:
    fabricsim("plot", result.name)

    assert "small-breakdown.png" in files(result.parent)


@pytest.mark.slow
def test_a_run_inside_one_host_has_a_picture_of_what_holds_it_there(fabricsim: Fabricsim, small: Path) -> None:
    one_host = ("cluster=dgx1-v100", "cluster.hosts=1", "cluster.gpus_per_host=8")
    settings = [word for setting in one_host for word in ("--set", setting)]
    assert fabricsim("run", small.name, *settings, "-o", "inside.h5").code == 0

    code, _, err = fabricsim("plot", "inside.h5", "-o", "drawn")

    assert code == 0
    assert files(small.parent / "drawn") == ["inside-breakdown.png", "inside-timeline.png", "inside-utilisation.png"]
    assert "no picture" not in err


# ---- compare ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compare_prints_a_row_per_transport_and_draws(fabricsim: Fabricsim, small: Path) -> None:
    code, out, err = fabricsim("compare", small.name, "--transport", TRANSPORTS, "-o", "new/folder")

    assert code == 0
    names = [line.split()[0] for line in out.splitlines() if line.strip() and "against" not in line]
    assert [name for name in names if name in TRANSPORTS.split(",")] == TRANSPORTS.split(",")
    assert files(small.parent) == ["new/folder/comparison.png", "small.toml"]
    assert err == "wrote new/folder/comparison.png\n"


def test_what_commands_do_is_not_cut_in_the_list_of_them(fabricsim: Fabricsim) -> None:
    code, out, _ = fabricsim("--help")
    said = out.partition("Commands:\n")[2].splitlines()

    assert code == 0
    assert len(said) > 20
    assert all(line.endswith(".") and not line.endswith("...") for line in said)


def test_compare_takes_settings_and_transports(fabricsim: Fabricsim, small: Path) -> None:
    arguments = ["--transport", "tcp-10g, rdma-100g", "--set", "seed=3", "--json"]
    _, out, _ = fabricsim("compare", small.name, *arguments)

    assert [(run["transport"], run["seed"]) for run in json.loads(out)] == [("tcp-10g", 3), ("rdma-100g", 3)]


# ---- bench --------------------------------------------------------------------------------------


def test_bench_prints_what_the_reader_of_nccl_tests_reads(fabricsim: Fabricsim, tmp_path: Path) -> None:
    options = ["--cluster", "hkbu", "--transport", "tcp-10g", "--min-bytes", "1KiB", "--max-bytes", "5KiB"]
    code, out, _ = fabricsim("bench", "all_gather", *options)
    (tmp_path / "log").write_text(out)

    log = nccl_tests.read(tmp_path / "log")

    assert code == 0
    assert (log.collective, log.ranks, log.hosts) == ("all_gather", 32, 8)
    assert log.rows["size"].tolist() == [1024, 2048, 4096]


@pytest.mark.slow
def test_bench_takes_an_algorithm(fabricsim: Fabricsim) -> None:
    sizes = ["--min-bytes", "1MiB", "--max-bytes", "1MiB"]
    bench = ["bench", "all_gather", "--cluster", "hkbu", "--transport", "rdma-100g", *sizes]
    took = {fabricsim(*bench, "--algorithm", name)[1] for name in ("ring", "recursive_doubling", "bruck")}

    assert len(took) == 3
    code, _, err = fabricsim(*bench, "--algorithm", "none.*.et")
    assert code == 2
    assert "collectives.algorithm.all_gather: 'none.*.et' for rank 0: there is no such file" in err


@pytest.mark.slow
def test_bench_says_what_is_assumed_of_chakra_files(fabricsim: Fabricsim, tmp_path: Path) -> None:
    for rank in range(32):  # each sends a part of its own to all others
        ends = [(kind, peer) for kind in (COMM_SEND, COMM_RECV) for peer in range(32) if peer != rank]
        nodes = [ChakraNode(number, "", end[0], attributes=_attributes(*end)) for number, end in enumerate(ends)]
        parts = [encode_metadata(Metadata()), *map(encode_node, nodes)]
        (tmp_path / f"mine.{rank}.et").write_bytes(b"".join(map(encode_file_message, parts)))
    sizes = ["--min-bytes", "1MiB", "--max-bytes", "1MiB"]
    bench = ["bench", "all_gather", "--cluster", "hkbu", "--transport", "rdma-100g", *sizes]

    code, out, _ = fabricsim(*bench, "--algorithm", "mine.*.et@32KB")

    said = [line for line in out.splitlines() if "Assumed" in line]
    assert code == 0
    assert len(said) == 1
    assert said[0].startswith("# Assumed: the messages of ")
    assert "mine.*.et carry the data of an all_gather of 32000 bytes: " in said[0]
    (tmp_path / "log").write_text(out)
    assert nccl_tests.read(tmp_path / "log").rows["size"].tolist() == [2**20]
    assert "Assumed" not in fabricsim(*bench, "--algorithm", "ring")[1]


def _attributes(kind: int, peer: int) -> tuple[Attribute, ...]:
    end = "comm_dst" if kind == COMM_SEND else "comm_src"
    return Attribute(end, "int32", peer), Attribute("comm_size", "int64", 1000)


def test_bench_latency_prints_what_the_reader_of_osu_reads(fabricsim: Fabricsim, tmp_path: Path) -> None:
    options = ["--cluster", "hkbu", "--transport", "rdma-100g", "--min-bytes", "1B", "--max-bytes", "8B"]
    _, out, _ = fabricsim("bench", "latency", *options)
    (tmp_path / "log").write_text(out)

    table = osu.read(tmp_path / "log")

    assert table.quantity == "latency"
    assert table.rows["size"].tolist() == [1, 2, 4, 8]


def test_bench_compares_at_the_sizes_of_the_log(fabricsim: Fabricsim, tmp_path: Path) -> None:
    options = ["bench", "broadcast", "--cluster", "hkbu", "--transport", "rdma-100g", "--collectives", "nccl"]
    _, table, _ = fabricsim(*options, "--min-bytes", "1MiB", "--max-bytes", "2MiB")
    (tmp_path / "own.log").write_text(table)

    code, out, _ = fabricsim(*options, "--against", "own.log")

    errors = out.split("# against own.log:\n")[1].splitlines()[1:3]
    assert code == 0
    assert [line.split()[1] for line in errors] == ["1048576", "2097152"]
    assert {abs(float(line.split()[-1].rstrip("%"))) for line in errors} == {0.0}


def test_bench_takes_a_scenario_a_cluster_file_and_settings(fabricsim: Fabricsim, tmp_path: Path) -> None:
    cluster = (library.root() / "clusters" / "dgx-h100.toml").read_text().replace('name = "dgx-h100"', 'name = "ours"')
    (tmp_path / "ours.toml").write_text(cluster)
    size = ["--min-bytes", "1GiB", "--max-bytes", "1GiB", "--json"]
    ours = ["bench", "all_reduce", "--cluster", "ours.toml", "--transport", "rdma-400g", "--set", "cluster.hosts=2"]

    _, out, _ = fabricsim(*ours, *size, "-o", "ours.json")
    found = json.loads(out)
    assert (found["cluster"], found["ranks"], found["collectives"]) == ("ours", 16, "NCCL 2.21")
    assert json.loads((tmp_path / "ours.json").read_text()) == found
    assert found["findings"][0] == f"Bus bandwidth at 1 GiB, the largest size: {_busbw(found):.4g} GB/s"

    _, out, _ = fabricsim("bench", "all_reduce", "gpt2-medium-dp", *size)
    scenario = json.loads(out)
    assert (scenario["cluster"], scenario["ranks"]) == ("pinnacles", 8)
    assert _busbw(scenario) == pytest.approx(12.1, abs=0.1)  # of 100 Gb/s, as the run of that scenario has it


def _busbw(found: dict[str, Any]) -> float:
    return float(found["rows"][-1]["busbw_bytes_per_s"]) / 1e9


@pytest.mark.slow
@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_bench_fits_the_terminal(fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    bench = ["bench", "all_reduce", "--cluster", "dgx-h100", "--transport", "rdma-400g", "--set", "cluster.hosts=2"]
    fabricsim(*bench, "-o", "log")
    monkeypatch.setenv("COLUMNS", width)

    _, out, _ = fabricsim(*bench, "--against", "log")

    assert max(map(len, out.splitlines())) <= int(width)
    assert "busbw" in out
    assert "median 0.0 %" in out or "median\n" in out


# ---- validate -----------------------------------------------------------------------------------


@pytest.fixture
def quick_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies that come at once: what they predict is tested with them."""
    row = ValidationRow("time", "s", 2.0, 1.0, "log", "captured")
    every = frame.STUDIES.own.items()
    quick = {name: replace(each, compare=partial(_given, name, row), pictures=lambda _: ()) for name, each in every}
    monkeypatch.setattr(frame.STUDIES, "own", quick)


def _given(name: str, row: ValidationRow, _report: object) -> Validation:
    return Validation(name, [row])


@pytest.mark.slow
@pytest.mark.usefixtures("quick_studies")
def test_validate_alone_runs_all_studies(fabricsim: Fabricsim) -> None:
    _, out, _ = fabricsim("validate")

    assert re.findall(r"^validate (\S+)", out, re.MULTILINE) == STUDIES


@pytest.mark.usefixtures("quick_studies")
def test_validate_alone_leaves_out_studies_without_their_tables(
    fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_report: object) -> Validation:
        raise AbsentTracesError("traces/vtrain is not there: set FABRICSIM_TRACES")

    monkeypatch.setitem(frame.STUDIES.own, "vtrain", replace(frame.STUDIES.own["vtrain"], compare=absent))
    code, out, err = fabricsim("validate", "--json")

    assert code == 0
    assert [study["study"] for study in json.loads(out)] == [name for name in STUDIES if name != "vtrain"]
    assert err == "left out vtrain: traces/vtrain is not there: set FABRICSIM_TRACES\n"


def test_validate_of_a_study_without_its_tables_says_what_to_set(
    fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRICSIM_TRACES", "nowhere")
    code, _, err = fabricsim("validate", "vtrain")

    assert code == 2
    assert "nowhere/vtrain is not there: set FABRICSIM_TRACES" in err


def test_help_of_validate_names_all_studies(fabricsim: Fabricsim) -> None:
    _, out, _ = fabricsim("validate", "--help")

    whole = re.sub(r"-\n +", "-", out)  # lines are broken within names, too
    assert set(STUDIES) <= set(re.findall(r"[\w-]+", whole))


@pytest.mark.usefixtures("quick_studies")
def test_validate_prints_one_object_or_a_list_of_all(fabricsim: Fabricsim) -> None:
    one, every = json.loads(fabricsim("validate", "hkbu", "--json")[1]), json.loads(fabricsim("validate", "--json")[1])

    assert list(one) == ["study", "rows", "summary", "parameters"]
    assert [study["study"] for study in every] == STUDIES
    assert every[STUDIES.index("hkbu")] == one


@pytest.mark.usefixtures("quick_studies")
def test_validate_writes_into_a_new_folder(fabricsim: Fabricsim, tmp_path: Path) -> None:
    _, out, err = fabricsim("validate", "-o", "new/folder", "--json")

    written = [f"new/folder/{name}.json" for name in STUDIES]
    assert files(tmp_path) == sorted(written)
    assert json.loads((tmp_path / "new/folder/hkbu.json").read_text()) == json.loads(out)[STUDIES.index("hkbu")]
    assert err.splitlines() == [f"wrote {name}" for name in written]


@pytest.mark.usefixtures("quick_studies")
def test_validate_leaves_nothing_where_it_cannot_write(fabricsim: Fabricsim, tmp_path: Path) -> None:
    (tmp_path / "out" / "hkbu.json").mkdir(parents=True)

    code, _, err = fabricsim("validate", "hkbu", "-o", "out")

    assert (code, files(tmp_path)) == (2, [])
    assert err.startswith("fabricsim: out/hkbu.json: cannot be written")


# ---- check, list, warmup ------------------------------------------------------------------------


def test_check_says_what_it_found(fabricsim: Fabricsim, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out, err = fabricsim("check", small.name, "--set", "transport=tcp-10g")

    first, fabric, second = out.splitlines()
    assert first == "small: no mistakes; 2 x 1 a100-pcie-40gb, gpt2-medium, 2 x data, 1 x pipeline, tcp-10g"
    assert fabric == "fabric: 1 switch x 2 down (10 Gb/s)"
    # 16 bytes for each of 354,871,296 parameters, and the activations of one sequence
    assert re.match(r"memory of a GPU: \d\.\d+ GiB of 37\.5\d GiB \(weights 676\.\d MiB, gradients 676\.\d MiB", second)
    assert err == ""


def test_list_names_everything_in_the_library(fabricsim: Fabricsim) -> None:
    _, out, _ = fabricsim("list")
    words = {line.split()[0] for line in out.splitlines() if line.strip()}

    assert {*library.KINDS, *(name for kind in library.KINDS for name in library.names(kind))} <= words


@pytest.mark.slow
def test_list_says_what_modules_declare(fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = {name: each.__doc__ for kind in (TOPOLOGIES, LAWS, RULES) for name, each in kind.own.items()}
    said |= {name: each.steps.__doc__ for name, each in SCHEDULES.own.items()}
    said |= {name: each.about for name, each in FORMS.own.items()}
    said |= {name: sys.modules[f"fabricsim.studies.{name.replace('-', '_')}"].__doc__ for name in STUDIES}
    said |= {"send_recv": "direct"}

    lines = [line.strip().split(maxsplit=1) for line in fabricsim("list")[1].splitlines()]

    assert [name for name, text in said.items() if [name, str(text).partition("\n")[0].strip()] not in lines] == []


def test_list_names_measured_tables_by_what_was_measured(fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = fabricsim("list", "measured")

    named = dict(line.strip().split(maxsplit=1) for line in out.splitlines()[1:] if line.strip())
    assert named == {name: measured.load(name).title for name in measured.names()}


def test_list_of_one_kind(fabricsim: Fabricsim) -> None:
    _, out, _ = fabricsim("list", "transports")

    assert [line.split()[0] for line in out.splitlines() if line[:1].strip()] == [
        "transports",
        *library.names("transports"),
    ]


@pytest.mark.slow
def test_warmup_says_where_kernels_are(fabricsim: Fabricsim) -> None:
    code, out, err = fabricsim("warmup")

    assert (code, out) == (0, "")
    assert err.startswith("kernels are compiled already\nready after ")


def test_compilation_is_announced_with_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    announce_compilation("flow")
    assert capsys.readouterr().err.startswith("compiling kernels of the flow engine, once (about ")


# ---- text ---------------------------------------------------------------------------------------


def test_names_between_colons_are_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    show("host:fire:1")
    assert capsys.readouterr().out == "host:fire:1\n"


# ---- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("patience", "shown"), [(3600.0, 0), (0.0, 1)])
def test_progress_is_shown_on_standard_error_after_a_while(
    fabricsim: Fabricsim, small: Path, monkeypatch: pytest.MonkeyPatch, patience: float, shown: int
) -> None:
    monkeypatch.setattr("fabricsim.cli.common._PATIENCE", patience)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    _, out, err = fabricsim("compare", small.name, "--transport", TRANSPORTS, "--json")

    assert len(json.loads(out)) == 3
    assert min(err.count("comparing 3 runs"), 1) == shown


def test_version_and_short_help(fabricsim: Fabricsim) -> None:
    assert fabricsim("--version") == (0, f"fabricsim {provenance.version()}\n", "")
    assert fabricsim("run", "-h") == fabricsim("run", "--help")


def test_run_takes_a_transport(fabricsim: Fabricsim, small: Path) -> None:
    _, out, _ = fabricsim("run", small.name, "--transport", "tcp-10g", "--json")
    assert json.loads(out)["transport"] == "tcp-10g"
    code, _, err = fabricsim("run", small.name, "--transport", "tcp-11g")
    assert code == 2
    assert "--transport" in err


@pytest.mark.slow
def test_columns_are_honoured_off_a_terminal(
    fabricsim: Fabricsim, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    for columns in ("", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        _, out, _ = fabricsim("run", small.name, "--set", f"name={' x' * 150}")
        widths.append(max(map(len, out.splitlines())))
    assert 100 < widths[0] <= 120
    assert widths[1] <= 100


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "19", "x"])
def test_a_width_of_nothing_is_not_told(fabricsim: Fabricsim, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    for command in (["list", "models"], ["show", "h100-sxm"]):
        monkeypatch.delenv("COLUMNS", raising=False)
        usual = fabricsim(*command)
        monkeypatch.setenv("COLUMNS", columns)
        assert usual[1]
        assert fabricsim(*command) == usual
