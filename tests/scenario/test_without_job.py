"""Scenarios that describe a fabric only."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricsim.cli.library import check
from fabricsim.cli.runs import run
from fabricsim.errors import InputError, ScenarioError
from fabricsim.run.pipeline import build_plan
from fabricsim.scenario.load import from_tables, load

JOBLESS = ["hkbu", "ideal-16"]

BROKEN = """\
name = "fabric only"
fabric = { topology = "leaf-spine", spines = 2 }
transport = { include = "tcp-10g", mpi = { eager_limit = "64KiB", eager_copy = false, inline_limit = "64B" } }

[cluster]
include = "hkbu"
gpus_per_pcie_switch = 3

[cluster.nic]
socket = "1"
mpi_latency = 2.2

[cluster.ethernet_nic]
include = "intel-10gbe"
socket = 2
mpi_inline_limit = "64B"
latancy = "19us"
interrupt_moderation = [
    { above = "2kB", interval = "50us" },
    { above = "1kB", interval = "84us" },
]
"""

MISTAKES = {
    "fabric.hosts_per_leaf": (2, "is missing"),
    "transport.mpi.inline_limit": (3, "unknown key"),
    "cluster.gpus_per_pcie_switch": (
        7,
        "3 does not divide the 4 GPUs of a host; cluster.gpus_per_host is from workloads/clusters/hkbu.toml:7",
    ),
    "cluster.nic.socket": (10, "'1' is no whole number"),
    "cluster.nic.mpi_latency": (11, "2.2 has no unit"),
    "cluster.ethernet_nic.socket": (15, "2 is no socket of a CPU 'xeon-skylake-2s' with 2 (counted from 0)"),
    "cluster.ethernet_nic.latancy": (17, "unknown key"),
    "cluster.ethernet_nic.mpi_inline_latency": (
        13,
        "is missing: mpi_inline_limit and mpi_inline_latency have an effect only together",
    ),
    "cluster.ethernet_nic.interrupt_moderation[1].above": (20, "is not larger than that of the step before"),
}


def _mistakes(file: Path, text: str) -> dict[str, tuple[int, str]]:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    places = {mistake.key: mistake.where.removeprefix(f"{file}:") for mistake in caught.value.mistakes}
    assert len(places) == len(caught.value.mistakes)
    return {mistake.key: (int(places[mistake.key]), mistake.problem) for mistake in caught.value.mistakes}


@pytest.mark.parametrize("name", JOBLESS)
def test_it_is_checked_like_any_other(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(name)

    assert f"{name}: no mistakes; " in capsys.readouterr().out
    loaded = load(name)
    assert loaded.scenario.job is None
    assert "job" not in loaded.resolved
    assert from_tables(loaded.resolved) == loaded.scenario


@pytest.mark.parametrize("name", JOBLESS)
def test_there_is_nothing_to_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no \[job\] to run"):
        run(name, output=tmp_path / "out.h5")

    assert list(tmp_path.iterdir()) == []


def test_its_mistakes_are_found_with_their_lines_and_no_job_is_missed(tmp_path: Path) -> None:
    assert _mistakes(tmp_path / "fabric.toml", BROKEN) == MISTAKES


@pytest.mark.parametrize(
    ("adapter", "line", "problem"),
    [
        ('"intel-10gb"', 3, "there is no 'intel-10gb' in workloads/nics"),
        ('{ include = "intel-10gb" }', 3, "there is no 'intel-10gb' in workloads/nics"),
        ("3", 3, "3 is no table"),
    ],
)
def test_an_unknown_second_adapter_is_refused(adapter: str, line: int, problem: str, tmp_path: Path) -> None:
    text = f'extends = "hkbu"\n[cluster]\nethernet_nic = {adapter}\n'

    assert _mistakes(tmp_path / "x.toml", text) == {"cluster.ethernet_nic": (line, problem)}


def test_a_second_adapter_written_in_full_needs_its_slot(tmp_path: Path) -> None:
    text = 'extends = "ideal-16"\n\n[cluster.ethernet_nic]\nname = "own"\n'

    assert _mistakes(tmp_path / "x.toml", text) == {"cluster.ethernet_nic.pcie": (3, "is missing")}


def test_a_misspelt_job_is_not_taken_as_none(tmp_path: Path) -> None:
    text = 'extends = "hkbu"\n[jbo]\nmicro_batch = 1\n'

    assert _mistakes(tmp_path / "x.toml", text) == {"jbo": (2, "unknown key")}


def test_a_job_may_be_added(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('extends = "hkbu"\n[job]\nmodel = "gpt2-medium"\n', encoding="utf-8")

    loaded = load(file, ["job.micro_batch=1", "job.global_batch=2", "job.sequence=64", "job.parallelism.data=2"])

    assert build_plan(loaded).ranks == 2
    with pytest.raises(ScenarioError, match=r"job\.micro_batch: is missing"):
        load(file)
