from __future__ import annotations

from pathlib import Path

import pytest

from fabricsim.errors import InputError, ScenarioError
from fabricsim.scenario import library
from fabricsim.scenario.job import Job
from fabricsim.scenario.load import from_tables, load
from fabricsim.scenario.scenario import Scenario


def _job(scenario: Scenario) -> Job:
    assert scenario.job is not None
    return scenario.job


def _write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_shipped_scenario_is_loaded_by_name() -> None:
    loaded = load("gpt2-medium-dp")

    assert loaded.path == library.path("scenarios", "gpt2-medium-dp")
    assert loaded.source == loaded.path.read_text(encoding="utf-8")
    assert loaded.scenario.cluster.gpu.name == "a100-pcie-40gb"
    assert loaded.scenario.transport.line_rate == 12.5e9
    assert loaded.scenario.transport.switch.latency == 90_000
    assert _job(loaded.scenario).model.hidden == 1024


@pytest.mark.parametrize("name", library.names("scenarios"))
def test_resolved_tables_give_the_same_scenario_again(name: str) -> None:
    without = ["cluster.pxn=false"] if name == "rail-only" else []  # which goes with GPUDirect
    loaded = load(name, ["transport=tcp-10g", *without])

    assert from_tables(loaded.resolved) == loaded.scenario
    assert "include" not in str(loaded.resolved)
    assert loaded.resolved["transport"]["line_rate"] == "10Gbps"


def test_a_file_beside_is_extended_key_by_key(tmp_path: Path) -> None:
    _write(tmp_path, 'extends = "gpt2-medium-dp"\ncluster.hosts = 16\nseed = 3\n', "base/base.toml")
    file = _write(tmp_path, 'extends = "base/base.toml"\nseed = 4\n[job]\nglobal_batch = 128\n')

    scenario = load(file).scenario

    assert (scenario.seed, scenario.cluster.hosts, _job(scenario).global_batch) == (4, 16, 128)
    assert _job(scenario).micro_batch == 8
    assert scenario.name == "mine"


def test_a_scenario_has_the_name_that_it_writes(tmp_path: Path) -> None:
    assert load(_write(tmp_path, 'extends = "gpt2-medium-dp"\nname = "x"\n')).scenario.name == "x"


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, 'extends = "b.toml"\n', "a.toml")
    _write(tmp_path, 'seed = 1\nextends = "a.toml"\n', "b.toml")

    with pytest.raises(ScenarioError, match=r"b\.toml:2: extends: the files extend each other: .*a\.toml -> .*b\.toml"):
        load(tmp_path / "a.toml")


def test_what_is_extended_must_exist_and_nothing_else_is_then_missed(tmp_path: Path) -> None:
    file = _write(tmp_path, 'extends = "gpt2-medium-pd"\n[job]\nmicro_batch = 3\n')

    with pytest.raises(ScenarioError) as caught:
        load(file)

    (mistake,) = caught.value.mistakes
    assert mistake.where == f"{file}:1"
    assert "there is no such file or shipped scenario" in mistake.problem


def test_a_syntax_error_in_what_is_extended_names_that_file(tmp_path: Path) -> None:
    _write(tmp_path, "seed = \n", "base.toml")

    with pytest.raises(ScenarioError, match=r"base\.toml:1: is no valid TOML"):
        load(_write(tmp_path, 'extends = "base.toml"\n'))


def test_keys_beside_an_include_override_the_library() -> None:
    gpu = load("gpt2-medium-dp", ["cluster.gpu.memory_rate=2TBps"]).scenario.cluster.gpu

    assert (gpu.name, gpu.memory_rate, gpu.memory) == ("a100-pcie-40gb", 2e12, 79 * 2**29)


def test_library_files_include_others_of_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in library.KINDS:
        (tmp_path / kind).mkdir()
    _write(tmp_path, 'name = "basic"\nlatency = "1us"\nforwarding = "cut-through"\n', "switches/basic.toml")
    _write(tmp_path, 'include = "basic"\nname = "slow"\nlatency = "9us"\n', "switches/slow.toml")
    tables = load("gpt2-medium-dp").resolved
    monkeypatch.setattr(library, "root", lambda: tmp_path)

    switch = from_tables({**tables, "fabric": {**tables["fabric"], "switch": "slow"}}).switch

    assert (switch.name, switch.latency, switch.forwarding) == ("slow", 9_000_000, "cut-through")


def test_library_files_include_others_in_their_tables() -> None:
    cluster = load("hkbu").scenario.cluster

    assert (cluster.nic.name, cluster.nic.socket, cluster.nic.mpi_inline_limit) == ("connectx-5-edr", 1, 64)
    assert cluster.ethernet_nic is not None
    assert (cluster.ethernet_nic.name, cluster.ethernet_nic.latency) == ("intel-10gbe", 19_400_000)
    assert [step.above for step in cluster.ethernet_nic.interrupt_moderation] == [500, 1680]


def test_a_set_name_replaces_the_library_file_and_keeps_what_was_written_beside_it(tmp_path: Path) -> None:
    file = _write(tmp_path, 'extends = "gpt2-medium-dp"\ntransport = { include = "rdma-100g", mtu = 1024 }\n')

    transport = load(file, ["transport=roce-100g"]).scenario.transport

    assert (transport.name, transport.mtu) == ("roce-100g", 1024)


OWN_MODEL = """
cluster = { include = "pinnacles" }
fabric = "single-switch"
transport = "rdma-100g"

[job]
micro_batch = 1
global_batch = 1
sequence = 1024

[job.model]
name = "own"
family = "gpt"
layers = 2
hidden = 64
heads = 2
vocabulary = 100
positions = 2048
"""


def test_a_set_name_replaces_a_table_written_in_full(tmp_path: Path) -> None:
    file = _write(tmp_path, OWN_MODEL)

    assert _job(load(file).scenario).model.positions == 2048
    assert _job(load(file, ["job.model=gpt2-medium"]).scenario).model.positions == 1024


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("cluster.hosts=9", "cluster.hosts", 9),
        (" cluster.hosts = 9 ", "cluster.hosts", 9),
        ('fabric.link_rate="40Gbps"', "fabric.link_rate", 5e9),
        ("fabric.link_rate=40Gbps", "fabric.link_rate", 5e9),
        ("transport=ipoib-100g", "transport.kind", "ipoib"),
        ("job.model=gpt2-xl", "job.model.layers", 48),
        ("cluster.gpu=h100-sxm", "cluster.gpu.name", "h100-sxm"),
        ("cluster.ethernet_nic=intel-10gbe", "cluster.ethernet_nic.name", "intel-10gbe"),
        ("transport.switch=hdr", "transport.switch.name", "hdr"),
        ("collectives={ max_channels = 4 }", "collectives.max_channels", 4),
        ("job.overlap=ddp", "job.overlap", "ddp"),
        ("name=2024-01-01", "name", "2024-01-01"),
        ("name=a=b", "name", "a=b"),
        ("cluster.nic.interrupt_moderation=[]", "cluster.nic.interrupt_moderation", ()),
    ],
)
def test_settings_are_read_as_toml_or_else_as_text(text: str, key: str, value: object) -> None:
    setting: object = load("gpt2-medium-dp", [text]).scenario
    for part in key.split("."):
        setting = getattr(setting, part)

    assert setting == value


def test_later_settings_win() -> None:
    overrides = ["cluster.hosts=12", "cluster=hkbu", "cluster.gpus_per_pcie_switch=1", "seed=1", "seed=2"]

    scenario = load("gpt2-medium-dp", overrides).scenario

    assert (scenario.cluster.name, scenario.cluster.hosts, scenario.seed) == ("hkbu", 12, 2)


@pytest.mark.parametrize("text", ["transport", "=3", "a b=3", "cluster..hosts=3", "", "extends=gpt2-medium-dp"])
def test_settings_without_key_or_value_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--set"):
        load("gpt2-medium-dp", [text])


def test_a_setting_cannot_smuggle_in_another_key() -> None:
    with pytest.raises(ScenarioError, match=r"seed: .* is no whole number"):
        load("gpt2-medium-dp", ["seed=1\nname = 'x'"])


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b'\xef\xbb\xbfextends = "gpt2-medium-dp"\r\nseed = 4\r\n')

    assert load(file).scenario.seed == 4


def test_tables_in_memory_may_use_library_names() -> None:
    tables = {**load("gpt2-medium-dp").resolved, "transport": "tcp-10g"}

    assert from_tables(tables).transport.kind == "tcp"
    with pytest.raises(ScenarioError, match=r"transport: there is no 'tcp' in workloads/transports"):
        from_tables({**tables, "transport": "tcp"})


def test_a_shipped_name_is_extended_though_a_folder_of_that_name_lies_beside(tmp_path: Path) -> None:
    (tmp_path / "gpt2-medium-dp").mkdir()

    assert load(_write(tmp_path, 'extends = "gpt2-medium-dp"\nseed = 4\n')).scenario.seed == 4


def test_the_hkbu_adapters_and_the_fabric_add_up_to_what_was_measured() -> None:
    """Adapter plus fabric is the one-way time of the OSU rows that the adapters are calibrated on."""
    for name, measured_us in (("tcp-10g", 21.5), ("rdma-100g", 2.375)):
        scenario = load("hkbu", [f"transport={name}"]).scenario
        switch, adapter = scenario.switch, scenario.nic
        cables = round(2 * scenario.fabric.host_cable * 5_000)
        again = 1538 * 800 if switch.forwarding == "store-and-forward" else 0
        fabric = switch.latency + cables + again
        assert adapter.mpi_latency is not None
        assert (adapter.mpi_latency + fabric) / 1e6 == pytest.approx(measured_us, abs=0.05)
        if adapter.mpi_inline_latency is not None:
            assert (adapter.mpi_inline_latency + fabric) / 1e6 == pytest.approx(1.74, abs=0.005)


CABLES = "fabric = { topology = 'file', links = 'cables.csv', paths = 'ways/paths.csv' }\n"


def test_files_of_the_fabric_lie_beside_the_scenario_that_names_them(tmp_path: Path) -> None:
    for name in ("cables.csv", "ways/paths.csv"):
        _write(tmp_path, "a,b\n", f"base/{name}")
    _write(tmp_path, f'extends = "gpt2-medium-dp"\n{CABLES}', "base/base.toml")
    file = _write(tmp_path, 'extends = "base/base.toml"\n')

    loaded = load(file)

    assert loaded.scenario.fabric.links == str(tmp_path / "base" / "cables.csv")
    assert loaded.scenario.fabric.paths == str(tmp_path / "base" / "ways" / "paths.csv")
    assert from_tables(loaded.resolved) == loaded.scenario


def test_matrices_of_traffic_lie_beside_the_scenario_and_patterns_are_no_files(tmp_path: Path) -> None:
    _write(tmp_path, "src,dst,bytes\n0,1,10\n", "base/flows.csv")
    _write(tmp_path, "src,dst,bytes\n0,1,10\n", "base/matrix")
    tables = "".join(
        f"[traffic.{name}]\npattern = '{pattern}'\n"
        for name, pattern in {"a": "flows.csv", "b": "matrix", "c": "ring", "d": "absent.csv"}.items()
    )
    _write(tmp_path, f'extends = "gpt2-medium-dp"\n{tables}', "base/base.toml")
    traffic = load(_write(tmp_path, 'extends = "base/base.toml"\n')).scenario.traffic
    found = {name: each.pattern for name, each in traffic.items()}
    base = tmp_path / "base"
    expected = {"a": str(base / "flows.csv"), "b": str(base / "matrix"), "c": "ring", "d": str(base / "absent.csv")}
    assert found == expected


def test_files_of_the_fabric_that_are_set_lie_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, "a,b\n", "cables.csv")
    file = _write(tmp_path, 'extends = "gpt2-medium-dp"\n', "elsewhere/x.toml")
    monkeypatch.chdir(tmp_path)

    fabric = load(file, ["fabric={ topology = 'file' }", "fabric.links=cables.csv"]).scenario.fabric

    assert fabric.links == "cables.csv"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere.csv", "there is no such file"),
        (".", "is a directory"),
        ("", "is a directory"),
        ("a\\u0000b", "there is no such file"),
    ],
)
def test_a_file_of_the_fabric_that_is_not_there_is_said_so_with_its_line(
    name: str, problem: str, tmp_path: Path
) -> None:
    file = _write(tmp_path, f'extends = "gpt2-medium-dp"\n\nfabric = {{ topology = "file", links = "{name}" }}\n')

    with pytest.raises(ScenarioError) as caught:
        load(file)

    (mistake,) = caught.value.mistakes
    assert (mistake.key, mistake.where) == ("fabric.links", f"{file}:3")
    assert problem in mistake.problem


def test_a_file_of_the_user_stands_for_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = library.path("transports", "tcp-10g").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(preset.replace('"tcp-10g"', '"mine"', 1), encoding="utf-8")
    scenario = tmp_path / "study.toml"
    scenario.write_text('extends = "hkbu"\ntransport = "mine.toml"\n', encoding="utf-8")

    assert load(scenario).scenario.transport.name == "mine"  # beside the scenario
    monkeypatch.chdir(tmp_path)
    assert load("hkbu", ["transport=mine.toml"]).scenario.transport.name == "mine"  # below the working directory


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "no such file"), ("name = ", "no valid TOML"), ("mtu = 9", "missing")]
)
def test_a_file_that_cannot_stand_for_a_preset_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError, match=problem):
        load("hkbu", [f"transport={file}"])


def test_a_topology_that_is_written_describes_the_fabric_anew(tmp_path: Path) -> None:
    rails, mine = tmp_path / "rails.toml", tmp_path / "mine.toml"
    shipped = "[fabric]\ntopology = 'leaf-spine'\nrails = true\nhosts_per_leaf = 20\nspines = 20\nhost_cable = '10m'\n"
    rails.write_text(f'extends = "megatron-a100"\n{shipped}radix = 40\n', encoding="utf-8")
    shape = 'topology = "leaf-spine"\nhosts_per_leaf = 1\nspines = 2\n'
    mine.write_text(f'extends = "rails.toml"\n[fabric]\n{shape}', encoding="utf-8")

    assert load(rails).scenario.fabric.rails
    fabric = load(mine).scenario.fabric
    assert (fabric.rails, fabric.hosts_per_leaf, fabric.spines) == (False, 1, 2)
    assert fabric.host_cable == load(rails).scenario.fabric.host_cable  # no matter of the shape
    assert fabric.radix is None
    cluster = ["cluster.hosts=64", "cluster.nics_per_host=1"]
    torus = load(rails, ["fabric={topology='torus', dimensions=[8, 8]}", *cluster], with_job=False).scenario.fabric
    assert torus.routing == "dimension-order"
    with pytest.raises(ScenarioError, match="spines: is missing"):
        load(rails, ["fabric.topology=leaf-spine", "fabric.hosts_per_leaf=2"])
