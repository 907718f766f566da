"""Every kind of broken input ends in one clear error: exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricsim.errors import brief

Fabricsim = Callable[..., tuple[int, str, str]]

GARBAGE = bytes(range(256)) * 16
BENCH = ["bench", "all_reduce", "--cluster", "hkbu", "--transport", "tcp-10g"]

LOG = """\
# nThread 1 nGpus 1 minBytes 4 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           4             1   float     sum   162.70    0.00    0.00  2e-07   160.44    0.00    0.00  1e-07
           8             2   float     sum   161.03    0.00    0.00  1e-07   160.67    0.00    0.00  1e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0001
"""


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that lies in a folder: the bytes of files, None for folders."""
    found = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in found}


def refused(fabricsim: Fabricsim, *arguments: str) -> str:
    """Run a command that must fail as promised; gives its message back."""
    before = tree(Path())
    code, out, err = fabricsim(*arguments)

    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.count("fabricsim: ") == 1
    assert err.startswith("fabricsim: ")
    assert tree(Path()) == before
    return err.removeprefix("fabricsim: ").strip()


def refused_by_parser(fabricsim: Fabricsim, *arguments: str) -> str:
    """Run a command that the option parser must refuse; gives its message back."""
    code, out, err = fabricsim(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("Usage: fabricsim")
    assert err.count("Error: ") == 1
    return err.split("Error: ")[1].strip()


# ---- the ten kinds: scenarios -------------------------------------------------------------------

SCENARIOS = {
    "unknown key": ("[cluster]\nhosts = 2\nhsots = 3", "bad.toml:4: cluster.hsots: unknown key"),
    "missing unit": ("[job]\noverlap = 'ddp'\nbucket = 25", "bad.toml:4: job.bucket: 25 has no unit (a size needs one"),
    "negative rate": (
        "[fabric]\ninclude = 'two-tier'\nuplink_rate = '-10Gbps'",
        "bad.toml:4: fabric.uplink_rate: '-10Gbps' is negative",
    ),
    "unreachable rank": (
        "[fabric]\ntopology = 'leaf-spine'\nhosts_per_leaf = 4\nspines = 0",
        "bad.toml:5: fabric.spines: 0 is too small (at least 1)",
    ),
    "hosts that the fabric does not reach": (
        "[fabric]\ntopology = 'fat-tree'\nk = 2",
        "bad.toml:4: fabric.k: a fat tree of 2-port switches holds 2 hosts",
    ),
    "group larger than the cluster": (
        "[job]\nglobal_batch = 128\n[job.parallelism]\ndata = 16",
        "job.parallelism: the group is larger than the cluster: data 16 x pipeline 1 = 16 ranks",
    ),
    "0-byte chunk": ("[collectives]\nchunk = '0B'", "bad.toml:3: collectives.chunk: is zero"),
    "0-byte bucket": ("[job]\noverlap = 'ddp'\nbucket = '0MB'", "bad.toml:4: job.bucket: is zero"),
    "cut in the middle": ("[job]\nmicro_batch =", "bad.toml:3: is no valid TOML"),
    "no job": ("[job", "bad.toml:2: is no valid TOML"),
}


@pytest.mark.parametrize("command", ["run", "check", "compare"])
@pytest.mark.parametrize("kind", SCENARIOS)
def test_broken_scenario(fabricsim: Fabricsim, tmp_path: Path, kind: str, command: str) -> None:
    text, message = SCENARIOS[kind]
    (tmp_path / "bad.toml").write_text(f"extends = 'gpt2-medium-dp'\n{text}\n", encoding="utf-8")
    options = {"run": ["-o", "out.h5"], "compare": ["--transport", "tcp-10g", "-o", "out"], "check": []}

    assert message in refused(fabricsim, command, "bad.toml", *options[command])


NO_SCENARIO = {
    "binary garbage": (GARBAGE, "bad.toml: is no UTF-8 text (byte 128 is 0x80)"),
    "text garbage": (b"%PDF-1.4 of something", "bad.toml:1: is no valid TOML"),
    "empty file": (b"", "bad.toml: is empty"),
    "only a comment": (b"# nothing\n", "bad.toml: is empty"),
    "nothing but a name": (b"name = 'x'\n", "cluster: is missing"),
    "control characters": (b"name = 'x\x00'\n", "bad.toml:1: is no valid TOML"),
}


@pytest.mark.parametrize("kind", NO_SCENARIO)
def test_no_scenario_at_all(fabricsim: Fabricsim, tmp_path: Path, kind: str) -> None:
    content, message = NO_SCENARIO[kind]
    (tmp_path / "bad.toml").write_bytes(content)

    assert message in refused(fabricsim, "run", "bad.toml", "-o", "out.h5")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", ".: is a directory; name the scenario file in it"),
        ("nothing.toml", "nothing.toml: there is no such file or shipped scenario"),
        ("gpt2-medim-dp", "gpt2-medim-dp: there is no such file or shipped scenario; did you mean 'gpt2-medium-dp'?"),
        ("x" * 5000, "there is no such file or shipped scenario"),
        ("", "is a directory"),
        ("hkbu", "there is no [job] to run"),
    ],
)
def test_scenario_that_cannot_be_run(fabricsim: Fabricsim, name: str, message: str) -> None:
    assert message in refused(fabricsim, "run", name, "-o", "out.h5")


@pytest.mark.parametrize(
    "command",
    [
        "bench all_reduce",
        "traffic permutation",
        "topology",
        "compare --traffic permutation --transport tcp-10g,rdma-100g",
    ],
)
@pytest.mark.parametrize(
    ("setting", "left"), [("job.micro_batch=2", "job"), ("job={}", "job"), ("traffic=[]", "traffic")]
)
def test_settings_of_a_job_that_is_left_aside(fabricsim: Fabricsim, command: str, setting: str, left: str) -> None:
    message = refused(fabricsim, *command.split(), "gpt2-medium-dp", "--set", setting)
    assert message.startswith(f"{setting.partition('=')[0]}: {left} of the scenario is left aside here")


def test_compare_needs_a_job_too(fabricsim: Fabricsim) -> None:
    message = refused(fabricsim, "compare", "hkbu", "--transport", "tcp-10g,rdma-100g", "--jobs", "2", "-o", "out")

    assert "there is no [job] to run" in message


# ---- the ten kinds: logs ------------------------------------------------------------------------

ROW = LOG.splitlines(keepends=True)[6]
LOGS = {
    "truncated log": (LOG[: LOG.index("161.03") + 4].encode(), "log:7: "),
    "header only": (LOG[: LOG.index("           4")].encode(), "log: "),
    "binary garbage": (GARBAGE, "log:1: "),
    "empty file": (b"", "log: is empty"),
    "0-byte rows only": (
        "".join(LOG.splitlines(keepends=True)[:5]).encode() + ROW.replace(" 8 ", " 0 ").replace(" 2 ", " 0 ").encode(),
        "log: has no row that moves bytes",
    ),
    "cut gzip": (b"\x1f\x8b\x08\x00\x00\x00", "log: the packed file is damaged or cut"),
    "another collective": (
        LOG.replace("# nThread", "# all_gather_perf nThread").encode(),
        "log: is a log of all_gather, not of all_reduce",
    ),
    "too large for a GPU": (
        LOG.replace("           8  ", "200000000000  ").encode(),
        "does not fit into the 10.24 GiB of a rtx-2080-ti",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGS)
def test_broken_log(fabricsim: Fabricsim, tmp_path: Path, kind: str) -> None:
    content, message = LOGS[kind]
    (tmp_path / "log").write_bytes(content)

    assert message in refused(fabricsim, *BENCH, "--against", "log")


def test_whole_log_is_taken(fabricsim: Fabricsim, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)

    code, out, _ = fabricsim(*BENCH, "--against", "log")

    assert code == 0
    assert "# against log:" in out


@pytest.mark.parametrize(
    ("name", "message"), [(".", ".: is a directory; name one file in it"), ("none", "none: no such file")]
)
@pytest.mark.parametrize("test", ["all_reduce", "latency"])
def test_log_that_is_no_file(fabricsim: Fabricsim, test: str, name: str, message: str) -> None:
    assert message in refused(fabricsim, "bench", test, *BENCH[2:], "--against", name)


def test_log_of_another_number_of_ranks(fabricsim: Fabricsim, tmp_path: Path) -> None:
    devices = "".join(f"#  Rank  {n} Pid 4223{n} on gpu1 device  {n} [0x3d] GeForce RTX 2080 Ti\n" for n in range(2))
    (tmp_path / "log").write_text(LOG.replace("#\n", devices, 1))

    message = refused(fabricsim, *BENCH, "--against", "log")

    assert message == "log: was captured on 2 ranks, cluster hkbu has 32"


def test_log_of_another_benchmark(fabricsim: Fabricsim, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n1     0.5\n")

    assert "holds bandwidth, not latency" in refused(fabricsim, "bench", "latency", *BENCH[2:], "--against", "log")
    assert "log" in refused(fabricsim, *BENCH, "--against", "log")


# ---- the ten kinds: sizes of a bench ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-bytes", "0B"], "--min-bytes 0B: a transfer of 0 bytes moves nothing; start at 1B or more"),
        (["--min-bytes", "0.2B"], "--min-bytes 0.2B: a transfer of 0 bytes moves nothing"),
        (["--min-bytes=-4B"], "'-4B' is negative"),
        (["--min-bytes", "4"], "'4' has no unit"),
        (["--max-bytes", "4Gbps"], "unit 'Gbps' is not a size"),
        (["--min-bytes", "4KiB", "--max-bytes", "1KiB"], "--min-bytes 4KiB is above --max-bytes 1KiB"),
        (["--max-bytes", "1TiB"], "a buffer of 1 TiB does not fit"),
        (["--max-bytes", "1e99999B"], "'1e99999B' is too large"),
        (["--cluster", "hkbuu"], "no preset 'hkbuu' in clusters; did you mean 'hkbu'?"),
        (["--transport", "tcp10g"], "no preset 'tcp10g' in transports; did you mean 'tcp-10g'?"),
        (["--collectives", "ncl"], "no preset 'ncl' in collectives; did you mean 'nccl'?"),
        (["--transport", "../transports/tcp-10g"], "no preset '../transports/tcp-10g' in transports"),
    ],
)
def test_bench_that_cannot_be_run(fabricsim: Fabricsim, options: list[str], message: str) -> None:
    assert message in refused(fabricsim, *BENCH, *options)


def test_bench_on_nothing(fabricsim: Fabricsim) -> None:
    assert "name a SCENARIO, or --cluster and --transport" in refused(
        fabricsim, "bench", "all_reduce", "--cluster", "hkbu"
    )
    assert "needs two; add --set cluster.hosts=2" in refused(
        fabricsim, *BENCH[:2], "gpt2-medium-dp", "--set", "cluster.hosts=1"
    )


def test_unknown_test(fabricsim: Fabricsim) -> None:
    message = refused(fabricsim, "bench", "allreduce", *BENCH[2:])

    assert message == "there is no test 'allreduce'; did you mean 'all_reduce'?"


def test_latency_over_a_transport_without_mpi(fabricsim: Fabricsim) -> None:
    message = refused(fabricsim, "bench", "latency", "--cluster", "ideal", "--transport", "ideal-100g")

    assert message.startswith("transport ideal-100g has no [mpi] table")


# ---- the ten kinds: traffic matrices ------------------------------------------------------------

MATRICES = {
    "unreachable rank": (b"src,dst,bytes\n0,99,1000\n", "99"),
    "0-byte transfer": (b"src,dst,bytes\n0,1,1000\n0,1,0\n", "matrix:3: "),
    "negative size": (b"src,dst,bytes\n0,1,-1000\n", "matrix:2: "),
    "cut row": (b"src,dst,bytes\n0,1,1000\n0,1", "matrix:3: "),
    "header only": (b"src,dst,bytes\n", "matrix: "),
    "binary garbage": (GARBAGE, "matrix"),
    "empty file": (b"", "matrix: is empty"),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_broken_matrix(fabricsim: Fabricsim, tmp_path: Path, kind: str) -> None:
    content, message = MATRICES[kind]
    (tmp_path / "matrix").write_bytes(content)

    assert message in refused(fabricsim, "traffic", "matrix", "--cluster", "hkbu", "-o", "out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], ".: is a directory"),
        (["incats"], "incats: there is no such file or pattern; did you mean 'incast'?"),
        (["incast", "--size", "0B"], "size '0B' is less than a byte, and moves nothing"),
        (["incast", "--size", "1000"], "'1000' has no unit"),
        (["incast", "--flows", "99"], "incast over 16 ranks has 1 to 15"),
        (["incast", "--transport", "tcp10g"], "did you mean 'tcp-10g'?"),
    ],
)
def test_traffic_that_cannot_be_sent(fabricsim: Fabricsim, arguments: list[str], message: str) -> None:
    assert message in refused(fabricsim, "traffic", *arguments, "-o", "out")


# ---- the ten kinds: results ---------------------------------------------------------------------

RESULTS = {
    "binary garbage": (GARBAGE, "bad.h5: "),
    "empty file": (b"", "bad.h5: "),
    "a scenario": (b"extends = 'gpt2-medium-dp'\n", "bad.h5: "),
}


@pytest.mark.parametrize("command", [["plot", "-o", "out"], ["rerun", "-o", "out.h5"]])
@pytest.mark.parametrize("kind", RESULTS)
def test_broken_result(fabricsim: Fabricsim, tmp_path: Path, kind: str, command: list[str]) -> None:
    content, message = RESULTS[kind]
    (tmp_path / "bad.h5").write_bytes(content)

    assert message in refused(fabricsim, command[0], "bad.h5", *command[1:])


@pytest.mark.parametrize("command", [["plot", "-o", "out"], ["rerun", "-o", "out.h5"]])
def test_truncated_result(fabricsim: Fabricsim, result: Path, command: list[str]) -> None:
    result.write_bytes(result.read_bytes()[: result.stat().st_size // 2])

    assert "small.h5: " in refused(fabricsim, command[0], result.name, *command[1:])


@pytest.mark.parametrize("command", ["plot", "rerun"])
def test_directory_for_a_result(fabricsim: Fabricsim, command: str) -> None:
    assert refused(fabricsim, command, ".").startswith(".: is not a file")


# ---- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "fluid"], "  --engine: 'fluid' is not one of flow, packet"),
        (["--engine", "3"], "  --engine: '3' is not one of flow, packet"),
        (
            ["--tap", "queue:*"],
            'taps and captures need packets, and the flow engine has none; set engine = "packet"',
        ),
        (["--pcap", "*"], 'taps and captures need packets, and the flow engine has none; set engine = "packet"'),
        (["--tap", "depth:*"], "tap 'depth:*': there is no kind 'depth'; there are queue, rate, flow"),
        (
            ["--tap", "queue:spine*", "--engine", "packet"],
            "tap queue:spine*: no wire is called so; there are host0->",
        ),
        (["--seed", "-1"], "  --seed: -1 is too small"),
        (["--seed", "9" * 30], "is too large"),
        (["--set", "seed=-1"], "  --set: seed: -1 is too small"),
        (["--set", "cluster.gpu.gemm_efficiency=nan"], "gemm_efficiency: nan is not a number (at most 1.0)"),
        (["--set", "transport=tcp10g"], "there is no 'tcp10g' in workloads/transports (did you mean 'tcp-10g'?)"),
        (["--set", "cluster.hosts"], "--set 'cluster.hosts' is not of the form table.key=value"),
        (["--set", "cluster.hosts=two"], "cluster.hosts: 'two' is no whole number"),
    ],
)
def test_run_with_options_that_do_not_fit(fabricsim: Fabricsim, options: list[str], message: str) -> None:
    assert message in refused(fabricsim, "run", "gpt2-medium-dp", "-o", "out.h5", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "  --seed: -1 is too small"),
        (["--seed", "-1", "--set", "seed=1"], "--seed -1 and --set seed=1 both say what seed is; take one of them out"),
        (["--engine", "3"], "  --engine: '3' is not one of flow, packet"),
        (["--cluster", "nope"], "  --cluster: there is no 'nope'"),
        (["--set", "seed=-1"], "  --set: seed: -1 is too small"),
    ],
)
def test_traffic_names_the_option_that_does_not_fit(fabricsim: Fabricsim, options: list[str], message: str) -> None:
    assert message in refused(fabricsim, "traffic", "incast", *options)


@pytest.mark.parametrize("key", ["collectives.algorithm", "collectives.algorithm.all_reduce"])
def test_an_algorithm_given_twice_is_refused(fabricsim: Fabricsim, key: str) -> None:
    asked = ["bench", "all_reduce", "gpt2-medium-dp", "--algorithm", "ring", "--set", f"{key}=tree"]

    assert f"--algorithm ring and --set {key}=tree both say what" in refused(fabricsim, *asked)


@pytest.mark.parametrize("command", ["run", "compare", "traffic incast", "check", "sweep"])
def test_two_settings_of_one_key_are_refused(fabricsim: Fabricsim, command: str) -> None:
    message = refused(fabricsim, *command.split(), "gpt2-medium-dp", "--set", "seed=1", "--set", "seed = 2")

    assert message == "--set seed=1 and --set seed = 2 both say what seed is; take one of them out"


@pytest.mark.parametrize(
    "given",
    ["--transport tcp-10g,tcp-10g", "--engine flow,packet,flow", "--fabric two-tier,two-tier", "--set seed=1,2,1"],
)
def test_a_comparison_names_each_only_once(fabricsim: Fabricsim, given: str) -> None:
    assert "more than once; keep one of them" in refused(fabricsim, "compare", "gpt2-medium-dp", *given.split())


@pytest.mark.parametrize("command", ["run", "compare", "traffic incast", "bench all_reduce"])
def test_an_option_and_a_setting_that_say_the_same_are_refused(fabricsim: Fabricsim, command: str) -> None:
    asked = *command.split(), "gpt2-medium-dp", "--transport", "tcp-10g", "--set", "transport=rdma-100g"

    assert "--transport tcp-10g and --set transport=rdma-100g both say what transport is" in refused(fabricsim, *asked)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("tcp-10g,rdma100g", "no preset 'rdma100g' in transports; did you mean 'rdma-100g'?"),
        (" , ", "--transport ' , ' names nothing"),
    ],
)
def test_compare_with_transports_that_are_none(fabricsim: Fabricsim, names: str, message: str) -> None:
    assert message in refused(fabricsim, "compare", "gpt2-medium-dp", "--transport", names, "-o", "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is nothing to compare; give --transport A,B, --fabric A,B"),
        (["--engine", "packet"], "there is nothing to compare"),
        (["--set", "job.micro_batch=[4,8]"], "there is nothing to compare"),
        (["--engine", "flow,fluid"], "  --engine: 'fluid' is not one of flow, packet"),
        (["--fabric", "two-teir,single-switch"], "--fabric two-teir: there is no fabric, topology or scenario of that"),
        (["--set", f"seed={','.join(map(str, range(300)))}"], "these are 300 runs; compare takes 256 at most"),
    ],
)
def test_compare_with_what_cannot_be_compared(fabricsim: Fabricsim, options: list[str], message: str) -> None:
    assert message in refused(fabricsim, "compare", "gpt2-medium-dp", *options, "-o", "out")


@pytest.mark.parametrize("option", ["--tap", "--pcap"])
def test_recording_without_a_place_for_it(fabricsim: Fabricsim, option: str) -> None:
    value = "queue:*" if option == "--tap" else "*"
    for command in (["run", "gpt2-medium-dp", "--engine", "packet"], ["traffic", "ring", "--engine", "packet"]):
        assert refused(fabricsim, *command, option, value) == f"{option} records into files: say where with -o"


def test_unknown_study_and_kind(fabricsim: Fabricsim) -> None:
    assert refused(fabricsim, "validate", "hkbo", "-o", "out") == "there is no study 'hkbo'; did you mean 'hkbu'?"
    assert refused(fabricsim, "list", "gpu") == "there is nothing of kind 'gpu' to list; did you mean 'gpus'?"
    assert "there are algorithms, clusters, " in refused(fabricsim, "list", "nothing")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--most-cost", "--most-power"])
def test_a_search_needs_prices_and_a_budget_above_nothing(fabricsim: Fabricsim, option: str) -> None:
    assert refused(fabricsim, "search", "gpt2-medium-dp", option, "5").endswith("add --prices list-400g, or a file")
    priced = refused(fabricsim, "search", "gpt2-medium-dp", "--prices", "list-400g", option, "-5")
    assert priced == f"{option} -5: nothing costs or takes as little; give more than 0, or leave it out"


@pytest.mark.parametrize(
    "command", [["traffic", "ring"], ["topology", "ideal-16"], ["compare", "gpt2-medium-dp", "--transport", "tcp-10g"]]
)
def test_a_width_without_pictures(fabricsim: Fabricsim, command: list[str]) -> None:
    assert refused(fabricsim, *command, "--width", "3.3").startswith("--width 3.3 has no effect without -o")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate"], "No such command 'simulate'"),
        (["run"], "Missing argument 'SCENARIO'"),
        (["run", "gpt2-medium-dp", "--sed", "1"], "No such option: --sed"),
        (["run", "gpt2-medium-dp", "--seed", "one"], "Invalid value for '--seed'"),
        (["compare", "gpt2-medium-dp", "--transport", "tcp-10g", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["plot", "x.h5", "--format", "gif"], "Invalid value for '--format'"),
    ],
)
def test_usage_errors(fabricsim: Fabricsim, arguments: list[str], message: str) -> None:
    assert message in refused_by_parser(fabricsim, *arguments)


# ---- where output cannot go: known before anything runs -----------------------------------------


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        pytest.fail("a simulation was begun")

    monkeypatch.setattr("fabricsim.run.at_once.simulate", begun)  # which takes it from the other: this one first
    monkeypatch.setattr("fabricsim.run.pipeline.simulate", begun)
    monkeypatch.setattr("fabricsim.run.bench.Fabric", begun)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "gpt2-medium-dp", "--json", "-o", "out.json"], "standard output; name it out.h5"),
        (["run", "gpt2-medium-dp", "-o", "out.TXT"], "-o out.TXT: a result is written as HDF5"),
        (["rerun", "in.h5", "-o", "out.svg"], "name it out.h5"),
        (["replay", "dlrm-v100", "--fabric", "dgx1-v100", "-o", "out.html"], "name it out.h5"),
        (["report", "in.h5", "-o", "out.pdf"], "-o out.pdf: a report is written as HTML; name it out.html"),
        (["timeline", "in.h5", "-o", "out.png"], "-o out.png: a timeline is written as JSON; name it out.json"),
    ],
)
def test_a_name_of_another_form_than_what_is_written(fabricsim: Fabricsim, arguments: list[str], message: str) -> None:
    assert message in refused(fabricsim, *arguments)


@pytest.mark.usefixtures("no_simulation")
def test_goodput_is_of_one_job(fabricsim: Fabricsim) -> None:
    assert "jobs are under [jobs], and one [job] is wanted" in refused(fabricsim, "goodput", "two-jobs")
    message = refused(fabricsim, "goodput", "gpt2-medium-dp", "--interval", "1ms")
    assert message.startswith("--interval: unit 'ms' is not a time (units are s, min, h, d); write it like")


def test_goodput_with_failures_says_what_its_iterations_are(fabricsim: Fabricsim, small: Path) -> None:
    failures = 'fabric.failures=[{link="host0-*", rate="10Gbps"}]'
    code, _, err = fabricsim("goodput", small.name, "--set", failures)

    assert code == 0
    assert "every iteration has the failures of fabric.failures" in err


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("missing/out.h5", "-o missing/out.h5: there is no folder missing; make it first"),
        (".", "-o .: is a directory; name the file to write"),
        ("file/out.h5", "-o file/out.h5: there is no folder file"),
        (os.devnull, "is not a regular file; name another"),
        ("x" * 300, "File name too long"),
    ],
)
def test_result_that_cannot_be_written(fabricsim: Fabricsim, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "file").touch()

    assert message in refused(fabricsim, "run", "gpt2-medium-dp", "-o", output)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize("command", [["compare", "gpt2-medium-dp", "--transport", "tcp-10g"], ["validate", "hkbu"]])
@pytest.mark.parametrize("output", ["file", "file/below", "x" * 300])
def test_folder_that_cannot_be_made(fabricsim: Fabricsim, tmp_path: Path, command: list[str], output: str) -> None:
    (tmp_path / "file").touch()

    assert refused(fabricsim, *command, "-o", output).startswith(brief(f"-o {output}: cannot be used as output folder"))


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(fabricsim: Fabricsim, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)

    assert "is read-only" in refused(fabricsim, "run", "gpt2-medium-dp", "-o", "locked/out.h5")
    assert "is read-only" in refused(fabricsim, "compare", "gpt2-medium-dp", "--transport", "tcp-10g", "-o", "locked")


@pytest.mark.parametrize("command", [["run", "small.toml", "-o", "out.h5"], ["compare", "small.toml", "-o", "out"]])
def test_run_that_fails_leaves_nothing(
    fabricsim: Fabricsim, small: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    from fabricsim.engine.fabric import Fabric  # noqa: PLC0415  numba comes with it
    from fabricsim.errors import SimulationError  # noqa: PLC0415  as above

    assert small.exists()
    reason = "the link went away"

    def fail(*_: object) -> None:
        raise SimulationError(reason)

    monkeypatch.setattr(Fabric, "replay", fail)
    options = ["--transport", "tcp-10g,rdma-100g"] if command[0] == "compare" else []

    assert refused(fabricsim, *command, *options) == reason


@pytest.mark.slow
def test_write_that_fails_leaves_nothing(
    fabricsim: Fabricsim, small: Path, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = result.read_bytes()

    def fail(path: Path, _: bytes) -> None:
        path.touch()  # begun, but no room for more
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(result), "write_bytes", fail)

    assert "No space left on device" in refused(fabricsim, "run", small.name, "-o", "new.h5")
    refused(fabricsim, "run", small.name, "-o", result.name)
    assert result.read_bytes() == before  # an earlier result is not lost


# ---- the program as a process -------------------------------------------------------------------


def process(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fabricsim", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  our own words


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "bad.toml", "-o", "out.h5"],
        ["run", ".", "-o", "out.h5"],
        [*BENCH, "--against", "bad.toml"],
        ["plot", "bad.toml", "-o", "out"],
        ["list", "--every"],
    ],
)
def test_process_ends_with_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "bad.toml").write_bytes(GARBAGE)

    run = process(arguments, tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr
    assert "Traceback" not in run.stderr
    assert list(tree(tmp_path)) == ["bad.toml"]


SCRIPT = """\
import simpy
import fabricsim as fs

env = simpy.Environment()
fabric = fs.Fabric(env, fs.load("ideal-16").scenario)
try:
    env.run({request})
except fs.FabricsimError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("fabric.send(0, 99, 1000)", "99"),
        ("fabric.send(0, -1, 1000)", "-1"),
        ("fabric.all_reduce(range(17), 1000)", "16"),
        ("fabric.all_reduce([0, 0], 1000)", "each rank once, not [0, 0]"),
        ("fabric.all_reduce([], 1000)", "at least one rank"),
        ("fabric.send(0, 1, 0)", "a transfer of 0 bytes moves nothing"),
        ("fabric.broadcast(range(4), 0)", "broadcast over 4 ranks of 0 bytes moves nothing"),
        ("fabric.send(0, 1, -5)", "a transfer of -5 bytes moves nothing"),
    ],
)
def test_script_gets_one_clear_error(request_: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SCRIPT.format(request=request_), "script.py", "exec"), {})  # noqa: S102  our own words

    out, err = capsys.readouterr()
    assert message in out
    assert (out.count("\n"), err) == (1, "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("spines=2,planes=1", "fabric.planes: 1 is too small (at least 2)"),
        ("spines=2,plane=2", "fabric.plane: unknown key (did you mean 'planes'?)"),
        ("spines=0", "fabric.spines: 0 is too small (at least 1)"),
    ],
)
def test_mistakes_of_a_topology_that_builds_on_another_are_listed(
    fabricsim: Fabricsim, settings: str, said: str
) -> None:
    """Its size is counted from what is right, by the methods of its class and of that one."""
    fabric = f'fabric={{topology="multi-plane",hosts_per_leaf=4,{settings}}}'

    assert said in refused(fabricsim, "check", "gpt2-medium-dp", "--set", fabric)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ('link="leaf0-spine0"', "no way is left, as leaf0->spine0 is down for good since 0 s"),
        ('link="host5-leaf0"', "rank 5 (host5) to rank 13 (host13)"),
        ('host="host9"', "rank 9 (host9) cannot take part: host9 is down"),
    ],
)
def test_a_job_of_several_is_refused_if_it_is_cut_off(
    fabricsim: Fabricsim, command: str, failure: str, said: str
) -> None:
    assert said in refused(fabricsim, command, "two-jobs", "--set", f"fabric.failures=[{{{failure}}}]")


def test_what_traffic_sends_is_not_said_without_traffic_or_beside_a_file(fabricsim: Fabricsim, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("src,dst,bytes\n0,1,5000000\n")
    both = "--transport", "tcp-10g,rdma-100g"

    assert "--size says what traffic sends" in refused(fabricsim, "compare", "gpt2-medium-dp", "--size", "1MB", *both)
    beside = "--traffic", "one.csv", "--size", "1MB"
    assert "size has no effect: one.csv is a file" in refused(fabricsim, "compare", "ideal-16", *beside, *both)


@pytest.mark.slow
def test_a_replay_is_not_run_again_from_its_result(fabricsim: Fabricsim) -> None:
    assert fabricsim("replay", "dlrm-v100", "--fabric", "dgx1-v100", "-o", "dl.h5")[0] == 0

    assert "dl.h5 is a replay, whose trace is not in it" in refused(fabricsim, "rerun", "dl.h5")


@pytest.mark.parametrize(
    "command",
    [
        ["run", "input", "-o", "input"],
        ["replay", "input", "--fabric", "hkbu", "-o", "sub/../input"],
        ["replay", "sub", "--fabric", "hkbu", "-o", "sub/link"],
        ["bench", "latency", "hkbu", "--against", "input", "-o", "input"],
        ["timeline", "input", "-o", "input"],
        ["report", "input", "-o", "input"],
        ["topology", "hkbu", "--prices", "input", "-o", "input"],
        ["calibrate", "input", "--transport", "tcp-10g", "-o", "input"],
    ],
)
def test_what_is_read_is_not_replaced(fabricsim: Fabricsim, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "input").write_text("captured", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").write_text("captured", encoding="utf-8")

    code, _, err = fabricsim(*command)

    assert (code, (tmp_path / "input").read_text(encoding="utf-8")) == (2, "captured")
    assert f"-o {command[-1]}: " in err


@pytest.mark.slow
def test_files_of_other_kinds_are_called_by_what_they_are(fabricsim: Fabricsim, result: Path) -> None:
    told = "is a result, not a"
    Path("sub").mkdir()
    Path("notes.txt").write_text("hello", encoding="utf-8")

    assert refused(fabricsim, "traffic", result.name).startswith(f"{result.name}: {told} traffic matrix; ")
    assert refused(fabricsim, "show", f"./{result.name}").startswith(f"./{result.name}: {told} scenario; ")
    assert refused(fabricsim, "show", "./notes.txt").startswith("./notes.txt: is no TOML file; ")
    prices = refused(fabricsim, "topology", "rail-only", "--prices", "sub")
    assert prices == "prices sub: is a folder; name the TOML file in it"


def test_mistakes_say_what_has_them(fabricsim: Fabricsim, tmp_path: Path) -> None:
    price = 'ports = 64\nrate = "400Gbps"\ncost = 1\npower = 1\nsource = "x"\ndate = "soon"\ncertainty = "U"\n'
    (tmp_path / "p.toml").write_text(f'name = "p"\n[[switch]]\n{price}', encoding="utf-8")
    (tmp_path / "s.toml").write_text('scenario = "rail-only"\ngird.seed = [1]\n', encoding="utf-8")
    gpu = 'include = "a100-sxm-80gb"\nname = "g"\n[certainty]\nE = ["name"]\nT = ["name"]\n'
    (tmp_path / "g.toml").write_text(gpu, encoding="utf-8")

    message = refused(fabricsim, "topology", "rail-only", "--prices", "p.toml")
    assert message.startswith("1 mistake in the price list:\n")
    assert message.endswith("'soon' is no date (write it like 2024-08)")
    assert refused(fabricsim, "sweep", "s.toml").startswith("1 mistake in the sweep:\n")
    message = refused(fabricsim, "check", "gpt2-medium-dp", "--set", "cluster.gpu=g.toml")
    assert "certainty: 'name' is under E and T; leave it under one of them" in message
