"""What is told of a folded run: the true number of ranks, and how many each figure stands for."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from fabricsim.report.bars import breakdown
from fabricsim.report.text import summary_text
from fabricsim.report.timeline import timeline
from fabricsim.results import hdf5
from fabricsim.results.breakdown import critical_rank, rank_count, rank_time, simulated_ranks
from fabricsim.results.causes import causes
from fabricsim.results.resources import resources
from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import build_plan, load, simulate
from fabricsim.topology.platform import WIRE
from fabricsim.workload.tally import plan_calls

JOB = [
    "cluster=ideal",
    "transport=ideal-100g",
    "job.parallelism.data=4",
    "job.parallelism.pipeline=2",
    "job.global_batch=64",
]
"""Two stages of four replicas, whose gradients divide by rings and channels."""


@pytest.fixture(scope="module")
def folded() -> RunRecord:
    return simulate(load("gpt2-medium-dp", [*JOB, "folding=on"]))


@pytest.fixture(scope="module")
def whole() -> RunRecord:
    return simulate(load("gpt2-medium-dp", [*JOB, "folding=off"]))


@pytest.mark.slow
def test_ranks_are_the_true_ones(folded: RunRecord, whole: RunRecord) -> None:
    assert (folded.ranks, rank_count(folded), simulated_ranks(folded)) == (8, 8, [0, 4])
    assert (whole.ranks, rank_count(whole), simulated_ranks(whole)) == (None, 8, list(range(8)))
    assert folded.counters["folded_ranks"] == 6
    assert "folded_ranks" not in whole.counters


def test_what_is_told_of_the_iteration_is_the_same(folded: RunRecord, whole: RunRecord) -> None:
    mine, other = summarise(folded), summarise(whole)

    assert mine["simulated_ranks"] == 2
    assert mine["critical_rank"] == critical_rank(folded) == critical_rank(whole)
    for key in ("ranks", "iteration_time_s", "breakdown_s", "exposed_communication_s", "timers_s"):
        assert mine[key] == other[key]
    for rank in simulated_ranks(folded):
        assert rank_time(folded, rank) == rank_time(whole, rank)
    alike = {
        (row["dimension"], row["size_bytes"], row["time_mean_s"], row["bound_bytes_per_s"])
        for row in mine["collectives"]
    }
    assert alike == {
        (row["dimension"], row["size_bytes"], row["time_mean_s"], row["bound_bytes_per_s"])
        for row in other["collectives"]
    }


def test_collectives_are_counted_as_often_as_all_ranks_run_them(folded: RunRecord, whole: RunRecord) -> None:
    assert summarise(folded)["collectives"] == summarise(whole)["collectives"]
    assert len(folded.calls) < len(whole.calls)
    assert sum(call.copies for call in folded.calls) == len(whole.calls)


@pytest.mark.slow
def test_calls_of_a_folded_job_are_those_of_its_volumes() -> None:
    """Of the schedule alone: micro-batches, layers and groups; nothing is simulated for them."""
    loaded = load("gpt3-175b", {"job.global_batch": 384})
    counted = Counter[str]()
    for row in plan_calls(build_plan(loaded)):
        counted[f"{row.dimension} {row.collective}"] += row.times
    found = Counter[str]()
    for row in summarise(simulate(loaded))["collectives"]:
        found[f"{row['dimension']} {row['collective']}"] += row["count"]

    assert found == counted


def test_resources_stand_for_all(folded: RunRecord, whole: RunRecord) -> None:
    assert sum(link.copies for link in folded.links) == len(whole.links)
    others = {link.name: link for link in whole.links}
    for link in folded.links:
        assert link.calls == others[link.name].calls
        assert link.load == pytest.approx(others[link.name].load, rel=1e-12)
    total = sum(link.payload * link.copies for link in folded.links if link.kind == WIRE)
    assert total == pytest.approx(sum(link.payload for link in whole.links if link.kind == WIRE), rel=1e-12)
    assert all(row["copies"] == 4 for row in summarise(folded)["links"])


def test_rates_are_of_wires_that_stand_for_others(folded: RunRecord, whole: RunRecord) -> None:
    wires = {link.name for link in folded.links if link.kind == WIRE}

    assert set(folded.series.names) == wires
    for name, rate in zip(folded.series.names, folded.series.rate, strict=True):
        assert rate == pytest.approx(whole.series.rate[whole.series.names.index(name)], abs=1e-3)


@pytest.mark.slow
def test_files_keep_it(folded: RunRecord, tmp_path: Path) -> None:
    hdf5.write(folded, tmp_path / "out.h5")
    again = hdf5.read(tmp_path / "out.h5")

    assert (again.ranks, again.links, again.counters) == (folded.ranks, folded.links, folded.counters)
    assert summarise(again) == {**summarise(folded), "wall_seconds": None}


def test_causes_and_resources_are_those_of_all_ranks(folded: RunRecord, whole: RunRecord) -> None:
    # one resource may stand for alike ones of another tier: for both directions of cables
    assert sum(row["count"] for row in resources(folded)) == sum(row["count"] for row in resources(whole))
    times = [{(row["cause"], row["of"]): row["time_s"] for row in causes(result)} for result in (folded, whole)]
    assert times[0] == pytest.approx(times[1], rel=1e-6)


def test_reports_name_ranks(folded: RunRecord) -> None:
    console = Console(width=200, file=io.StringIO())
    console.print(summary_text(summarise(folded)))
    text = cast("io.StringIO", console.file).getvalue()

    assert "8 ranks folded to 2 over" in text


@pytest.mark.slow
def test_plots_show_the_ranks_that_were_simulated(folded: RunRecord) -> None:
    for figure in (breakdown(folded), timeline(folded)):
        (axes,) = figure.axes
        assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == ["0", "4"]
        assert axes.get_ylabel() == "Rank (2 of 8)"


def test_only_large_programs_fold_unasked() -> None:
    large = ["job.parallelism.data=128", "job.parallelism.pipeline=1", "job.global_batch=1024", "cluster.hosts=128"]

    assert simulate(load("gpt2-medium-dp", JOB)).ranks is None
    assert simulate(load("gpt2-medium-dp", [*JOB, *large, "collectives=ideal"])).ranks == 128


def test_packets_never_fold() -> None:
    job = ["cluster=ideal", "cluster.hosts=2", "job.parallelism.data=2", "job.global_batch=16", "transport=roce-100g"]
    tiny = ["job.model.layers=1", "job.model.hidden=64", "job.model.heads=1", "job.model.vocabulary=128"]

    assert simulate(load("gpt2-medium-dp", [*job, *tiny, "engine=packet", "folding=on"])).ranks is None
