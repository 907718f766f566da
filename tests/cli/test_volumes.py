from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricsim.results.hdf5 import read, write

Fabricsim = Callable[..., tuple[int, str, str]]

DEGREES = ["--set", "job.parallelism.data=2", "--set", "job.parallelism.pipeline=2", "--set", "cluster.hosts=4"]


def test_volumes_prints_what_is_sent_beside_the_formulas(fabricsim: Fabricsim) -> None:
    code, out, error = fabricsim("volumes", "gpt2-medium-dp", *DEGREES, "--set", "job.global_batch=32")

    assert (code, error) == (0, "")
    assert "gpt2-medium-dp: 4 ranks, one iteration" in out
    assert "agree exactly" in out
    row = next(line for line in out.splitlines() if line.startswith("pipeline send_recv"))
    # 2 replicas of 2 micro-batches, forward and backward: b s h W = 8 x 1024 x 1024 x 2 bytes each
    assert row.split()[2:] == ["8", *["16", "MiB"] * 3, *["128", "MiB"] * 2, *["32", "MiB"] * 2, "0"]


def test_volumes_as_json(fabricsim: Fabricsim) -> None:
    code, out, error = fabricsim("volumes", "gpt2-medium-dp", *DEGREES, "--json")

    found = json.loads(out)
    assert (code, error, found["ranks"], found["agree"]) == (0, "", 4, True)
    assert {row["dimension"] for row in found["volumes"]} == {"data", "pipeline", "embedding"}
    for row in found["volumes"]:
        assert sum(row["histogram"].values()) == sum(size["calls"] for size in row["sizes"]) == row["calls"]
        assert row["difference"] == {"calls": 0, "buffer_bytes": 0, "wire_bytes": 0}
    assert found["total"]["wire_bytes"] == sum(row["wire_bytes"] for row in found["volumes"])


@pytest.mark.slow
def test_imbalance_of_experts_moves_tokens_and_makes_none(fabricsim: Fabricsim) -> None:
    experts = ["--set", "job.model.experts={ count = 8 }", "--set", "job.parallelism.expert=4"]
    uneven = [*experts, "--set", "job.expert_imbalance=3"]

    for flags in (["--json"], ["--json", "--matrix"]):
        even, moved = (
            json.loads(fabricsim("volumes", "gpt2-medium-dp", *each, *flags)[1]) for each in (experts, uneven)
        )
        assert (even.pop("expert_load", 1), moved.pop("expert_load", 3)) == (1, 3)
        assert even == moved
    assert "Experts of the busiest rank get 3 times as" in fabricsim("volumes", "gpt2-medium-dp", *uneven)[1]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_volumes_of_one_rank_are_nothing(fabricsim: Fabricsim, flags: list[str]) -> None:
    alone = ["--set", "job.parallelism.data=1"]
    code, out, _ = fabricsim("volumes", "gpt2-medium-dp", *alone, *flags)

    assert code == 0
    assert json.loads(out)["volumes"] == [] if flags else "Nothing is sent" in out


@pytest.mark.slow
def test_a_run_counts_the_same_pairs_if_asked_and_else_writes_what_it_always_did(
    fabricsim: Fabricsim, tmp_path: Path
) -> None:
    scenario = ["gpt2-medium-dp", *DEGREES]
    _, volumes, _ = fabricsim("volumes", *scenario, "--matrix", "--json")
    code, run, _ = fabricsim("run", *scenario, "--matrix", "--json", "-o", "with.h5")
    fabricsim("run", *scenario, "-o", "without.h5")

    assert code == 0
    assert json.loads(run)["pairs"] == {key: of for key, of in json.loads(volumes).items() if key != "name"}
    pairs = read(tmp_path / "with.h5").pairs
    assert pairs is not None
    assert int(pairs.bytes.sum()) == json.loads(run)["pairs"]["total_bytes"]
    write(replace(read(tmp_path / "with.h5"), pairs=None), tmp_path / "stripped.h5")
    assert (tmp_path / "stripped.h5").read_bytes() == (tmp_path / "without.h5").read_bytes()
    fabricsim("rerun", "with.h5", "-o", "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "with.h5").read_bytes()
    fabricsim("plot", "with.h5")
    assert (tmp_path / "with-matrix.png").exists()
    assert "Who sends to whom" in fabricsim("run", *scenario, "--matrix")[1]


def test_volumes_need_a_job(fabricsim: Fabricsim, tmp_path: Path) -> None:
    code, out, error = fabricsim("volumes", "ideal-16")

    assert (code, out) == (2, "")
    assert "there is no [job]" in error
    assert not list(tmp_path.iterdir())
