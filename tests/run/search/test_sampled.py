from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabricsim.errors import InputError
from fabricsim.run.pipeline import load
from fabricsim.run.search.search import OUT, Extent, search
from fabricsim.run.sweeps.workers import Workers
from fabricsim.scenario.load import LoadedScenario
from tests.conftest import Outcome

MACHINE: dict[str, Any] = {
    "cluster.hosts": 1,
    "job.model": {"include": "gpt2-medium", "layers": 8},
    "job.sequence": 1024,
    "job.global_batch": 16,
    "job.parallelism": {"tensor": 4, "pipeline": 1, "data": 2, "virtual_stages": 1},
}
KEYS: dict[str, list[Any]] = {
    "job.parallelism.zero": [0, 1, 3],
    "job.parallelism.virtual_stages": [1, 2],
    "job.recompute": ["none"],
    "job.schedule": ["1f1b", "zb-h1"],
}


def small() -> LoadedScenario:
    return load("llama3-405b", MACHINE)


@pytest.mark.slow
def test_proposals_find_the_best_of_a_small_space_whatever_the_number_of_workers(tmp_path: Path) -> None:
    whole = search(small(), tmp_path / "whole", given=KEYS)
    found = search(small(), tmp_path / "one", given=KEYS, extent=Extent(24))
    again = search(small(), tmp_path / "two", given=KEYS, extent=Extent(24), workers=Workers(2))

    assert found.rows[0]["iteration_time_s"] == whole.rows[0]["iteration_time_s"]
    assert found.rows == again.rows
    assert found.simulated <= 24
    out = [row for row in found.rows if row["status"] == OUT]
    assert out
    assert all(row["bound_s"] is None or row["bound_s"] > found.rows[0]["iteration_time_s"] for row in out)


@pytest.mark.slow
def test_the_own_layout_comes_first_and_no_more_are_simulated_than_asked_for(tmp_path: Path) -> None:
    found = search(small(), tmp_path, given=KEYS, extent=Extent(1))
    (own,) = found.rows

    assert (own["own"], own["status"]) == (True, "done")
    few = search(small(), tmp_path, given=KEYS, extent=Extent(3))
    assert few.simulated == 3
    assert few.layouts >= 3


@pytest.mark.slow
def test_proposals_end_if_there_is_nothing_new(tmp_path: Path) -> None:
    one = {key: values[:1] for key, values in KEYS.items()}
    one |= {"job.parallelism.tensor": [4], "job.parallelism.pipeline": [1], "job.micro_batch": [1]}

    assert search(small(), tmp_path, given=one, extent=Extent(100)).simulated <= 2


def test_without_optuna_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'fabricsim\[search\]'"):
        search(small(), tmp_path, extent=Extent(3))


def test_a_few_layouts_have_no_frontier(fabricsim: Callable[..., Outcome]) -> None:
    said = fabricsim("search", "llama3-405b", "--trials", "3", "--exhaustive")
    assert said.code == 2
    assert "leave out --exhaustive and --prices" in said.err
