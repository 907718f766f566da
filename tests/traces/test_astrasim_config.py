from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import InputError, TraceError
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario
from fabricsim.topology import astrasim_file
from fabricsim.topology.astrasim_file import NetworkDimension
from fabricsim.traces.astrasim import scenario as astrasim_scenario
from tests.reference import mutations
from tests.reference.scenarios import measure

NETWORK = """\
# a comment
topology: [ {topology} ]  # Ring, Switch, FullyConnected
npus_count: [ {npus} ]
bandwidth: [ {bandwidth} ] # GB/s
latency: [ {latency} ] # ns
"""
SYSTEM = """{
  "scheduling-policy": "LIFO",
  "all-reduce-implementation": ["%s"],
  "all-gather-implementation": ["ring"],
  "all-to-all-implementation": ["direct"]
}"""
GB = 2**30
MIB = 2**20


def network(topology: str, npus: str, bandwidth: str, latency: str) -> str:
    return NETWORK.format(topology=topology, npus=npus, bandwidth=bandwidth, latency=latency)


def converted(folder: Path, text: str, system: str | None = None) -> tuple[Scenario, tuple[str, ...]]:
    (folder / "net.yml").write_text(text)
    if system is not None:
        (folder / "system.json").write_text(system)
    losses = astrasim_scenario.convert(
        folder / "net.yml", None if system is None else folder / "system.json", folder / "made.toml"
    )
    return load(folder / "made.toml").scenario, losses


def test_dimensions(tmp_path: Path) -> None:
    file = tmp_path / "net.yml"
    file.write_text(network("Switch, Ring", "8, 4", "400, 50.5", "936.25, 1e3"))

    assert astrasim_file.read_network(file) == (
        NetworkDimension("Switch", 8, "400", "936.25"),
        NetworkDimension("Ring", 4, "50.5", "1e3"),
    )
    assert astrasim_file.recognises(file.read_text())
    assert not astrasim_file.recognises("name: other")


def test_block_lists_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "net.yml"
    file.write_text("bandwidth:\n- 150\nlatency:\n- 1000\nnpus_count:\n- 4\ntopology:\n- Switch\nother: {a: [b]}\n")

    assert astrasim_file.read_network(file) == (NetworkDimension("Switch", 4, "150", "1000"),)


@pytest.mark.parametrize(
    ("topology", "npus", "hops"),
    [("Switch", 8, 2), ("Ring", 8, 1), ("FullyConnected", 8, 1), ("Ring", 2, 1)],
)
def test_a_ring_takes_what_links_and_hops_say(tmp_path: Path, topology: str, npus: int, hops: int) -> None:
    made, losses = converted(tmp_path, network(topology, str(npus), "50", "500"), SYSTEM % "ring")

    took = measure(made, "all_reduce", range(npus), 64 * MIB)
    assert took == pytest.approx(2 * (npus - 1) * (64 * MIB / npus / (50 * GB) + hops * 500e-9), rel=1e-6)
    assert losses == ("scheduling-policy = 'LIFO'",)


@pytest.mark.parametrize(("second", "hops"), [("Switch", 2), ("Ring", 1)])
def test_a_switch_in_hosts_and_a_network_between_them(tmp_path: Path, second: str, hops: int) -> None:
    made, _ = converted(tmp_path, network(f"Switch, {second}", "4, 3", "400, 50", "900, 700"), SYSTEM % "ring")

    assert (made.cluster.hosts, made.cluster.gpus_per_host, made.cluster.nics_per_host) == (3, 4, 4)
    size = 96 * MIB
    inside = 2 * 3 * (size / 4 / (400 * GB) + 1800e-9)
    between = 2 * 2 * (size / 12 / (50 * GB) + hops * 700e-9)
    assert measure(made, "all_reduce", range(12), size) == pytest.approx(inside + between, rel=1e-6)
    assert measure(made, "all_gather", range(12), size) > 0


def test_a_torus_has_a_router_for_each_npu(tmp_path: Path) -> None:
    made, losses = converted(tmp_path, network("Ring, Ring", "3, 4", "80, 40", "1000, 2000"), SYSTEM % "ring")

    assert made.cluster.hosts == 12
    assert losses[0] == "all_reduce by ring over 2 dimensions; it runs by ring over all NPUs"
    cables = (tmp_path / "made-cables.csv").read_text().splitlines()
    assert len(cables) == 1 + 12 + 12 + 12
    # neighbours in either dimension, and two hops by the faster way
    assert measure(made, "send_recv", (0, 1), 8 * MIB) == pytest.approx(8 * MIB / (80 * GB) + 1e-6, rel=1e-6)
    assert measure(made, "send_recv", (0, 9), 8 * MIB) == pytest.approx(8 * MIB / (40 * GB) + 2e-6, rel=1e-6)
    assert measure(made, "send_recv", (0, 4), 8 * MIB) == pytest.approx(8 * MIB / (40 * GB) + 3e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("implementation", "npus", "algorithm"),
    [
        ("ring", 8, "ring"),
        ("oneRing", 8, "ring"),
        ("doubleBinaryTree", 8, "tree"),
        ("halvingDoubling", 8, "halving_doubling"),
        ("direct", 8, "direct"),
        ("oneDirect", 8, "direct"),
        ("direct4", 8, "direct"),
        ("unheardOf", 8, None),
    ],
)
def test_algorithms(tmp_path: Path, implementation: str, npus: int, algorithm: str | None) -> None:
    made, losses = converted(tmp_path, network("Switch", str(npus), "50", "500"), SYSTEM % implementation)

    assert made.collectives.algorithm_of("all_reduce") == (algorithm or "ring")
    said = any(loss.startswith(f"all_reduce by {implementation}; it runs by ring") for loss in losses)
    assert said == (algorithm is None)
    assert any("direct4" in loss for loss in losses) == (implementation == "direct4")


def test_direct_over_several_dimensions_is_direct_over_all(tmp_path: Path) -> None:
    made, losses = converted(tmp_path, network("Ring, Ring", "3, 4", "80, 40", "1000, 2000"), SYSTEM % "direct")
    assert made.collectives.algorithm_of("all_reduce") == "direct"
    assert losses[0] == "all_reduce by direct over 2 dimensions; it runs by direct over all NPUs"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topology:", "shape:", "has no list topology; a network of ASTRA-sim has"),
        ("[ 8 ]", "[ 8, 2 ]", "has lists of topology 1, npus_count 2"),
        ("[ 8 ]", "[ 1 ]", "npus_count is '1'; it is a whole number of at least 2"),
        ("[ 8 ]", "[ 999999 ]", "has 999999 NPUs; at most 65536"),
        ("Switch ]", "Mesh ]", "topology is 'Mesh'; it is one of Ring, FullyConnected, Switch"),
        ("[ 50 ]", "[ tbd ]", "bandwidth is 'tbd'; it is a number of GB/s"),
        ("[ 50 ]", "[ 0 ]", "bandwidth is '0'"),
        ("[ 50 ]", "[ .inf ]", "bandwidth is '.inf'"),
        ("[ 500 ]", "[ -1 ]", "latency is '-1'"),
        ("[ 500 ]", "[ 1e99 ]", "latency is '1e99'"),
        ("[ 500 ]", "&a [ 500 ]", ":5: has anchors or aliases"),
        ("[ 500 ]", "*a", ":5: has anchors or aliases"),
        ("[ 500 ]", "[ 500", "is no YAML:"),
        ("latency", "bandwidth", ":5: has 'bandwidth' twice"),
        ("# a comment", "TP:\n  allreduce,: 300", "gives bus bandwidths that SimAI puts into a formula"),
        ("# a comment", "[" * 500, ":1: nests too deep"),
        ("# a comment", "[" * 60_000, ":1: "),  # some parsers give up first
        ("# a comment", "#" * 70_000, "is larger than 64 KiB"),
    ],
)
def test_mistakes_in_a_network(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = network("Switch", "8", "50", "500")
    assert old in text
    with pytest.raises(TraceError) as error:
        converted(tmp_path, text.replace(old, new, 1))

    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "made.toml").exists()


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("[]", "is no system configuration"),
        ("{", "is no system configuration"),
        ("[" * 60_000, "is no system configuration"),
        ('{"all-reduce-implementation": "ring"}', "all-reduce-implementation is 'ring'; it is a list"),
        ('{"all-reduce-implementation": [1]}', "all-reduce-implementation is '[1]'; it is a list"),
        ('{"all-reduce-implementation": ["ri\\nng"]}', "all-reduce-implementation is 'ri\\nng'; an algorithm is"),
        (
            '{"all-reduce-implementation-custom": "ring"}',
            "all-reduce-implementation-custom is 'ring'; it is a list of one",
        ),
        ('{"all-gather-implementation-custom": ["a", "b"]}', "all-gather-implementation-custom is"),
        ('{"all-to-all-implementation-custom": [7]}', "all-to-all-implementation-custom is '[7]'"),
        ('{"all-reduce-implementation-custom": ["a\\nb"]}', "all-reduce-implementation-custom is"),
    ],
)
def test_mistakes_in_a_system(tmp_path: Path, system: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        converted(tmp_path, network("Switch", "8", "50", "500"), system)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_of_a_custom_collective_are_looked_for_from_the_configuration_up(tmp_path: Path) -> None:
    folder = tmp_path / "inputs" / "system"
    folder.mkdir(parents=True)
    (folder / "net.yml").write_text(network("Switch", "8", "50", "500"))
    (folder / "system.json").write_text('{"all-reduce-implementation-custom": ["mine/ring"]}')
    paths = folder / "net.yml", folder / "system.json", tmp_path / "made.toml"
    losses = astrasim_scenario.convert(*paths)
    assert losses == ("all_reduce by the files 'mine/ring', of which .0.et is not found",)
    assert load(tmp_path / "made.toml").scenario.collectives.algorithm_of("all_reduce") == "ring"

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ring.0.et").write_bytes(b"")
    assert not astrasim_scenario.convert(*paths)
    assert 'algorithm = { all_reduce = "mine/ring.*.et" }' in (tmp_path / "made.toml").read_text()
    found = load(tmp_path / "made.toml").scenario.collectives.algorithm
    assert found == {"all_reduce": str(tmp_path / "mine" / "ring.*.et")}


def test_what_stands_in_a_comment_cannot_leave_it(tmp_path: Path) -> None:
    system = r'{"a\nname = \"other\"": "b\r\nseed = 5"}'
    made, losses = converted(tmp_path, network("Switch", "8", "50", "500"), system)

    assert (made.name, made.seed) == ("made", 0)
    assert len(losses) == 1


def test_a_network_of_too_many_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the network has 2001000 links, at most 250000 can be written"):
        converted(tmp_path, network("FullyConnected", "2000", "50", "500"))


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_configurations_end_in_a_scenario_or_an_error(tmp_path: Path, data: st.DataObject) -> None:
    samples = [network("Switch, Ring", "4, 3", "400, 50", "900, 700").encode(), network("Ring", "8", "5", "5").encode()]
    (tmp_path / "net.yml").write_bytes(data.draw(mutations.damaged(samples)))
    (tmp_path / "system.json").write_bytes(data.draw(mutations.damaged([(SYSTEM % "ring").encode()])))
    try:
        astrasim_scenario.convert(tmp_path / "net.yml", tmp_path / "system.json", tmp_path / "made.toml")
    except InputError:
        return
    assert load(tmp_path / "made.toml").scenario.cluster.ranks > 1


def test_examples_of_astrasim_and_simai(traces: Path, tmp_path: Path) -> None:
    with tarfile.open(traces / "astrasim" / "examples.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    read = {}
    for file in sorted(tmp_path.rglob("*.yml")):
        try:
            astrasim_scenario.convert(file, None, tmp_path / "made.toml")
            read[file.stem] = load(tmp_path / "made.toml").scenario.cluster.ranks
        except TraceError as error:
            read[file.stem] = str(error).partition(": ")[2]

    assert read.pop("dgx_v100_8gpu").startswith("bandwidth is 'tbd'")
    assert read == {
        "dgx_v100_4gpu": 4,
        "hgx_h100_2gpu": 2,
        "hgx_h100_4gpu": 4,
        "hgx_h100_8gpu": 8,
        "hgx_h100_16gpu": 16,
        "hgx_h100_32gpu": 32,
        "tpu_v3_8": 8,
        "tpu_v3_32_ring": 32,
        "tpu_v3_32_2dtorus": 32,
    }
    for name in ("busbw.yaml", "nic_ratio.csv"):
        with pytest.raises(TraceError, match="gives bus bandwidths that SimAI puts into a formula"):
            astrasim_file.read_network(traces / "simai" / name)
