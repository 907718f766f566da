from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fabricsim.errors import InputError, TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.inspecting import inspect
from fabricsim.traces.inspection import TraceSummary, summarise_trace
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, Communication, Recording, RecordingBuilder, Trace
from tests.reference import trace_samples

US, MS = 10**6, 10**9  # ps


def recording(rank: int, *, ready: int, origin: int = 0, host: str = "one", sequence: int = NONE) -> Recording:
    """A kernel, an all-reduce that ends on all ranks at 900 us, and a send of rank 0 to rank 1."""
    builder = RecordingBuilder(f"rank{rank}")
    stream = builder.lane("stream", "stream 7")
    builder.node(COMPUTE, stream, "gemm", start=0, duration=ready)
    whole = builder.group("0", "default_pg", (0, 1), 2)
    reduce = Communication("all_reduce", whole, 4096, "float32")
    builder.node(
        COMMUNICATION, stream, "nccl", communication=reduce, start=ready, duration=900 * US - ready, sequence=sequence
    )
    message = Communication("recv" if rank else "send", NONE, 100, peer=1 - rank)
    builder.node(COMMUNICATION, stream, "nccl", communication=message, start=910 * US, duration=(40 + rank) * US)
    builder.steps.append((3, 0, 1000 * US))
    builder.missing["something"] = None
    return builder.build(rank, 4, origin=origin, host=host, device="GPU")


def summary(*recordings: Recording) -> TraceSummary:
    return summarise_trace(Trace("test", recordings, 4))


def test_numbers_of_a_trace() -> None:
    found = summary(recording(0, ready=100 * US), recording(1, ready=850 * US))

    assert (found["captured_ranks"], found["world"], found["hosts"]) == (2, 4, 1)
    assert found["span_s"] == pytest.approx(951e-6)
    assert found["steps"] == [{"number": 3, "ranks": 2, "time_s": pytest.approx(1e-3)}]
    assert [(row["kind"], row["nodes"], row["time_s"]) for row in found["kinds"]] == [
        ("compute", 2, pytest.approx(950e-6)),
        ("communication", 4, pytest.approx((800 + 50 + 40 + 41) * 1e-6)),
    ]
    (lane,) = found["lanes"]
    assert (lane["ranks"], lane["nodes"], lane["busy_s"]) == (2, 6, pytest.approx((940 + 941) / 2 * 1e-6))
    assert found["missing"] == [{"what": "something", "ranks": 2}]
    assert found["histogram"] == [
        {"from_bytes": 64, "parts": 2, "total_bytes": 200},
        {"from_bytes": 4096, "parts": 2, "total_bytes": 8192},
    ]


def test_a_transfer_is_from_the_last_start_to_the_last_end() -> None:
    rows = {
        row["operation"]: row
        for row in summary(recording(0, ready=MS // 10), recording(1, ready=850 * US))["communications"]
    }

    reduce = rows["all_reduce"]
    assert (reduce["group"], reduce["group_size"], reduce["ranks"], reduce["per_rank"]) == ("default_pg", 2, 2, 1)
    assert (reduce["min_s"], reduce["max_s"]) == (pytest.approx(50e-6), pytest.approx(800e-6))
    assert reduce["transfer_s"] == pytest.approx(50e-6)
    assert rows["send"]["transfer_s"] == rows["recv"]["transfer_s"] == pytest.approx(41e-6)


def test_transfers_are_matched_by_the_groups_numbers() -> None:
    late = recording(1, ready=850 * US, sequence=6)
    found = summary(recording(0, ready=MS // 10, sequence=5), late)

    # the sends have no number, so nothing is matched by numbers, and the first is the first
    assert {row["operation"]: row["transfer_s"] for row in found["communications"]}["all_reduce"] is not None


def test_clocks_of_several_hosts_are_not_compared() -> None:
    found = summary(recording(0, ready=MS // 10), recording(1, ready=850 * US, host="two", origin=10**18))

    assert found["hosts"] == 2
    assert all(row["transfer_s"] is None for row in found["communications"])


def test_origins_are_brought_to_one_time() -> None:
    later = recording(1, ready=850 * US, origin=1000)  # 1 us later
    rows = {row["operation"]: row for row in summary(recording(0, ready=MS // 10), later)["communications"]}

    assert rows["all_reduce"]["transfer_s"] == pytest.approx(50e-6)
    assert rows["send"]["transfer_s"] == pytest.approx(41e-6)


def test_a_trace_without_times() -> None:
    builder = RecordingBuilder("x")
    builder.node(COMMUNICATION, builder.lane("any", ""), "y", communication=Communication("barrier"))
    found = summary(builder.build(NONE))

    assert (found["span_s"], found["ranks"][0]["rank"], found["lanes"][0]["busy_s"]) == (None, None, None)
    assert found["communications"][0]["size_bytes"] is None
    assert found["histogram"] == []


def test_a_log_with_a_table_and_the_set_up(tmp_path: Path) -> None:
    table, log = trace_samples.SAMPLES["nccl_tests"][0], trace_samples.SAMPLES["nccl_log"][0]
    setup = b"".join(line for line in log.splitlines(keepends=True) if b"opCount" not in line)
    (tmp_path / "log").write_bytes(table.replace(b"#       size", setup + b"#       size"))
    (only,) = inspect([tmp_path / "log"])["logs"]

    assert (only["views"], only["problems"]) == (["nccl_tests", "nccl_log"], [])
    assert [row["size_bytes"] for row in only["tables"][0]["rows"]] == [1024, 2048]
    assert only["tables"][0]["rows"][0]["bus_bandwidth"] == pytest.approx(0.05e9)
    assert only["nccl"] is not None
    assert only["nccl"]["rings"] == [{"channel": 0, "ranks": [0, 1], "cut": False}]
    assert only["nccl"]["trees"][0] == {"channel": 0, "root": 0, "parents": {0: -1, 1: 0}}
    assert only["nccl"]["communicators"][0]["transports"] == {"NET/IB/GDRDMA": 2}


def test_a_damaged_table_is_told_beside_what_can_be_read(tmp_path: Path) -> None:
    table, log = trace_samples.SAMPLES["nccl_tests"][0], trace_samples.SAMPLES["nccl_log"][0]
    (tmp_path / "log").write_bytes(table[: table.index(b"0.05")] + b"\n" + log.replace(b"opCount", b"count"))
    (only,) = inspect([tmp_path / "log"])["logs"]

    assert only["views"] == ["nccl_log"]
    assert "the row of 1024 bytes is cut or damaged" in only["problems"][0]


@pytest.mark.slow
def test_a_log_whose_beginning_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"Epoch 1\n" * 10_000 + trace_samples.SAMPLES["nccl_log"][0])
    found = inspect([tmp_path / "log"])

    assert found["trace"] is not None
    assert found["trace"]["form"] == "nccl_log"
    (tmp_path / "log").write_bytes(b"Epoch 1\n" * 10_000)
    with pytest.raises(TraceError, match="no trace or log of a form that is known"):
        inspect([tmp_path / "log"])


def test_an_unknown_form(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form 'kinetto': there is no such form of traces; did you mean 'kineto'"):
        inspect([tmp_path], "kinetto")


UNKNOWN = "no trace or log of a form that is known"
BANDWIDTHS = "holds bus bandwidths of SimAI's formula, and no operations"
TRAINING = ["megatron", "nccl_log"]
REAL: dict[str, tuple[str, int, int | None] | str | list[str]] = {
    "README.md": UNKNOWN,
    "aicb/A100_example_measured.csv.xz": ("aicb", 1, 8),
    "aicb/Workload_spec_v1.1.csv": UNKNOWN,  # a table of models and how they are split
    "aicb/phys_L7B-D1-C01_Llama7B_zero2_mbs1.csv": ("aicb", 1, 128),
    "aicb/phys_L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv": ("aicb", 1, 128),
    "aicb/simai_G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt": ("astrasim", 1, None),
    "aicb/simai_L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt": ("astrasim", 1, None),
    "astrasim/examples.tar.xz": "custom_collective.json: is a system configuration of ASTRA-sim",  # see below
    "chakra/1.0.2-chakra.0.0.4.tgz": ("pytorch_et", 1, 2),
    "chakra/feeder_tests_trace.tar.gz": ("chakra", 1, None),
    "chakra/json_trace.tar.gz": "choose by a pattern as only",  # three traces of rank 0
    "chakra_llama/stage_llama_dp2tp2pp2.tar.xz": ("chakra", 8, 8),
    "dai_author_logs/README.md": UNKNOWN,
    "dai_author_logs/frontera-megatron-bert-worldsize16-mbs8-noderank3-gbs16-DP2-TP2-PP4.out.gz": TRAINING,
    "dai_author_logs/frontera-megatron-bert-worldsize8-mbs1-noderank1-gbs8-DP8-TP1-PP1.out.gz": ("nccl_log", 4, 8),
    "dai_author_logs/polaris-megatron-gpt2-worldsize16-mbs12-noderank3-gbs-192.out.gz": TRAINING,
    "dai_author_logs/polaris-megatron-gpt2large-worldsize20-mbs12-noderank4-gbs240-DP20-TP1-PP1.out.gz": TRAINING,
    "goal/binary_tree_32.goal": ("goal", 32, 32),
    "kineto/dlrm_kineto.tar.gz": ("kineto", 8, 8),
    "kineto/nccl_parser_config_nccl_data.json.gz": ("kineto", 1, 2),
    "megatron_logs/README.md": UNKNOWN,
    "megatron_logs/all_reduce_bench-32gb-n4.txt.xz": ["nccl_log"],
    "megatron_logs/meg_gpt2_perf_n16-1999618.out.xz": TRAINING,
    "megatron_logs/n16_32gb_all_reduce_bench.txt.xz": ["nccl_log"],
    "nccl_logs/hkbu_100g/100g-stepexp2.txt": ["nccl_tests", "nccl_log"],
    "nccl_logs/hkbu_100g/horovod-nccl-only.json": ("horovod", 1, 32),
    "nccl_logs/hkbu_100g/ring-100g-stepexp2.txt": ["nccl_tests", "nccl_log"],
    "nccl_logs/hkbu_10g/10g-stepexp2.txt": ["nccl_tests", "nccl_log"],
    "nccl_logs/hkbu_10g/horovod-nccl-only.json": ("horovod", 1, 32),
    "nccl_logs/hkbu_10g/ring-10g-stepexp2.txt": ["nccl_tests", "nccl_log"],
    "nccl_logs/hkbu_LICENSE": UNKNOWN,
    "nccl_tables/tables.json": UNKNOWN,  # tables with their sources, which the study reads
    "nvlink_tables/aiconfigurator_nccl_perf.csv.gz": UNKNOWN,  # as above
    "osu/hkbu/100g-latency.txt": ["osu"],
    "osu/hkbu/10g-latency.txt": ["osu"],
    "pytorch_et/dlrm_pytorch_et.tar.gz": ("pytorch_et", 8, None),
    "pytorch_et/resnet_2gpu_et.json.gz": ("pytorch_et", 1, 2),
    "simai/ata_ratio.csv": BANDWIDTHS,  # ratios and bandwidths, which are no workload
    "simai/busbw.yaml": BANDWIDTHS,
    "simai/microAllReduce.txt": ("astrasim", 1, 8),
    "simai/nic_ratio.csv": BANDWIDTHS,
    "simai/nvlink_ratio.csv": BANDWIDTHS,
    "simai/workload_analytical.txt.xz": ("astrasim", 1, 9216),
    "vtrain/measured_multi_node.csv": UNKNOWN,  # iteration times, which the study reads
    "vtrain/measured_single_node.csv": UNKNOWN,
}
"""What each captured file is: form, ranks, of how many; what its logs hold; or why it is refused."""


def _real_files() -> list[str]:
    root = Path(os.environ.get("FABRICSIM_TRACES") or Path(__file__).resolve().parents[3] / "shared" / "traces")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) or ["none"]


@pytest.mark.slow
@pytest.mark.parametrize("name", _real_files())
def test_each_real_file_is_read_or_refused_with_a_reason(name: str, traces: Path) -> None:
    expected = REAL[name]
    if isinstance(expected, str):
        with pytest.raises(TraceError) as caught:
            inspect([traces / name])
        assert expected in str(caught.value)
        return
    found = inspect([traces / name])
    if isinstance(expected, list):
        assert (found["trace"], [log["views"] for log in found["logs"]]) == (None, [expected])
        # the logs of one host of several have calls of which no replay can be made, and say so
        assert all(problem.startswith("as a trace: ") for problem in found["logs"][0]["problems"])
        return
    trace = found["trace"]
    assert trace is not None
    assert (trace["form"], trace["captured_ranks"], trace["world"]) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "only", "ranks"),
    [
        ("chakra/json_trace.tar.gz", "*/chakra.0.json", 1),
        ("astrasim/examples.tar.xz", "*/microbenchmarks/all_reduce/4npus_1MB/*.et", 4),
    ],
)
def test_archives_of_several_jobs(name: str, only: str, ranks: int, traces: Path) -> None:
    trace = inspect([traces / name], only=only)["trace"]

    assert trace is not None
    assert (trace["form"], trace["captured_ranks"]) == ("chakra", ranks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("kineto/dlrm_kineto.tar.gz", {"all_to_all": (8, 5), "all_reduce": (8, 3)}),
        ("kineto/nccl_parser_config_nccl_data.json.gz", {"all_reduce": (1, 15), "broadcast": (1, 6)}),
    ],
)
def test_documented_captures_hold_what_they_say(
    name: str, operations: dict[str, tuple[int, int]], traces: Path
) -> None:
    trace = inspect([traces / name])["trace"]

    assert trace is not None
    assert {row["operation"]: (row["ranks"], row["per_rank"]) for row in trace["operations"]} == operations
    transfers = [row["transfer_s"] for row in trace["communications"]]
    if trace["captured_ranks"] > 1:  # clocks of one host agree to 20 us
        assert np.median([time for time in transfers if time is not None]) < 100e-6
