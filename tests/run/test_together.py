"""Several jobs, and traffic beside them, on one fabric."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

import fabricsim as fs
from fabricsim.errors import InputError
from fabricsim.results.jobs import of_job
from fabricsim.results.summary import summarise
from fabricsim.run.pipeline import check
from fabricsim.scenario.toml_text import settings

SMALL = ["job.model.layers=1", "job.micro_batch=1", "job.global_batch=8"]
RED, BLUE = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
DISJOINT = ["jobs.red.ranks=0-7", "jobs.blue.ranks=8-15"]


def _times(result: fs.Result) -> list[int]:
    return [job.end - job.start for job in result.jobs]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("start", [0, 1])
def test_jobs_of_a_scenario_are_those_of_simpy_processes(engine: str, start: int) -> None:
    env = simpy.Environment()
    fabric = fs.Fabric(env, fs.load("two-jobs", [f"engine={engine}"]))
    program = fs.program("gpt2-medium-dp", SMALL)

    def job(ranks: list[int], start: float) -> Generator[simpy.Event, Any, Any]:
        yield env.timeout(start)
        return (yield fabric.replay(program, ranks))

    red, blue = env.process(job(RED, 0)), env.process(job(BLUE, start * 1e-3))
    env.run(red & blue)
    both = fs.simulate("two-jobs", overrides=[*SMALL, f"engine={engine}", f"jobs.blue.start={start}ms"])

    replays = red.value, blue.value
    assert [(job.start, job.end) for job in both.jobs] == [(each.start, each.end) for each in replays]
    assert np.array_equal(both.spans, np.concatenate([red.value.spans, blue.value.spans]))


@pytest.mark.slow
def test_a_shared_uplink_doubles_communication_and_disjoint_leaves_do_not() -> None:
    """8 flows of 100 Gb/s share an uplink of 400 Gb/s: half the rate; on leaves of their own jobs are as if alone."""
    alone = fs.simulate("gpt2-medium-dp")
    shared, apart = fs.simulate("two-jobs"), fs.simulate("two-jobs", overrides=DISJOINT)
    communication = alone.summary()["exposed_communication_s"]

    assert _times(apart) == pytest.approx([alone.iteration] * 2, rel=1e-4)  # another cable on the way
    for row in shared.summary()["jobs"]:
        assert row["exposed_communication_s"] == pytest.approx(2 * communication, rel=0.02)
        assert row["compute_s"] == alone.summary()["breakdown_s"]["compute"]


@pytest.mark.slow
def test_causes_name_the_other_job_if_it_shares_what_limits() -> None:
    shared = fs.simulate("two-jobs").summary()["jobs"]
    apart = fs.simulate("two-jobs", overrides=DISJOINT).summary()["jobs"]
    later = fs.simulate("two-jobs", overrides={"jobs.blue.start": "1s"}).summary()["jobs"]

    assert "shared with blue" in str(shared[0]["causes"])
    assert "shared with red" in str(shared[1]["causes"])
    assert "shared with" not in str(apart) + str(later)


@pytest.mark.slow
def test_results_of_several_jobs_are_the_same_from_a_file_and_again(tmp_path: Path) -> None:
    result = fs.simulate("two-jobs", overrides=[*SMALL, "jobs.red.start=1ms"])
    result.save(tmp_path / "both.h5")
    again = fs.read(tmp_path / "both.h5")

    assert again == result
    assert again == fs.simulate("two-jobs", overrides=[*SMALL, "jobs.red.start=1ms"])
    assert isinstance(again, fs.Result)
    assert again.summary()["jobs"] == result.summary()["jobs"]
    assert "red" in repr(result)


def test_a_job_taken_out_of_a_run_is_the_run_of_that_job() -> None:
    """Jobs that do not meet are each as if it was alone, from its own start on."""
    both = fs.simulate("two-jobs", overrides=[*SMALL, *DISJOINT, "jobs.blue.start=7ms"])
    alone = fs.simulate("two-jobs", overrides=[*SMALL, *DISJOINT])

    for job, other in zip(both.jobs, alone.jobs, strict=True):
        mine, there = of_job(both, job), of_job(alone, other)
        assert np.array_equal(mine.ops, there.ops)
        assert mine.iteration == pytest.approx(there.iteration, abs=10)
        assert mine.spans["end"].max() == mine.iteration


@pytest.mark.slow
def test_an_iteration_begins_with_its_job() -> None:
    """No time before a job's start is in its bubble or in what it waited for; with equal starts nothing changes."""
    later = fs.simulate("two-jobs", overrides=[*SMALL, *DISJOINT, "jobs.red.start=7ms", "jobs.blue.start=7ms"])
    told, at_once = later.summary(), fs.simulate("two-jobs", overrides=[*SMALL, *DISJOINT]).summary()

    for key in ("iteration_time_s", "exposed_communication_s"):
        assert told[key] == pytest.approx(at_once[key])  # type: ignore[literal-required]
    assert told["breakdown_s"]["bubble"] == pytest.approx(at_once["breakdown_s"]["bubble"], abs=1e-9)
    assert [cause["cause"] for cause in told["causes"]] == [cause["cause"] for cause in at_once["causes"]]
    assert told["run_time_s"] == pytest.approx(at_once["run_time_s"] + 7e-3)


def test_jobs_are_said_by_check_and_refused_where_one_is_wanted() -> None:
    loaded = fs.load("two-jobs", ["jobs.red.ranks=0-7", "jobs.blue.ranks=8,10,12,14,9,11,13,15"])

    assert check(loaded)[1:] == ["red: ranks 0-7", "blue: ranks 8,10,12,14,9,11,13,15"]
    with pytest.raises(InputError, match="jobs are under"):
        fs.program("two-jobs")


# ---- traffic beside a job -----------------------------------------------------------------------


def test_traffic_takes_its_share_of_a_link_and_is_named() -> None:
    """A flow into host 0 that lasts beyond the job takes a third of what the two channels of the ring had there."""
    quiet = fs.simulate("gpt2-medium-dp", overrides={"cluster.hosts": 9})
    busy = {"cluster.hosts": 9, "traffic.backup": {"to_host": 0, "ranks": "8", "size": "100GB"}}
    result = fs.simulate("gpt2-medium-dp", overrides=busy)
    causes = result.summary()["causes"]

    wire = next(cause for cause in causes if cause["cause"] == "wire")
    assert wire["detail"] == "shared with traffic backup"
    longer = result.summary()["exposed_communication_s"] / quiet.summary()["exposed_communication_s"]
    assert longer == pytest.approx(3 / 2, rel=0.01)  # two channels of the ring share with one flow
    assert any(note.startswith("traffic backup: 1 flow, 100 GB in all, which had not") for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_traffic_repeats_at_its_times(engine: str) -> None:
    again = {"traffic.x": {"pattern": "incast", "flows": 2, "size": "1kB", "start": "1ms", "every": "2ms"}}
    result = fs.simulate("gpt2-medium-dp", overrides=[*SMALL, f"engine={engine}", *settings(again)])

    rounds = int((result.iteration / 1e9 - 1) // 2) + 1
    assert any(f"; {rounds} times, " in note for note in result.notes)


def test_traffic_that_shares_nothing_changes_nothing() -> None:
    quiet = fs.simulate("gpt2-medium-dp", overrides={"cluster.hosts": 10})
    beside = {"cluster.hosts": 10, "traffic.x": {"pattern": "permutation", "ranks": "8-9", "size": "1GB"}}

    assert summarise(fs.simulate("gpt2-medium-dp", overrides=beside))["causes"] == summarise(quiet)["causes"]


def test_traffic_that_is_over_is_said_to_be() -> None:
    once = {"traffic": {"x": {"pattern": "incast", "size": "1MB", "start": "300ms"}}}
    never = {"traffic": {"x": {"pattern": "incast", "size": "1MB", "start": "10s"}}}

    assert "shared with traffic x until 30" in str(fs.simulate("what-if-ring", overrides=once).summary()["causes"])
    late = fs.simulate("what-if-ring", overrides=never)
    assert "traffic x" not in str(late.summary()["causes"])
    assert any("were to begin after the jobs were done" in note for note in late.notes)


@pytest.mark.slow
def test_calls_that_share_a_full_wire_with_traffic_wait_for_nothing_else(tmp_path: Path) -> None:
    """What is sent from 300 ms on leaves the wire of host 0 no rest while gradients are reduced."""
    traffic = {"x": {"to_host": 0, "ranks": "8-15", "size": "1GB", "start": "300ms"}}
    result = fs.simulate(fs.load("what-if-ring", {"traffic": traffic}))
    first, *others = summarise(result)["causes"]

    assert first["resource"] == "switch0->host0"
    assert first["detail"].startswith("shared with traffic x until")
    assert first["time_s"] == pytest.approx(float((result.calls.end - result.calls.start).max()) / 1e12, rel=1e-5)
    assert not [cause for cause in others if cause["cause"] == "latency" and cause["time_s"] > 1e-6]

    result.save(tmp_path / "run.h5")
    assert fs.read(tmp_path / "run.h5") == result


def test_traffic_that_is_over_before_calls_is_no_cause() -> None:
    traffic = {"x": {"to_host": 0, "ranks": "8-15", "size": "100MB", "start": "0ms"}}
    plain = summarise(fs.simulate(fs.load("gpt2-medium-dp", {"cluster.hosts": 16})))
    told = summarise(fs.simulate(fs.load("gpt2-medium-dp", {"cluster.hosts": 16, "traffic": traffic})))

    assert told["causes"] == plain["causes"]


def test_a_file_of_traffic_says_itself_what_is_sent(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("src,dst,bytes\n0,1,5000000\n")
    beside = {"traffic": {"x": {"pattern": str(tmp_path / "one.csv"), "size": "1MB"}}}

    with pytest.raises(fs.FabricsimError, match=r"size has no effect: .*one\.csv is a file"):
        fs.simulate("what-if-ring", overrides=beside)
