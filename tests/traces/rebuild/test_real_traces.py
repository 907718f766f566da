"""Captured jobs replayed on the machine of their capture."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from fabricsim.records.program import NONE
from fabricsim.report.text import summary_text
from fabricsim.results.breakdown import iteration_parts
from fabricsim.results.capture import Capture, CaptureSummary, summarise_capture
from fabricsim.results.summary import summarise
from fabricsim.run import pipeline
from fabricsim.traces.readers import read
from fabricsim.traces.rebuild.programs import rebuild

TCP = {"v100-vm": "tcp-10g", "dgx1-v100": None, "dgx-a100": None}


def replayed(file: Path, fabric: str) -> tuple[Capture, CaptureSummary]:
    rebuilt = rebuild(read([file]))
    result = pipeline.replay(pipeline.load_fabric(fabric, rebuilt.program.ranks), rebuilt, "kineto")
    assert result.capture is not None
    return result.capture, summarise_capture(result.capture, iteration_parts(result).iteration)


@pytest.mark.slow
def test_dlrm_on_eight_v100_takes_what_it_took(traces: Path) -> None:
    capture, summary = replayed(traces / "kineto" / "dlrm_kineto.tar.gz", "dgx1-v100")
    assert summary["change"] == pytest.approx(0, abs=0.05)
    assert [abs(step.replayed / step.captured - 1) < 0.05 for step in capture.steps] == [True] * 8
    assert len(capture.transfers) == 8
    for transfer in capture.transfers:
        assert transfer.replayed == pytest.approx(transfer.captured, rel=0.25)


@pytest.mark.slow
def test_resnet_on_two_a100_takes_what_it_took(traces: Path) -> None:
    capture, summary = replayed(traces / "kineto" / "nccl_parser_config_nccl_data.json.gz", "dgx-a100")
    assert summary["steps"] == 3
    assert summary["change"] == pytest.approx(0, abs=0.05)
    for transfer in capture.transfers:  # of one rank of two: an upper bound, if the rank cannot leave before the other
        assert transfer.captured_ranks == 1
        if transfer.operation == "broadcast":
            assert transfer.captured == NONE
        else:
            assert transfer.replayed < transfer.captured
    sums = summary["transfers_in_sum"]
    assert sums is not None
    assert (sums["count"], sums["captured_at_most"]) == (15, True)
    assert sums["captured_s"] == pytest.approx(46.76e-3, rel=1e-3)  # the kernels of all_reduce, by jq
    assert sums["change"] == pytest.approx(sums["replayed_s"] / sums["captured_s"] - 1)
    assert {row["captured_at_most"] for row in summary["transfers"] if row["captured_s"] is not None} == {True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fabric", "said", "alone"),
    [("dlrm", "dgx1-v100", True, False), ("nccl_parser", "dgx-a100", True, True), ("dlrm", "v100-vm", False, False)],
)
def test_a_step_that_the_host_takes_says_so(traces: Path, name: str, fabric: str, *, said: bool, alone: bool) -> None:
    (file,) = (traces / "kineto").glob(f"{name}*")
    rebuilt = rebuild(read([file]))
    result = pipeline.replay(pipeline.load_fabric(fabric, rebuilt.program.ranks, TCP[fabric]), rebuilt, "kineto")
    console = Console(width=200)
    with console.capture() as printed:
        console.print(summary_text(summarise(result)))
    assert ("a faster fabric gains at most" in printed.get()) == said
    assert ("captured at most" in printed.get()) == ("≤ " in printed.get()) == alone  # of one rank of two
    assert "in sum) captured" in printed.get()


@pytest.mark.slow
def test_a_slower_network_is_felt_and_a_faster_gpu_is_not_where_hosts_are_slow(traces: Path) -> None:
    file = traces / "kineto" / "dlrm_kineto.tar.gz"
    trace = read([file])
    times = {}
    for transport, speed in (("rdma-100g", 1.0), ("tcp-10g", 1.0), ("rdma-100g", 4.0)):
        rebuilt = rebuild(trace, gpu_speed=speed)
        loaded = pipeline.load_fabric("pinnacles", 8, transport, ["cluster.gpus_per_host=1"])
        times[transport, speed] = pipeline.replay(loaded, rebuilt, "kineto").iteration
    assert times["tcp-10g", 1.0] > 1.05 * times["rdma-100g", 1.0]
    assert 0.95 * times["rdma-100g", 1.0] < times["rdma-100g", 4.0] <= times["rdma-100g", 1.0]
