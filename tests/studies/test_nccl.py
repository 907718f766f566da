"""Published tables of nccl-tests and what NCCL chose, as `fabricsim validate nccl` holds predictions against them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fabricsim.studies import nccl

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study() -> Validation:
    return nccl.validate()


def test_median_errors_are_within_the_goals(study: Validation) -> None:
    assert study.summary["median error of time, all rows"] <= 0.15
    assert study.summary["median error of time, rows from 16 MiB"] <= 0.10


LARGE_OFF = {
    "nccl-v100-socket",
    "hkbu-16-100g-ib",
    "nccl-gh200-socket",
    "nccl-400g-tree",
    "nccl-gb200",
}


def test_large_calls_on_each_described_cluster(study: Validation) -> None:
    """All but those that validation/nccl.md tells."""
    tables = study.summary["tables"].items()
    assert {table for table, found in tables if found["median_from_16_MiB"] > 0.10} == LARGE_OFF


CLASS_OFF = "100G InfiniBand without GPUDirect"  # by its 16 hosts, whose equal calls differ by up to 2.3


def test_one_class_of_machines_is_beyond_30_percent(study: Validation) -> None:
    machines = study.summary["machines"]
    assert set(machines) == {case.machine for case in nccl.CASES} | {"all"}
    assert {name for name, found in machines.items() if found["median"] > 0.30} == {CLASS_OFF}
    assert sum(found["rows"] for name, found in machines.items() if name != "all") == machines["all"]["rows"]


def _inside(study: Validation) -> dict[str, float]:
    return {label: found["median"] for label, found in study.summary["inside one host over NVLink, from 1 MiB"].items()}


FAR_OFF = {
    "all_to_all, 8 x a100-sxm-80gb",
    "all_to_all, 2 x h200-sxm",
    "all_to_all, 2 x b200-sxm",
    "all_reduce, 8 x b200-sxm",  # below 16 MiB
}


def test_collectives_inside_a_host(study: Validation) -> None:
    goals = {label: 0.15 if label.startswith("all_to_all") else 0.10 for label in _inside(study)}
    assert {label for label, median in _inside(study).items() if median > goals[label]} == FAR_OFF


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm"])
def test_large_all_reduces_inside_a_host(study: Validation, gpu: str) -> None:
    found = study.summary["inside one host over NVLink, from 1 MiB"]
    for gpus in (2, 4, 8):
        assert found[f"all_reduce, {gpus} x {gpu}"]["median_from_16_MiB"] <= 0.12


def test_channels_rings_trees_and_thresholds_are_those_of_the_logs() -> None:
    rows = nccl.logged_rows()
    assert len(rows) == 8
    assert all(row.predicted == row.measured for row in rows)


def test_the_study_is_json_and_draws_a_picture_per_table(
    study: Validation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few tables: one that is judged from its first row on, one from a larger size, and one that calibrates."""
    kinds = {(case.judged_from > 0, case.calibrates): case for case in nccl.CASES}
    monkeypatch.setattr(nccl, "CASES", tuple(kinds.values()))

    assert json.loads(study.to_json())["study"] == "nccl"
    assert len(nccl.STUDY.draw(study, tmp_path)) == len(kinds) >= 3
