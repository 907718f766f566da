from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fabricsim.records.program import NONE
from fabricsim.results.breakdown import critical_rank, iteration_parts
from fabricsim.results.causes import causes
from fabricsim.results.critical_path import critical_path
from fabricsim.results.resources import by_tier, resources, tier
from fabricsim.results.result import Limits, LinkRecord, Rest, RunRecord
from fabricsim.run.pipeline import load, simulate
from fabricsim.run.verbs import replay
from fabricsim.units import PS_PER_S
from tests.reference import factory

S = PS_PER_S


def _rows(result: RunRecord) -> dict[tuple[str, str], float]:
    return {(row["cause"], row["of"]): row["time_s"] for row in causes(result)}


def _held(result: RunRecord, limit: int, used: float, rest: Rest, failed: int = NONE) -> RunRecord:
    count = len(result.calls)
    told = np.full(count, limit), np.full(count, used), np.full(count, rest), np.full(count, failed)
    limits = Limits(*told, np.zeros(count))
    return dataclasses.replace(result, calls=dataclasses.replace(result.calls, limits=limits))


def test_a_failed_link_names_the_rest_of_a_call(two_ranks: RunRecord) -> None:
    named = {row["cause"]: row["resource"] for row in causes(_held(two_ranks, 0, 0.25, Rest.FAILURE, failed=1))}
    assert named["failed link"] == two_ranks.links[1].name


def test_the_path_runs_over_the_rank_that_is_ready_last(two_ranks: RunRecord) -> None:
    # rank 0: forward 0-4, waits for rank 1 (forward 0-6), all-reduce 6-10, optimizer 10-11
    path = critical_path(two_ranks, 0, 0, two_ranks.iteration)
    assert [(piece.rank, piece.begin // S, piece.end // S) for piece in path] == [(0, 10, 11), (0, 6, 10), (1, 0, 6)]


def test_the_path_can_be_cut_to_a_window(two_ranks: RunRecord) -> None:
    path = critical_path(two_ranks, 0, 3 * S, 8 * S)
    assert (path[0].end, path[-1].begin) == (8 * S, 3 * S)
    assert sum(piece.end - piece.begin for piece in path) == 5 * S


def test_a_call_is_divided_by_the_use_of_its_resource(two_ranks: RunRecord) -> None:
    result = _held(two_ranks, 0, 0.75, Rest.TIMEOUTS)
    assert _rows(result) == pytest.approx(
        {("compute", "rank 1"): 7.0, ("wire", "data all_reduce"): 3.0, ("timeouts", "data all_reduce"): 1.0}
    )
    assert [row["resource"] for row in causes(result)] == [None, "host0 > leaf0", None]


def test_a_call_without_a_resource_waits_for_its_latency(two_ranks: RunRecord) -> None:
    assert _rows(two_ranks)["latency", "data all_reduce"] == 4.0


def test_waiting_for_other_stages_is_the_pipeline_bubble() -> None:
    result = factory.pipeline(ranks=4, batches=1)
    first = causes(result)[0]
    assert (first["cause"], first["of"]) == ("pipeline bubble", "waiting for other stages")


def test_waiting_for_other_ranks_of_a_trace_without_a_pipeline_is_no_pipeline_bubble(tmp_path: Path) -> None:
    sends = "rank 0 {\nc: calc 1000000\na: send 5b to 1\na requires c\n}\n"
    (tmp_path / "three.goal").write_text(f"num_ranks 2\n{sends}rank 1 {{\na: recv 5b from 0\n}}\n", encoding="utf-8")
    first = causes(replay(tmp_path / "three.goal", "ideal-16"))[0]

    assert (first["cause"], first["of"]) == ("bubble", "waiting for other ranks")
    assert first["time_s"] == pytest.approx(1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [1, 3])
def test_waiting_for_a_receiver_is_no_communication_on_a_network_without_latency(chunks: int) -> None:
    # each message takes 0.2 us, and its send is done in the instant in which its receiver is ready
    network = {
        "transport": "ideal-100g",
        "collectives": {"include": "ideal"},
        "fabric": {"topology": "single-switch", "link_rate": "100Tbps"},
        "cluster": {"include": "ideal", "hosts": 8, "gpu": {"include": "a100-sxm-80gb"}},
    }
    degrees = {"pipeline": 8, "data": 1, "virtual_stages": chunks}
    job = {"job.micro_batch": 1, "job.global_batch": 24, "job.parallelism": degrees}
    result = simulate(load("gpt2-medium-dp", network | job))
    parts = iteration_parts(result)

    assert sum(parts.exposed.values()) < result.iteration / 1000
    assert parts.compute + parts.idle + parts.waiting == pytest.approx(result.iteration, rel=1e-3)
    assert {row["cause"] for row in causes(result)[:2]} == {"compute", "pipeline bubble"}


@pytest.mark.parametrize("batches", [1, 3, 8])
def test_times_add_up_to_the_iteration(batches: int) -> None:
    result = factory.pipeline(ranks=4, batches=batches)
    path = critical_path(result, critical_rank(result), 0, result.iteration)
    assert [piece.begin for piece in path[:-1]] == [piece.end for piece in path[1:]]
    assert sum(row["time_s"] for row in causes(result)) == pytest.approx(result.iteration / S, rel=1e-9)
    assert sum(row["share"] for row in causes(result)) == pytest.approx(1, rel=1e-9)


def test_a_tier_is_one_row(two_ranks: RunRecord) -> None:
    rows = {row["tier"]: row for row in resources(two_ranks)}
    assert list(rows) == ["host* proxy", "host* > leaf*"]
    wires = rows["host* > leaf*"]
    assert (wires["count"], wires["busiest"]) == (2, "host0 > leaf0")
    assert (wires["utilisation_mean"], wires["utilisation_max"]) == pytest.approx((0.375, 0.5))
    assert tier("leaf12->spine3") == "leaf*->spine*"


def test_of_links_that_differ_by_rounding_the_first_is_the_busiest_and_none_is_used_beyond_the_end() -> None:
    loads = {"a1": 0.3, "a2": 0.3 + 5e-17, "b1": 1.02}
    links = [LinkRecord(name, "wire", 1.0, load, 0.0, ()) for name, load in loads.items()]

    rows = {row["tier"]: row for row in by_tier(links, 1.0)}

    assert loads["a2"] > loads["a1"]
    assert (rows["a*"]["busiest"], rows["b*"]["utilisation_max"]) == ("a1", 1.0)


@pytest.mark.slow
def test_a_failure_that_costs_nothing_is_no_cause_of_a_call_that_takes_long() -> None:
    scenario = {
        "cluster": {"include": "ideal", "hosts": 8},
        "fabric": {"topology": "single-switch"},
        "transport": {"include": "ideal-100g", "latency": "100us"},
        "collectives": {"include": "ideal", "chunk": "64KiB"},
        "job.parallelism": {"data": 8},
    }
    found = simulate(load("gpt2-medium-dp", scenario))
    middle = (found.calls.start[0] + found.calls.end[0]) / 2 / 1e6
    cut = {"link": "host3-switch0", "from": f"{middle}us", "until": f"{middle + 1}us"}
    failing = simulate(load("gpt2-medium-dp", scenario | {"fabric.failures": [cut], "fabric.reconvergence": "1s"}))

    assert failing.iteration == found.iteration
    assert [row["cause"] for row in causes(failing)] == [row["cause"] for row in causes(found)]
