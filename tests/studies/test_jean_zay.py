from __future__ import annotations

import lzma
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fabricsim import measured
from fabricsim.run.pipeline import simulate
from fabricsim.scenario.load import load
from fabricsim.studies import jean_zay

if TYPE_CHECKING:
    from pathlib import Path

    from fabricsim.results.validation import Validation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table() -> measured.MeasuredTable:
    return measured.load("jean-zay-pipeline")


@pytest.fixture(scope="module")
def exact(table: measured.MeasuredTable) -> dict[str, jean_zay.IterationTimes]:
    """What a perfect prediction would give."""
    return {
        str(row["model"]): jean_zay.IterationTimes(
            float(row["iteration_s"]), {name: float(row[key]) for key, name in jean_zay.TIMERS.items()}
        )
        for row in table.rows
    }


@pytest.fixture(scope="module")
def study(table: measured.MeasuredTable) -> Validation:
    """What is predicted, but of the calibrating run, which no test looks at, a few micro-batches."""
    rows = table.rows.copy()
    rows["global_batch"][-1] = 64
    assert str(rows["model"][-1]).endswith("calibration")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "load", lambda _: replace(table, rows=rows))
        return jean_zay.validate()


def test_runs_are_those_of_the_log(table: measured.MeasuredTable) -> None:
    for row in table.rows:
        scenario = load("jean-zay", jean_zay.settings(row)).scenario
        assert scenario.job is not None
        assert scenario.cluster.ranks == scenario.job.parallelism.ranks == row["gpus"]
        assert scenario.cluster.gpus_per_host == scenario.job.parallelism.tensor == table.conditions["tensor"]
        model = scenario.job.model
        assert (model.layers, model.hidden, model.heads) == (row["layers"], row["hidden"], table.conditions["heads"])
        assert scenario.job.global_batch == row["global_batch"]
        assert scenario.job.sequence == table.conditions["sequence"]


def test_sizes_are_the_parameters_that_the_models_are_named_after(table: measured.MeasuredTable) -> None:
    for row in table.rows:
        layers, hidden = int(row["layers"]), int(row["hidden"])
        billions = (layers * (12 * hidden**2 + 13 * hidden) + (50257 + 1024) * hidden) / 1e9
        assert billions == pytest.approx(float(str(row["model"]).partition("B")[0]), rel=0.05)


def test_a_perfect_prediction_has_no_error(
    table: measured.MeasuredTable, exact: dict[str, jean_zay.IterationTimes]
) -> None:
    compared = jean_zay.compare(table, exact)

    assert len(compared.rows) == 8 * len(table.rows)
    assert max(abs(row.error) for row in compared.rows) == pytest.approx(0)
    assert compared.rows[0].measured == pytest.approx(661.3)


def test_only_the_two_small_models_are_judged(
    table: measured.MeasuredTable, exact: dict[str, jean_zay.IterationTimes]
) -> None:
    changed = {
        model: jean_zay.IterationTimes(outcome.iteration * factor, outcome.timers)
        for (model, outcome), factor in zip(exact.items(), (1.01, 0.97, 1.2, *[1.0] * 6, 1.3), strict=True)
    }
    summary = jean_zay.compare(table, changed).summary

    assert summary["largest error of the iteration, 7.5B and 30B"] == pytest.approx(0.03)
    assert summary["largest error of the iteration, all"] == pytest.approx(0.2)


def test_iterations_are_met_within_5_percent(study: Validation) -> None:
    assert study.summary["largest error of the iteration, 7.5B and 30B"] < 0.05
    assert study.summary["largest error of the iteration, all"] < 0.05


def test_products_are_as_fast_as_in_the_log_that_gives_their_rate(traces: Path) -> None:
    log = lzma.decompress((traces / "megatron_logs/meg_gpt2_perf_n16-1999618.out.xz").read_bytes()).decode()
    passes = re.findall(r"forward-compute: ([\d.]+) .* backward-compute: ([\d.]+) .* batch-generator: ([\d.]+)", log)
    steady = [tuple(float(time) / 256 for time in row) for row in passes[1:]]  # the first iteration warms up
    forward, backward, batch = (sum(column) / len(steady) for column in zip(*steady, strict=True))
    settings = {
        "cluster.hosts": 16,
        "cluster.gpu.include": "v100-sxm2-32gb",
        "job.model.layers": 64,
        "job.model.hidden": 8192,
        "job.parallelism.pipeline": 16,
        "job.micro_batch": 4,
        "job.global_batch": 16,
        "job.batch_time": f"{batch}ms",
    }

    scenario = load("jean-zay", [f"{key}={value}" for key, value in settings.items()])
    timers = jean_zay.outcome(simulate(scenario)).timers
    found = {name: timers[name] / 4 * 1e3 for name in ("forward-compute", "backward-compute")}

    assert len(steady) == 3
    assert sum(found.values()) == pytest.approx(forward + backward, rel=2e-3)
    assert found["forward-compute"] == pytest.approx(forward, rel=0.02)


def test_bubble_lies_in_the_receive_and_embedding_timers_of_the_last_rank(study: Validation) -> None:
    found = {row.quantity: row.predicted for row in study.rows}

    waiting = found["30B: forward-recv"] + found["30B: embedding-all-reduce"]
    # Reference of the log: 76.2 %; (p - 1) / (m + p - 1) is 78.9 %.
    assert waiting / found["30B: iteration"] == pytest.approx(15 / 19, abs=0.05)


def test_pictures(table: measured.MeasuredTable, exact: dict[str, jean_zay.IterationTimes], tmp_path: Path) -> None:
    few = replace(table, rows=table.rows[[0, 1, -1]])

    paths = jean_zay.STUDY.draw(jean_zay.compare(few, exact), tmp_path)

    models = [str(row["model"]) for row in few.rows]
    assert [path.name for path in paths] == [f"jean-zay-{model}.png".replace(" ", "-") for model in models]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
