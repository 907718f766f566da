from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fabricsim = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).resolve().parents[2]
RATE = 12.5e9  # bytes/s of ideal-100g


@pytest.fixture
def run(fabricsim: Fabricsim) -> Callable[..., dict[str, Any]]:
    """What ``fabricsim traffic ... --json`` prints."""

    def traffic(*arguments: str) -> dict[str, Any]:
        code, out, err = fabricsim("traffic", *arguments, "--json")
        assert (code, err) == (0, "")
        content: dict[str, Any] = json.loads(out)
        return content

    return traffic


@pytest.fixture
def refused(fabricsim: Fabricsim, tmp_path: Path) -> Callable[..., str]:
    """The message of a command that has to fail and leave nothing behind."""

    def traffic(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = fabricsim("traffic", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("fabricsim: ")
        assert sorted(tmp_path.rglob("*")) == before
        return err.removeprefix("fabricsim: ").strip()

    return traffic


@pytest.fixture
def flows(tmp_path: Path) -> str:
    (tmp_path / "mine.csv").write_text("src,dst,bytes,start_ns\n0,2,12500000,0\n1,2,12500000,500000\n3,0,1,7\n")
    return "mine.csv"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_name_is_of_what_was_set(fabricsim: Fabricsim) -> None:
    torus = ("--set", "cluster.hosts=4", "--set", 'fabric={topology="torus",dimensions=[2,2]}')
    named = ("--cluster", "pinnacles", "--fabric", "two-tier")
    for settings, name in ((torus, "ideal/torus"), (named, "pinnacles/two-tier"), (("--set", "name=mine"), "mine")):
        _, out, _ = fabricsim("traffic", "ring", "--size", "1MB", *settings)
        assert f"ring on {name} over" in out


# ---- what it prints -----------------------------------------------------------------------------


def test_table_names_times_slowdowns_and_tiers_with_the_busiest_link(fabricsim: Fabricsim, flows: str) -> None:
    code, out, err = fabricsim("traffic", flows)

    assert (code, err) == (0, "")
    assert "mine.csv on ideal/single-switch over ideal-100g: 3 flows" in out
    for word in (
        "Makespan 2 ms",
        "completion time",
        "slowdown",
        "p50",
        "p99",
        "switch0->host2",
        "100.0 %",
        "use over the makespan",
    ):
        assert word in out
    assert "Hottest" not in out
    assert out.count("switch*->host*") == 1


def test_json_has_every_flow(run: Callable[..., dict[str, Any]], flows: str) -> None:
    # alone a flow of 12.5 MB takes 1 ms; the second begins half way, and they share the link into rank 2
    content = run(flows, "--fabric", "single-switch", "--set", "fabric.host_cable=0m")

    assert [flow["completion_time_s"] for flow in content["flows"]] == pytest.approx([1.5e-3, 1.5e-3, 8e-11])
    assert [flow["slowdown"] for flow in content["flows"]] == pytest.approx([1.5, 1.5, 1.0])
    assert [flow["start_s"] for flow in content["flows"]] == pytest.approx([0.0, 5e-4, 7e-9])
    assert [(flow["id"], flow["source"], flow["target"]) for flow in content["flows"]] == [
        (1, 0, 2),
        (2, 1, 2),
        (3, 3, 0),
    ]
    assert content["makespan_s"] == pytest.approx(2e-3)
    assert (content["flow_count"], content["total_bytes"]) == (3, 25_000_001)
    assert content["slowdown"]["p50"] == pytest.approx(1.5)
    assert content["links"][0]["name"] == "switch0->host2"
    assert content["resources"][0]["busiest"] == "switch0->host2"
    assert content["resources"][0]["utilisation_max"] == pytest.approx(1.0)
    assert content["links"][0]["utilisation"] == pytest.approx(1.0)
    assert (content["links"][0]["flows"], content["links"][0]["payload_bytes"]) == (2, 25_000_000)


@pytest.mark.slow
def test_same_seed_same_bytes(run: Callable[..., dict[str, Any]]) -> None:
    arguments = ("poisson", "--fabric", "fat-tree-k8", "--transport", "roce-100g", "--flows", "300", "--size", "hadoop")
    first, again, other = (run(*arguments, "--seed", seed) for seed in ("3", "3", "4"))

    for content in (first, again, other):
        del content["wall_seconds"]
    assert json.dumps(first) == json.dumps(again)
    assert first["flows"] != other["flows"]
    assert (first["seed"], other["seed"]) == (3, 4)


@pytest.mark.slow
def test_pictures_and_json_are_written(fabricsim: Fabricsim, flows: str, tmp_path: Path) -> None:
    code, out, err = fabricsim("traffic", flows, "-o", "a/b", "--json")

    assert code == 0
    stem = "a/b/mine-ideal-single-switch-ideal-100g-flow"
    assert err.splitlines() == [f"wrote {stem}{end}" for end in (".json", "-fct.png", ".h5")]
    assert files(tmp_path) == [f"{stem}-fct.png", f"{stem}.h5", f"{stem}.json", flows]
    assert (tmp_path / f"{stem}.json").read_text() == out
    assert (tmp_path / f"{stem}-fct.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_runs_that_are_compared_do_not_overwrite_one_another(fabricsim: Fabricsim, tmp_path: Path) -> None:
    for options in (["--transport", "tcp-10g"], ["--transport", "rdma-100g"], ["gpt2-medium-dp"]):
        assert fabricsim("traffic", "ring", *options, "--size", "1MB", "-o", "out")[0] == 0

    assert [name for name in files(tmp_path) if name.endswith(".h5")] == [
        "out/ring-gpt2-medium-dp-rdma-100g-flow.h5",
        "out/ring-ideal-single-switch-rdma-100g-flow.h5",
        "out/ring-ideal-single-switch-tcp-10g-flow.h5",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_its_result_is_drawn_and_run_again(fabricsim: Fabricsim, flows: str, tmp_path: Path, engine: str) -> None:
    tap = ["--tap", "rate:switch0->*"] if engine == "packet" else []
    _, out, _ = fabricsim("traffic", flows, "--engine", engine, *tap, "-o", "out", "--json")
    (tmp_path / flows).unlink()  # the result has all that it takes
    (result,) = (tmp_path / "out").glob("*.h5")

    code, again, _ = fabricsim("rerun", f"out/{result.name}", *tap, "-o", "again.h5", "--json")
    one, other = json.loads(out), json.loads(again)
    del one["wall_seconds"], other["wall_seconds"]
    assert code == 0
    assert one == other
    assert (tmp_path / "again.h5").read_bytes() == result.read_bytes()

    assert fabricsim("plot", "again.h5", "-o", "drawn")[0] == 0
    drawn = [path.removeprefix("drawn/again-") for path in files(tmp_path) if path.startswith("drawn/")]
    assert drawn == (["fct.png", "rates.png"] if tap else ["fct.png"])


# ---- closed forms -------------------------------------------------------------------------------


def test_ring_on_a_star_is_as_if_each_flow_were_alone(run: Callable[..., dict[str, Any]]) -> None:
    content = run("ring", "--size", "10MB")

    assert content["slowdown"]["max"] == pytest.approx(1.0, rel=1e-9)
    # two cables of 5 m at 5 ns/m
    assert content["completion_time_s"]["max"] == pytest.approx(10e6 / RATE + 50e-9, rel=1e-9)
    assert [row["utilisation"] for row in content["links"]] == pytest.approx([1.0] * 10, rel=1e-4)


@pytest.mark.parametrize("senders", [1, 4, 15])
def test_incast_takes_as_long_as_its_bytes_on_the_receivers_link(
    run: Callable[..., dict[str, Any]], senders: int
) -> None:
    content = run("incast", "--flows", str(senders), "--size", "1MB")

    assert content["makespan_s"] == pytest.approx(senders * 1e6 / RATE + 50e-9, rel=1e-9)
    assert "switch0->host0" in {row["name"] for row in content["links"] if row["flows"] == senders}


def test_all_to_all_shares_each_ranks_link(run: Callable[..., dict[str, Any]]) -> None:
    content = run("all-to-all", "--size", "1MB")

    assert content["flow_count"] == 16 * 15
    assert content["completion_time_s"]["min"] == pytest.approx(15 * 1e6 / RATE + 50e-9, rel=1e-6)
    assert content["completion_time_s"]["max"] == pytest.approx(15 * 1e6 / RATE + 50e-9, rel=1e-6)


def test_overhead_and_latency_of_the_transport_are_in_the_time_alone(run: Callable[..., dict[str, Any]]) -> None:
    alone = run("incast", "--flows", "1", "--size", "1B", "--transport", "rdma-100g")["completion_time_s"]["max"]

    assert alone > 2e-6  # 1 us of overhead, 1 us of latency, the switch and the cables
    assert run("ring", "--transport", "rdma-100g")["slowdown"]["max"] == pytest.approx(1.0, rel=1e-9)
    # slow start of TCP is not in the time alone
    assert run("incast", "--flows", "1", "--transport", "tcp-10g")["slowdown"]["max"] > 1


@pytest.mark.parametrize("transport", ["ideal-100g", "rdma-100g", "roce-100g"])
@pytest.mark.parametrize("size", ["1B", "1kB", "8192B", "40960B"])  # packets hold 4096 B
def test_a_flow_of_packets_alone_has_no_slowdown(run: Callable[..., dict[str, Any]], size: str, transport: str) -> None:
    options = ("--size", size, "--transport", transport, "--engine", "packet")

    assert run("incast", "--flows", "1", *options)["slowdown"]["max"] == pytest.approx(1.0, rel=1e-5)


def test_packets_of_flows_that_share_a_link_are_slowed_down(run: Callable[..., dict[str, Any]]) -> None:
    content = run("incast", "--flows", "4", "--size", "40960B", "--transport", "ideal-100g", "--engine", "packet")

    assert content["slowdown"]["max"] > 1.5  # into rank 0


def test_a_flow_of_one_byte_alone_has_no_slowdown(run: Callable[..., dict[str, Any]]) -> None:
    content = run("incast", "--flows", "1", "--size", "1B", "--transport", "ideal-100g", "--engine", "packet")

    assert content["slowdown"]["max"] == pytest.approx(1.0)


def test_a_new_connection_that_loses_its_whole_window_waits_for_the_minimum_timeout(
    run: Callable[..., dict[str, Any]],
) -> None:
    scenario = ["ideal-16", "--set", "cluster.hosts=33", "--set", "fabric.switch.buffer.per_port=60kB"]
    options = ["--flows", "32", "--size", "1MB", "--transport", "peers-new-reno-ns3", "--engine", "packet"]
    content = run("incast", *scenario, *options)

    # 32 MB take 2.6 ms; timeouts are 5 ms and double. Those of flows without a measurement would be 1 s.
    assert content["counters"]["timeouts"] > 32
    assert max(flow["completion_time_s"] for flow in content["flows"]) < 0.2


# ---- scenarios and matrices ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["gpt2-medium-dp", "dai2024", "what-if-leaf-spine", "hkbu"])
def test_bytes_are_conserved_on_every_kind_of_host(run: Callable[..., dict[str, Any]], scenario: str) -> None:
    content = run("permutation", scenario, "--size", "websearch")

    assert content["name"] == scenario
    assert content["total_bytes"] == sum(flow["size_bytes"] for flow in content["flows"])
    assert content["counters"]["messages"] == content["flow_count"]
    assert all(flow["slowdown"] > 1 - 1e-9 for flow in content["flows"])
    assert all(0 < row["utilisation"] <= 1 + 1e-9 for row in content["links"])


@pytest.mark.parametrize("name", ["perm128.cm", "perm128.csv"])
def test_permutation_of_peers_on_the_fat_tree(run: Callable[..., dict[str, Any]], name: str) -> None:
    folder = Path(os.environ.get("FABRICSIM_PEERS") or ROOT.parent / "shared" / "peers") / "inputs"
    if not folder.is_dir():
        pytest.skip("inputs of other simulators are not here: set FABRICSIM_PEERS")
    content = run(str(folder / name), "--fabric", "fat-tree-k8")

    times = [flow["completion_time_s"] for flow in content["flows"]]
    assert (len(times), content["total_bytes"]) == (128, 128 * 10_240_000)
    assert min(times) >= 10_240_000 / RATE
    # under four ECMP hash seeds the peers have means of 2091 to 2351 us, on given paths 1550 us
    assert 1.2e-3 < content["completion_time_s"]["mean"] < 2.6e-3


def test_hosts_are_as_many_as_the_matrix_has_endpoints_unless_said_otherwise(
    run: Callable[..., dict[str, Any]], refused: Callable[..., str], flows: str, tmp_path: Path
) -> None:
    (tmp_path / "wide.cm").write_text("Nodes 40\nConnections 1\n39->0 id 5 start 0 size 1000\n")

    assert run("wide.cm")["flow_count"] == 1
    message = "wide.cm: flow 5 goes from rank 39 to 0, but the cluster has ranks 0 to 15; raise cluster.hosts"
    assert refused("wide.cm", "ideal-16") == message
    assert refused("wide.cm", "--cluster", "ideal") == message
    assert run("wide.cm", "ideal-16", "--set", "cluster.hosts=40")["flow_count"] == 1
    assert run(flows, "--set", "cluster.hosts=9")["flow_count"] == 3


def test_a_file_that_is_called_as_a_pattern_is_read(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("src,dst,bytes\n0,1,5\n")

    assert run("ring")["total_bytes"] == 5


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rign"], "rign: there is no such file or pattern; did you mean 'ring'?"),
        (["x" * 5000], "there is no such file or pattern; patterns are permutation, incast"),
        (["."], ".: is a directory"),
        (["mine.csv", "--size", "1MB"], "--size has no effect: mine.csv is a file"),
        (["mine.csv", "--flows", "2"], "--flows has no effect: mine.csv is a file"),
        (["mine.csv", "--load", "0.5"], "--load has no effect: mine.csv is a file"),
        (["ring", "--size", "10"], "'10' has no unit"),
        (["ring", "--size", "hadop"], "did you mean 'hadoop'?"),
        (["ring", "--size", "0B"], "is less than a byte, and moves nothing"),
        (["ring", "--size", "2PiB"], "'2PiB' is too large"),
        (["ring", "--flows", "2"], "the number of flows of ring is that of the ranks"),
        (["incast", "--flows", "99"], "99 flows: incast over 16 ranks has 1 to 15"),
        (["poisson", "--load", "0"], "a load of 0.0 is not above 0"),
        (["ring", "idael-16"], "did you mean 'ideal-16'?"),
        (["ring", "--fabric", "fat-tree"], "fabric: there is no 'fat-tree' in workloads/fabrics"),
        (["ring", "--set", "cluster.hosts=1"], "ring needs at least 2 ranks"),
        (["ring", "-o", "mine.csv"], "-o mine.csv: cannot be used as output folder"),
    ],
)
def test_what_cannot_be_run(refused: Callable[..., str], flows: str, arguments: list[str], message: str) -> None:
    assert flows == "mine.csv"
    assert message in refused(*arguments)


def test_broken_matrix_names_its_line(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("src,dst,bytes\n0,1,5\n0,1,0\n")

    assert refused("bad.csv", "-o", "out") == "bad.csv:3: bytes '0' is too small; write 1 or more"


CABLES = "cluster.hosts{}: the leaf-spine fabric of 1000000 hosts has 17000000 cables (at most 2097152 can be built: "


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            "Nodes 1000000\nConnections 1\n0->1 id 1 start 0 size 9\n",
            ["--engine", "packet"],
            "wide:1: cluster.hosts = 1000000, from this line: 1000000 hosts give a switch of the single-switch fabric",
        ),
        (
            "src,dst,bytes\n0,5,9\n999999,5,9\n",
            ["--fabric", "meta-pod"],
            "wide:3: " + CABLES.format(" = 1000000, from this line"),
        ),
        (
            "src,dst,bytes\n0,5,9\n",
            ["--fabric", "meta-pod", "--set", "cluster.hosts=1000000"],
            "--set: " + CABLES.format(""),
        ),
    ],
)
def test_a_fabric_that_would_take_minutes_to_build_is_refused_at_once(
    refused: Callable[..., str], tmp_path: Path, text: str, arguments: list[str], message: str
) -> None:
    (tmp_path / "wide").write_text(text)

    assert message in refused("wide", *arguments)
