from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fabricsim.errors import FabricsimError, InputError, ScenarioError
from fabricsim.scenario import include, library
from fabricsim.scenario.load import Overrides, from_tables, load
from fabricsim.scenario.toml_text import Setting

BROKEN = """\
extends = "gpt2-medium-dp"
sede = 3
transport = "rmda-100g"

[cluster]
hosts = 4
gpus_per_hots = 2
gpu = { include = "a100-pcie-40gb", memory_rate = 1555, peak = { fp4 = "600TFLOPS" } }
cpu = { sockets = true }

[[cluster.nic.interrupt_moderation]]
above = "1kB"
interval = "-5us"

[fabric]
link_rate = "-100Gbps"
spines = 2

[job]
micro_batch = 7.5
sequence = 2048
overlap = "dpp"
bucket = "25Mb"
model = 3
parallelism = "data"
hosts = 2
"""

MISTAKES = {
    "sede": (2, "unknown key", "did you mean 'seed'?"),
    "transport": (3, "there is no 'rmda-100g' in workloads/transports", "did you mean 'rdma-100g'?"),
    "cluster.gpus_per_hots": (7, "unknown key", "did you mean 'gpus_per_host'?"),
    "cluster.gpu.memory_rate": (8, "1555 has no unit", 'a rate needs one, write it like "100Gbps"'),
    "cluster.gpu.peak.fp4": (8, "'fp4' is not one of fp16, bf16, fp32, fp8, mxfp8, nvfp4", "did you mean 'nvfp4'?"),
    "cluster.cpu.sockets": (9, "true is no whole number", "write it without quotes, unit or point"),
    "cluster.nic.interrupt_moderation[0].interval": (13, "'-5us' is negative", "a time is at least 0s"),
    "fabric.link_rate": (16, "'-100Gbps' is negative", "a rate is at least 1Mbps"),
    "fabric.spines": (
        17,
        'has no effect with topology = "single-switch"',
        "take it out, or choose leaf-spine or multi-plane",
    ),
    "job.micro_batch": (20, "7.5 is no whole number", "write it without quotes, unit or point"),
    "job.overlap": (22, "'dpp' is not one of none, ddp", "did you mean 'ddp'?"),
    "job.bucket": (23, "unit 'Mb' is not a size", 'write it like "25MiB"'),
    "job.model": (24, "3 is no table", None),
    "job.parallelism": (25, "'data' is no table", "write it as a table"),
    "job.hosts": (26, "unknown key", "did you mean 'cluster.hosts'?"),
    "job.kernel_launch": ("--set", "unit 'parsec' is not a time", 'write it like "5us"'),
}


def _refusal(path: Path, *overrides: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        load(path, overrides)
    return caught.value


def test_all_mistakes_are_reported_at_once_with_place_value_and_way_out(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN, encoding="utf-8")

    error = _refusal(file, "job.kernel_launch=5 parsec")

    assert {mistake.key for mistake in error.mistakes} == set(MISTAKES)
    assert len(error.mistakes) == len(MISTAKES)
    for mistake in error.mistakes:
        line, problem, way_out = MISTAKES[mistake.key]
        assert mistake.where == (line if isinstance(line, str) else f"{file}:{line}")
        assert mistake.problem == problem
        assert way_out in {None, mistake.way_out}
    assert str(error).startswith(f"{len(MISTAKES)} mistakes in the scenario:\n  ")


@pytest.mark.slow
def test_many_mistakes_are_counted_and_what_helps_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    keys = "".join(f"cluster.key{number} = 1\n" for number in range(40))
    file.write_text(f'extends = "gpt2-medium-dp"\n{keys}', encoding="utf-8")

    text = str(_refusal(file))

    assert text.startswith("40 mistakes in the scenario:\n")
    assert text.endswith("\n  and 28 more")
    assert text.count("known here: ") == 1
    assert len(text) < 2000


def test_messages_are_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN, encoding="utf-8")

    text = str(_refusal(file)).lower()

    assert "pydantic" not in text
    assert "input should" not in text
    assert "http" not in text


def test_checks_across_tables_run_as_far_as_the_good_values_go() -> None:
    """One wrong value must not hide that the group is larger than the cluster."""
    error = _refusal(Path("gpt2-medium-dp"), "job.parallelism.data=99", "job.micro_batch=x", "seed=y")

    assert {mistake.key for mistake in error.mistakes} == {"job.parallelism", "job.micro_batch", "seed"}


def test_a_preset_that_is_not_there_is_the_only_mistake() -> None:
    error = _refusal(Path("gpt2-medium-dp"), "fabric=two-teir")

    assert [(mistake.key, mistake.way_out) for mistake in error.mistakes] == [("fabric", "did you mean 'two-tier'?")]


def test_a_misspelt_key_is_not_taken_as_left_out(tmp_path: Path) -> None:
    file = tmp_path / "typo.toml"
    file.write_text('extends = "gpt2-xl-dp-16"\n', encoding="utf-8")

    error = _refusal(file, "job.parallelism={ data = 16, pipelin = 4 }", "cluster.hosts=8")

    assert [mistake.key for mistake in error.mistakes] == ["job.parallelism.pipelin"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([Setting("collectives=ncl", "--collectives")], "  --collectives: collectives: there is no 'ncl'"),
        ([Setting("job.parallelism.data=16", "s.toml:3"), "cluster.hosts=4"], "  s.toml:3: job.parallelism: "),
        ({"cluster.hosts": "x"}, "  overrides: cluster.hosts: 'x' is no whole number"),
    ],
)
def test_a_mistake_is_said_to_be_where_its_setting_is_from(overrides: Overrides, said: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(f"\n{said}")):
        load("gpt2-medium-dp", overrides)


def test_what_an_unknown_preset_would_have_held_is_not_missed() -> None:
    error = _refusal(Path("gpt2-medium-dp"), "cluster=pinacles")

    (mistake,) = error.mistakes
    assert (mistake.key, mistake.where, mistake.way_out) == ("cluster", "--set", "did you mean 'pinnacles'?")


def test_a_missing_table_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "bare.toml"
    file.write_text('fabric = "single-switch"\ntransport = "tcp-10g"\n[job]\nmicro_batch = 1\n', encoding="utf-8")

    error = _refusal(file)

    keys = [mistake.key for mistake in error.mistakes]
    assert sorted(keys) == ["cluster", "job.global_batch", "job.model", "job.sequence"]
    missing = {mistake.key: mistake for mistake in error.mistakes}
    assert missing["job.sequence"].where == f"{file}:3"
    assert missing["job.sequence"].way_out == "add it to [job]"
    assert "or the name of a preset" in missing["cluster"].way_out


def test_a_mistake_in_a_library_file_names_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in library.KINDS:
        (tmp_path / kind).mkdir()
    (tmp_path / "switches" / "slow.toml").write_text('name = "slow"\n\nlatency = 5\n', encoding="utf-8")
    (tmp_path / "transports" / "a.toml").write_text('include = "b"\n', encoding="utf-8")
    (tmp_path / "transports" / "b.toml").write_text('include = "a"\nswitch = "slow"\n', encoding="utf-8")
    resolved = load("gpt2-medium-dp").resolved
    monkeypatch.setattr(library, "root", lambda: tmp_path)

    fabric = {"topology": "single-switch", "switch": "slow"}
    with pytest.raises(ScenarioError) as caught:
        from_tables({**resolved, "transport": "a", "fabric": fabric})

    text = str(caught.value)
    assert "workloads/switches/slow.toml:3: fabric.switch.latency: 5 has no unit" in text
    assert "fabric.switch.forwarding: is missing" in text
    assert "transport: the library files include each other: a -> b -> a" in text


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("transport=3", "transport: 3 is no table"),
        ("transport.include=3", "transport: include = 3 is no name"),
        ("job=3", "job: 3 is no table"),
        ("job.include=gpt2", "job.include: unknown key"),
        ("seed=-1", "seed: -1 is too small (at least 0)"),
        ("seed=99999999999999999999", "seed: 99999999999999999999 is too large"),
        ("engine=packed", "engine: 'packed' is not one of flow, packet"),
        ("fabric={ topology = 'fat-tree', k = 7 }", "fabric.k: 7 does not fit (a multiple of 2)"),
        (
            "fabric={ topology = 'leaf-spine', hosts_per_leaf = 1, spines = 0 }",
            "fabric.spines: 0 is too small (at least 1)",
        ),
        ("cluster.gpu.gemm_efficiency=1.5", "cluster.gpu.gemm_efficiency: 1.5 is too large (at most 1.0)"),
        ("transport.efficiency=0.0", "transport.efficiency: 0.0 is too small (at least 0.001)"),
        ("cluster.gpu.gemm_efficiency=nan", "cluster.gpu.gemm_efficiency: nan is"),
        ("cluster.gpudirect=yes", "cluster.gpudirect: 'yes' is neither true nor false"),
        ("cluster.nic.interrupt_moderation=3", "cluster.nic.interrupt_moderation: 3 is no list"),
        ("cluster.gpu.peak=3", "cluster.gpu.peak: 3 is no table"),
        ("name=4", "name: 4 is no text (put it in quotes)"),
        ("fabric.link_rate=1e999999999Gbps", "fabric.link_rate: '1e999999999Gbps' is too large"),
        ("fabric.link_rate=100bps", "fabric.link_rate: '100bps' is too small (a rate is at least 1Mbps)"),
        ("job.bucket=1e30GB", "job.bucket: '1e30GB' is too large (a size is at most 1PiB)"),
        ("transport.latency=2e4s", "transport.latency: '2e4s' is too large (a time is at most 3600s)"),
        ("transport.send_copy=1s/B", "transport.send_copy: '1s/B' is too large (a time per byte is at most 8us/B)"),
        ("fabric.host_cable=1e20km", "fabric.host_cable: '1e20km' is too large (a length is at most 20000km)"),
        ("cluster.hosts=1000000000000000000000000000000", "the cluster has"),
        ("job.model.layers=1000000", "job.model.layers: 1000000 layers are too many"),
    ],
)
def test_wrong_values_are_explained(override: str, problem: str) -> None:
    assert problem in str(_refusal(Path("gpt2-medium-dp"), override))


FILES = {
    "empty": (b"", "is empty; `fabricsim list` names what there is"),
    "comments only": (b"# nothing\n\n", "is empty"),
    "zeros": (b"\0" * 64, "is no valid TOML"),
    "binary": (bytes(range(256)), "is no UTF-8 text"),
    "result": (b"\x89HDF\r\n\x1a\n", "is a result, not a scenario; fabricsim report and fabricsim plot read results"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "is no UTF-8 text"),
    "no quotes": (b"seed = 1\nrate = 100Gbps\n", ":2: is no valid TOML: Expected newline"),
    "cut off": (b'[job]\nmodel = "gpt', "is no valid TOML: Unterminated string"),
    "twice": (b"[job]\n[job]\n", ":2: is no valid TOML"),
    "deep": (b"a = [\n" + b"[\n" * 100_000, "is nested too deeply"),
    "deep keys": (b".".join([b"a"] * 1500) + b" = 1", "is nested too deeply"),
    "long line": (b"seed = 1\na = " + b"9" * 5000, ":2: the line is longer than"),
    "large": (b"#" * (2**20 + 1), "is larger than"),
}


@pytest.mark.parametrize(("data", "problem"), FILES.values(), ids=FILES.keys())
def test_what_is_no_scenario_gives_one_clear_error(data: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(data)

    with pytest.raises(InputError) as caught:
        load(file)

    assert str(caught.value).startswith(str(file))
    assert problem in str(caught.value)


def test_random_bytes_never_get_through(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    for seed in range(200):
        file.write_bytes(bytes((seed * 31 + i * i * 7) % 256 for i in range(seed)))
        with pytest.raises(FabricsimError):
            load(file)


@pytest.mark.slow
def test_every_cut_of_a_scenario_is_accepted_or_refused_clearly(tmp_path: Path) -> None:
    text = (BROKEN + library.path("scenarios", "gpt2-medium-dp").read_text(encoding="utf-8")).encode()
    file = tmp_path / "x.toml"
    for length in range(0, len(text), 7):
        file.write_bytes(text[:length])
        try:
            load(file)
        except FabricsimError as error:
            assert str(file) in str(error)  # noqa: PT017  a cut after the first line is a good scenario


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere.toml", "there is no such file or shipped scenario; `fabricsim list scenarios`"),
        ("gpt2-medium", "did you mean 'gpt2-medium-"),
        ("a" * 5000, "there is no such file"),
        ("with\0zero", "there is no such file"),
        ("", "is a directory"),
    ],
)
def test_a_file_that_is_not_there_is_said_so(path: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load(path)

    assert problem in str(caught.value)


def test_a_directory_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; name the scenario file in it"):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(InputError, match="is not a regular file"):
        load(tmp_path / "pipe")


def test_names_stand_for_tables_only_where_there_is_a_library() -> None:
    assert set(include.INCLUDABLE.values()) | {"scenarios", "traffic", "traces", "prices"} == set(library.KINDS)


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("[]", ["fabric.dimensions: has 0 values (at least 1)"]),
        ("[1, 1, 1, 1, 1, 1, 1]", ["fabric.dimensions: has 7 values (at most 6)"]),
        ("[-5, 0]", ["fabric.dimensions[0]: -5 is too small (at least 1)", "fabric.dimensions[1]: 0 is too small"]),
    ],
)
def test_lists_of_too_few_or_too_many_values(lengths: str, said: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("ideal-16", [f'fabric={{topology="torus", dimensions={lengths}}}'])

    assert str(caught.value).splitlines()[1:] == [f"  --set: {each}" for each in said]
