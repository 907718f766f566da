from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fabricsim.errors import SimulationError
from fabricsim.results.hdf5 import write
from fabricsim.run import at_once
from fabricsim.run.at_once import part, simulate_all
from fabricsim.run.pipeline import load
from fabricsim.scenario.load import LoadedScenario

TWO_RANKS = ["cluster.hosts=2", "job.micro_batch=1", "job.global_batch=2", "job.parallelism.data=2"]


@pytest.fixture(scope="module")
def loaded() -> list[LoadedScenario]:
    transports = ("tcp-10g", "ipoib-100g", "rdma-100g", "roce-100g")
    return [load("gpt2-medium-dp", [*TWO_RANKS, f"transport={name}"]) for name in transports]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 4, 9])
def test_results_come_in_order_and_do_not_depend_on_jobs(
    loaded: list[LoadedScenario], tmp_path: Path, jobs: int
) -> None:
    alone, together = simulate_all(loaded), simulate_all(loaded, jobs=jobs)

    assert [result.transport for result in together] == [one.scenario.transport.name for one in loaded]
    for first, second in zip(alone, together, strict=True):
        write(first, tmp_path / "first.h5")
        write(second, tmp_path / "second.h5")
        assert (tmp_path / "first.h5").read_bytes() == (tmp_path / "second.h5").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_rises_to_one_in_the_callers_thread(loaded: list[LoadedScenario], jobs: int) -> None:
    seen: list[float] = []
    threads: set[int] = set()

    def report(share: float) -> None:
        seen.append(share)
        threads.add(threading.get_ident())

    simulate_all(loaded, jobs=jobs, progress=report)

    assert seen == sorted(seen)
    assert {0.25, 0.5, 0.75, 1.0} <= set(seen)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_first_error_ends_the_sweep(loaded: list[LoadedScenario], monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    def fail(one: LoadedScenario, **_: Any) -> None:  # noqa: ANN401  as simulate takes it
        raise SimulationError(one.scenario.transport.name)

    monkeypatch.setattr(at_once, "simulate", fail)

    with pytest.raises(SimulationError, match="tcp-10g"):
        simulate_all(loaded, jobs=jobs)


def test_nothing_to_run_gives_nothing() -> None:
    assert simulate_all([]) == simulate_all([], jobs=2) == []


def test_part_of_the_work() -> None:
    seen: list[float] = []
    second = part(seen.append, 1, 4)

    assert second is not None
    second(0.0)
    second(1.0)
    assert seen == [0.25, 0.5]
    assert part(None, 1, 4) is None
