from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from fabricsim import measured
from fabricsim.errors import ScenarioError
from fabricsim.run.at_once import simulate_all
from fabricsim.run.pipeline import load
from fabricsim.studies.dai2024 import STUDY
from fabricsim.studies.dai2024 import study as dai2024
from fabricsim.studies.dai2024.grid import (
    AUTHORS,
    DATA,
    EXAMPLES,
    PIPELINE,
    STRONG,
    VARIATIONS,
    WEAK,
    Assumptions,
    Point,
    Script,
    points,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fabricsim.results.result import RunRecord
    from fabricsim.results.validation import Validation
    from fabricsim.scenario.load import LoadedScenario

SMALL = Assumptions(nodes=(2,), families=("bert-large",))
CASES = {"as assumed": Assumptions(), **VARIATIONS}


def setting(point: Point, key: str) -> int:
    """Value of a setting; the last one counts."""
    return int([text.partition("=")[2] for text in point.settings if text.startswith(f"{key}=")][-1])


# ---- the grid -----------------------------------------------------------------------------------


def test_grid_is_every_combination_once() -> None:
    grid = list(points(Assumptions()))
    models = [model for script in AUTHORS for model in script.models]

    assert len(grid) == len(set(grid)) == len(models) * 3 * 2 * 2
    assert {(point.model, point.nodes, point.scaling, point.parallel) for point in grid} == {
        (model, nodes, scaling, parallel)
        for model in models
        for nodes in (2, 4, 8)
        for scaling in (WEAK, STRONG)
        for parallel in (DATA, PIPELINE)
    }


def script_of(point: Point, case: str) -> Script:
    """The script that a point's model is from."""
    return next(script for script in CASES[case].scripts if point.model in script.models)


def kinds(case: str, parallel: str) -> Iterator[tuple[Point, Script]]:
    """Points of one parallelism with their scripts."""
    for point in points(CASES[case]):
        if point.parallel == parallel:
            yield point, script_of(point, case)


@pytest.mark.parametrize("case", CASES)
def test_batches_of_data_parallelism_are_as_documented(case: str) -> None:
    assumptions = CASES[case]
    per_host = assumptions.gpus_per_host

    for point, script in kinds(case, DATA):
        written = round(script.micro_batch * assumptions.micro_batch_factor)
        micro, batch = setting(point, "job.micro_batch"), setting(point, "job.global_batch")
        ranks = point.nodes * per_host
        assert setting(point, "job.parallelism.data") == ranks
        assert batch == micro * ranks  # one micro-batch per rank
        assert batch == written * (ranks if point.scaling == WEAK else 2 * per_host)
        assert setting(point, "cluster.hosts") == point.nodes
        assert setting(point, "cluster.gpus_per_host") == per_host


@pytest.mark.parametrize("case", CASES)
def test_batches_of_split_models_are_as_documented(case: str) -> None:
    assumptions = CASES[case]
    tensor = assumptions.tensor

    for point, script in kinds(case, PIPELINE):
        written = script.micro_batch if tensor == 1 else script.split_micro_batch
        micro, batch = setting(point, "job.micro_batch"), setting(point, "job.global_batch")
        assert micro == round(written * assumptions.micro_batch_factor)
        if assumptions.script_batches:
            assert batch == script.split_batch * (Fraction(2 * point.nodes, 8) if point.scaling == WEAK else 1)
        else:
            assert batch == micro * (point.nodes // 2 if point.scaling == WEAK else 1)


@pytest.mark.parametrize("case", CASES)
def test_layers_are_split_within_a_host_and_pipelines_go_over_all(case: str) -> None:
    tensor = CASES[case].tensor

    for point, _ in kinds(case, PIPELINE):
        per_host = setting(point, "cluster.gpus_per_host")
        stages = setting(point, "job.parallelism.pipeline")
        assert setting(point, "job.parallelism.data") == 1
        assert setting(point, "job.parallelism.tensor") == tensor
        assert per_host % tensor == 0
        assert tensor * stages == point.nodes * per_host
        assert f"job.parallelism.scatter_gather={str(tensor > 1).lower()}" in point.settings


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_variation_changes_something_and_can_be_loaded(case: str) -> None:
    assert case == "as assumed" or set(points(CASES[case])) != set(points(Assumptions()))
    for point in points(CASES[case]):
        if point.parallel == DATA:
            assert load("dai2024", point.settings).scenario.cluster.ranks == setting(point, "job.parallelism.data")


def test_wrong_assumptions_are_no_reason_to_leave_runs_out() -> None:
    with pytest.raises(ScenarioError, match="unknown key"):
        dai2024.find(replace(SMALL, settings=("job.micro_bach=1",)))


@pytest.mark.slow
def test_heads_that_two_ranks_cannot_share_are_left_out() -> None:
    families = ("gpt2-xl", "bert-base")
    found = dai2024.find(Assumptions(nodes=(2,), families=families, scalings=(STRONG,), scripts=EXAMPLES))

    # GPT-2 XL has 25
    assert [(point.model, point.parallel) for point in found.outcomes] == [
        ("gpt2-xl", DATA),
        ("bert-base", DATA),
        ("bert-base", PIPELINE),
    ]


@pytest.mark.slow
def test_pipelines_that_cannot_share_the_layers_are_left_out() -> None:
    found = dai2024.find(Assumptions(nodes=(2, 8), families=("gpt2-large",), scalings=(STRONG,)))

    # 36 layers go to 2 stages, but not to 8
    assert [(point.parallel, point.nodes) for point in found.outcomes] == [(DATA, 2), (PIPELINE, 2), (DATA, 8)]


# ---- the study, end to end and small ------------------------------------------------------------


@pytest.fixture(scope="module")
def findings() -> dai2024.Findings:
    return dai2024.find(SMALL)


@pytest.mark.slow
def test_every_point_runs_on_every_transport(findings: dai2024.Findings) -> None:
    assert set(findings.outcomes) == set(points(SMALL))
    assert {tuple(run) for run in findings.outcomes.values()} == {dai2024.TRANSPORTS}


@pytest.mark.slow
def test_figures_are_those_that_were_measured(findings: dai2024.Findings) -> None:
    figures = findings.figures

    assert set(figures) == set(measured.figures("dai2024"))
    for key, value in figures.items():
        if "gain" in key:
            assert value > 1
        if "share" in key:
            assert 0 < value < 100
    assert figures["data_parallel_gain_over_tcp"] > figures["data_parallel_gain_over_ipoib"]
    assert figures["pipeline_gain_over_tcp"] > figures["pipeline_gain_over_ipoib"]
    assert figures["data_parallel_gain_over_tcp"] > figures["pipeline_gain_over_tcp"]


@pytest.mark.slow
def test_no_transport_carries_more_than_its_wire(findings: dai2024.Findings) -> None:
    figures = findings.figures

    for name, line_rate in (("tcp", 10), ("ipoib", 100), ("rdma", 100)):
        assert 0 < figures[f"peak_utilisation_{name}"] < line_rate


@pytest.mark.slow
def test_figures_follow_from_the_outcomes(findings: dai2024.Findings) -> None:
    runs = [run for point, run in findings.outcomes.items() if point.parallel == DATA]
    gains = [run["tcp-10g"].iteration / run["rdma-100g"].iteration for run in runs]
    shares = [outcome.timers["params-all-reduce"] / outcome.iteration for run in runs for outcome in run.values()]

    assert findings.figures["data_parallel_gain_over_tcp"] == pytest.approx(sum(gains) / len(gains))
    assert findings.figures["data_parallel_all_reduce_share"] == pytest.approx(100 * max(shares))


@pytest.mark.slow
def test_jobs_do_not_change_the_findings(findings: dai2024.Findings) -> None:
    assert dai2024.find(SMALL, jobs=2) == findings


@pytest.mark.slow
def test_what_is_known_is_not_run_again(findings: dai2024.Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def counting(loaded: Sequence[LoadedScenario], **how: Any) -> list[RunRecord]:  # noqa: ANN401  handed on
        ran.append(len(loaded))
        return simulate_all(loaded, **how)

    monkeypatch.setattr(dai2024, "simulate_all", counting)
    known: dai2024.Known = {}

    assert dai2024.find(replace(SMALL, scalings=(WEAK,)), known=known).figures == findings.figures
    assert dai2024.find(SMALL, known=known) == findings  # both kinds of scaling begin with two nodes
    assert ran == [2 * len(dai2024.TRANSPORTS), 0]


def _make_small(patch: pytest.MonkeyPatch) -> None:
    few = replace(SMALL, nodes=(8,), scalings=(WEAK,), families=("gpt2-medium",))
    patch.setattr(dai2024, "Assumptions", lambda: few)
    patch.setattr(dai2024, "VARIATIONS", {"fewer nodes": replace(SMALL, scalings=(WEAK,))})


@pytest.fixture
def small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the study run with fewer points and one variation."""
    _make_small(monkeypatch)


@pytest.fixture(scope="module")
def study() -> Validation:
    with pytest.MonkeyPatch.context() as patch:
        _make_small(patch)
        return dai2024.validate()


@pytest.mark.slow
def test_study_holds_measured_against_predicted(study: Validation) -> None:
    figures = measured.figures("dai2024")

    assert study.study == "dai2024"
    assert [(row.quantity, row.measured, row.unit) for row in study.rows] == [
        (figure.quantity, figure.value, figure.unit) for figure in figures.values()
    ]
    assert list(study.summary["sensitivity"]) == ["as assumed", "fewer nodes"]
    base = study.summary["sensitivity"]["as assumed"]
    assert [row.predicted for row in study.rows] == pytest.approx([base[key] for key in figures], abs=5e-5)
    assert study.summary["runs"] == len(study.summary["points"]) == 2 * 3
    assert study.parameters["fitted"] == "nothing"
    assert json.loads(study.to_json())["summary"]["points"] == study.summary["points"]


@pytest.mark.slow
@pytest.mark.usefixtures("small_study")
def test_predictions_do_not_look_at_the_measured_figures(study: Validation, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = measured.figures

    def doubled(name: str) -> dict[str, measured.Figure]:
        return {key: replace(figure, value=2 * figure.value) for key, figure in genuine(name).items()}

    monkeypatch.setattr(measured, "figures", doubled)
    other = dai2024.validate()

    assert [row.predicted for row in other.rows] == [row.predicted for row in study.rows]
    assert [row.measured for row in other.rows] == [2 * row.measured for row in study.rows]
    assert other.summary == study.summary


@pytest.mark.slow
@pytest.mark.usefixtures("small_study")
def test_progress_covers_the_variations() -> None:
    seen: list[float] = []

    dai2024.validate(seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert 0.5 in seen


@pytest.mark.slow
def test_pictures(study: Validation, tmp_path: Path) -> None:
    paths = STUDY.draw(study, tmp_path)

    assert [path.stem.removeprefix("dai2024-") for path in paths] == [
        "gains",
        "utilisation",
        "shares",
        "data-parallel",
        "data-scaling",
        "pipeline-parallel",
        "pipeline-scaling",
        "rates",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
