from __future__ import annotations

from pathlib import Path

import pytest

from fabricsim.errors import TraceError
from fabricsim.traces.inspecting import inspect
from fabricsim.traces.megatron_log import MegatronSummary
from tests.reference import trace_samples


def seen(path: Path, content: bytes | None = None) -> MegatronSummary:
    if content is not None:
        path.write_bytes(content)
    (log,) = inspect([path])["logs"]
    assert log["megatron"] is not None
    return log["megatron"]


def test_the_first_iterations_do_not_count(tmp_path: Path) -> None:
    log = seen(tmp_path / "log", trace_samples.SAMPLES["megatron"][0])
    assert (log["iterations"], log["warm_up"], log["interval"], log["skipped_updates"]) == (3, 1, 1, 1)
    assert log["time_s"] == pytest.approx({"median": 0.3, "p10": 0.22, "p90": 0.38})
    assert log["samples_per_s"] == pytest.approx({"median": 120.0, "p10": 88.0, "p90": 152.0})
    assert log["tokens_per_s"] == pytest.approx({"median": 122880.0, "p10": 90112.0, "p90": 155648.0})
    assert log["arguments"] == {
        "world_size": 16,
        "tensor_model_parallel_size": 2,
        "micro_batch_size": 4,
        "seq_length": 1024,
    }


def test_timers_of_one_rank(tmp_path: Path) -> None:
    log = seen(tmp_path / "log", trace_samples.SAMPLES["megatron"][0])
    assert log["timers_of"] == "the rank that prints"
    assert {row["name"]: (row["iterations"], row["min_s"], row["max_s"]) for row in log["timers"]} == {
        "save-checkpoint": (1, None, 0.9),
        "forward-compute": (2, None, 0.04),
        "optimizer": (2, None, 0.02),
    }


def test_timers_of_all_ranks(tmp_path: Path) -> None:
    log = seen(tmp_path / "log", trace_samples.SAMPLES["megatron"][1])
    assert (log["interval"], log["timers_of"]) == (10, "all ranks")
    assert log["tflops_per_gpu"] is not None
    assert log["tflops_per_gpu"]["median"] == pytest.approx(180.5)
    assert log["timers"] == [
        {"name": "forward-backward", "iterations": 1, "min_s": 0.31, "max_s": 0.35},
        {"name": "optimizer", "iterations": 1, "min_s": 0.02, "max_s": 0.024},
    ]


def test_a_time_below_zero_is_damage(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b" iteration 7/ 9 | elapsed time per iteration (ms): -3.0 |\n")
    with pytest.raises(TraceError, match=r"log:1: iteration 7 takes -0.003 s"):
        inspect([log])


PUBLISHED = {
    "dai_author_logs/frontera-megatron-bert-worldsize16-mbs8-noderank3-gbs16-DP2-TP2-PP4.out.gz": (100, 16),
    "dai_author_logs/frontera-megatron-bert-worldsize8-mbs1-noderank1-gbs8-DP8-TP1-PP1.out.gz": (100, 8),
    "dai_author_logs/polaris-megatron-gpt2-worldsize16-mbs12-noderank3-gbs-192.out.gz": (100, 192),
    "dai_author_logs/polaris-megatron-gpt2large-worldsize20-mbs12-noderank4-gbs240-DP20-TP1-PP1.out.gz": (100, 240),
    "megatron_logs/meg_gpt2_perf_n16-1999618.out.xz": (4, 1024),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_logs_that_were_published(traces: Path, name: str) -> None:
    log = seen(traces / name)
    assert (log["iterations"], log["global_batch"]) == PUBLISHED[name]
    assert {"forward-compute", "backward-compute", "optimizer"} < {row["name"] for row in log["timers"]}


@pytest.mark.slow
def test_52_billion_parameters_on_64_v100(traces: Path) -> None:
    log = seen(traces / "megatron_logs/meg_gpt2_perf_n16-1999618.out.xz")
    assert log["time_s"]["median"] == pytest.approx(123.8963)  # of 123.8963, 124.3622 and 122.2240
    assert log["arguments"]["pipeline_model_parallel_size"] == 16
