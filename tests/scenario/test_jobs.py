from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricsim.errors import ScenarioError
from fabricsim.scenario.job import Parallelism
from fabricsim.scenario.jobs import PlacedJob, placed
from fabricsim.scenario.load import from_tables, load
from fabricsim.scenario.variation import ranges

HOSTS, GPUS = 8, 4


RED = load("two-jobs").scenario.jobs["red"]


def _job(count: int, **keys: object) -> PlacedJob:
    return RED.model_copy(update={"parallelism": Parallelism(data=count), "ranks": None, **keys})


PLACEMENTS = st.sampled_from(["packed", "spread", "random"])
JOBS = st.lists(st.builds(_job, st.integers(1, 8), placement=PLACEMENTS), min_size=1, max_size=4)


@pytest.mark.slow
@given(JOBS, st.integers(0, 2**63 - 1))
def test_every_job_has_ranks_of_its_own(jobs: list[PlacedJob], seed: int) -> None:
    found = placed({str(number): job for number, job in enumerate(jobs)}, HOSTS, GPUS, seed)
    every = [rank for ranks in found.values() for rank in ranks]

    assert [len(ranks) for ranks in found.values()] == [job.parallelism.ranks for job in jobs]
    assert len(set(every)) == len(every)
    assert set(every) <= set(range(HOSTS * GPUS))


def test_placements_are_what_they_say() -> None:
    assert placed({"a": _job(4), "b": _job(8)}, HOSTS, GPUS, 0) == {"a": (0, 1, 2, 3), "b": tuple(range(4, 12))}
    spread = placed({"a": _job(8, placement="spread")}, HOSTS, GPUS, 0)["a"]
    assert spread == (0, 1, 2, 3, 16, 17, 18, 19)  # whole hosts, 0 and 4
    assert placed({"a": _job(2, placement="spread")}, HOSTS, GPUS, 0)["a"] == (0, 16)  # less than a host
    by_hand = placed({"a": _job(4), "b": _job(3, ranks=ranges("1,0,9"))}, HOSTS, GPUS, 0)
    assert by_hand == {"a": (4, 5, 6, 7), "b": (1, 0, 9)}


def test_random_placements_come_from_the_seed_and_the_name() -> None:
    def at(seed: int, name: str = "a") -> tuple[int, ...]:
        return placed({name: _job(8, placement="random")}, 64, 1, seed)[name]

    assert at(1) == at(1)
    assert len({at(1), at(2), at(1, "b")}) == 3


def test_a_job_has_the_keys_of_the_scenarios_job_but_those_that_it_changes() -> None:
    loaded = load("two-jobs", ["jobs.red.micro_batch=4", "jobs.blue.model=bert-base", "jobs.blue.sequence=512"])
    red, blue, base = loaded.scenario.jobs["red"], loaded.scenario.jobs["blue"], loaded.scenario.job

    assert base is not None
    assert (red.micro_batch, red.model) == (4, base.model)
    assert (blue.model.name, blue.micro_batch) == ("bert-base", base.micro_batch)
    assert from_tables(loaded.resolved) == loaded.scenario


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("jobs.red.ranks=0-3", "jobs.red.ranks: names 4 ranks, and the job has 8"),
        ("jobs.red.ranks=0-6,16", "jobs.red.ranks: names rank 16, and there are 0 to 15"),
        ("jobs.red.ranks=0-7", "jobs.blue.ranks: names rank 4, which red has"),
        ("jobs.red.placement=random", "jobs.red.placement: has no effect beside ranks"),
        ("jobs.green={}", "jobs: need 24 ranks together, and the cluster has 16"),
        ("jobs.red.micro_batch=3", "jobs.red.global_batch"),
        ("jobs.red.parallelism.data=64", "jobs.red.parallelism"),
        ("jobs.red.modle=bert-base", "did you mean 'model'"),
        ("jobs.red.bucket=1MB", 'jobs.red.bucket: has no effect with overlap = "none"'),
        ("traffic.x={}", "traffic.x: wants one of pattern and to_host"),
        ("traffic.x.to_host=16", "traffic.x.to_host: is host 16, and there are 0 to 15"),
        ("traffic.x.to_host=1", "traffic.x.size: is missing"),
        ("traffic.x={to_host=1, size='1GB', ranks='1'}", "traffic.x.to_host: is host 1, and no other host sends"),
        ("jobs.red.ranks=[0, 1]", "jobs.red.ranks: a list is no text"),
        ("traffic.x={to_host=1, size='hadoop'}", "traffic.x.size: 'hadoop' is a distribution, and each host sends"),
        ("traffic.x={to_host=1, size='0B'}", "traffic.x.size: '0B' is less than a byte"),
        ("traffic.x={pattern='ring', size='0.2B'}", "traffic.x.size: '0.2B' is less than a byte"),
        ("traffic.x={pattern='ring', size='webserch'}", "did you mean 'websearch'?"),
        ("traffic.x={pattern='incast', every='0s'}", "traffic.x.every: is zero"),
        ("traffic.x={pattern='incast', ranks='0-16'}", "traffic.x.ranks: names rank 16"),
    ],
)
def test_a_slip_in_jobs_or_traffic_is_named_with_its_key(setting: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load("two-jobs", [setting])


def test_a_job_that_others_are_laid_over_need_not_be_complete() -> None:
    tables = load("two-jobs").resolved
    batch = tables["job"].pop("global_batch")
    scenario = from_tables(tables)

    assert scenario.job is None
    assert {job.global_batch for job in scenario.jobs.values()} == {batch}

    del tables["jobs"]["red"]["global_batch"]
    with pytest.raises(ScenarioError, match=r"1 mistake in the scenario:\s+jobs.red.global_batch: is missing"):
        from_tables(tables)


@pytest.mark.parametrize("setting", ["job.micro_batch=x", "job.modle=bert-base", "job.foo=1", "job.model=bert-bas"])
def test_what_is_wrong_in_the_job_itself_is_said_once(setting: str) -> None:
    with pytest.raises(ScenarioError, match=r"1 mistake in the scenario:\s+--set: job\.(m|foo)"):
        load("two-jobs", [setting])


def test_the_job_need_not_fit_where_others_are_laid_over_it() -> None:
    degrees = [f"jobs.{name}.parallelism.data=8" for name in ("red", "blue")]
    scenario = load("two-jobs", ["job.parallelism.data=64", *degrees]).scenario

    assert {job.parallelism.ranks for job in scenario.jobs.values()} == {8}
