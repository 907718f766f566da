"""Intervals of iterations, for what parameters may be off."""

from __future__ import annotations

from math import exp, hypot, log
from statistics import median

import pytest

from fabricsim.errors import InputError
from fabricsim.results.uncertainty import Uncertainty
from fabricsim.run.model_error import MODEL_ERRORS, interval, model_spread
from fabricsim.run.pipeline import load, simulate
from fabricsim.run.uncertainty import SPREADS, drawn_iterations, parameters, uncertainty, varied
from fabricsim.scenario.toml_text import settings

SMALL = ["cluster.hosts=2", "job.parallelism.data=2", "job.global_batch=2", "job.micro_batch=1", "job.model.layers=2"]


def _loaded(*settings: str):  # noqa: ANN202  a LoadedScenario
    return load("gpt2-medium-dp", [*SMALL, *settings])


@pytest.fixture(scope="module")
def ten() -> Uncertainty:
    """What ten runs say."""
    return uncertainty(_loaded(), 10)


def test_parameters_are_what_presets_do_not_know_exactly() -> None:
    found = {".".join(each.path): each for each in parameters(_loaded())}

    assert found["transport.efficiency"].grade == "T"
    assert found["cluster.cpu.copy_rate"].grade == "U"
    assert "job.kernel_launch" in found
    assert "transport.line_rate" not in found, "exact"
    assert "cluster.gpu.memory" not in found, "a size"


def test_what_a_user_writes_is_given() -> None:
    found = {".".join(each.path) for each in parameters(_loaded("transport.efficiency=0.9", "job.kernel_launch=1us"))}

    assert not {"transport.efficiency", "job.kernel_launch"} & found


@pytest.mark.slow
def test_one_parameter_alone_gives_its_log_normal_interval() -> None:
    """An iteration in which only the launch of kernels counts grows with it, so its quantiles are known."""
    loaded = _loaded("cluster.hosts=1", "job.parallelism.data=1", "cluster.gpu.memory_rate=1000TBps")
    only = next(each for each in parameters(loaded) if each.path == ("job", "kernel_launch"))
    once, more, raised = (simulate(varied(loaded, {only: by})).iteration for by in (1.0, 2.0, exp(SPREADS["T"])))
    found = uncertainty(loaded, 120)
    part = (more - once) / once  # of the iteration that grows with it
    middle = once / 1e12

    assert part > 0.9
    (launch,) = (each for each in found.influences if each.key == "job.kernel_launch")
    assert launch.change == pytest.approx(raised / once - 1, rel=1e-9)
    both = hypot(SPREADS["T"], model_spread())
    assert log(found.high / middle) == pytest.approx(1.2816 * both, rel=0.1)  # 90 % of a normal distribution
    assert log(found.low / middle) == pytest.approx(-1.2816 * both, rel=0.1)


@pytest.mark.slow
def test_a_parameter_that_matters_downwards_alone_is_listed_and_counted() -> None:
    """Efficiency cannot rise beyond 1, and of staged copies the slower rate alone matters."""
    loaded = load("bert-large-dp", ["transport=efa-100g"])
    found = {each.key: each for each in uncertainty(loaded, 10).influences}
    efficiency, staged = found["transport.efficiency"], found["cluster.gpu.staged_rate"]

    assert staged.change == pytest.approx(0, abs=1e-6)
    assert staged.change_smaller > 0.01
    assert efficiency.change_smaller > 5 * abs(efficiency.change), "clipped at 1"
    squares = [(each.change**2 + each.change_smaller**2) / 2 for each in found.values()]
    assert efficiency.share == pytest.approx(squares[list(found).index("transport.efficiency")] / sum(squares))


@pytest.mark.slow
def test_runs_and_studies_draw_the_same(ten: Uncertainty) -> None:
    assert (ten.low, ten.high) == interval(drawn_iterations(_loaded(), 10), model_spread())


@pytest.mark.slow
def test_jobs_have_intervals_from_their_own_starts() -> None:
    """Nothing joins two jobs on hosts of their own: each varies as the other, whenever it begins."""
    ranks = {"red": "0-1", "blue": "2-3"}
    jobs = {name: {"ranks": some, "start": start} for (name, some), start in zip(ranks.items(), "12", strict=True)}
    late = {name: {**job, "start": f"{job['start']}s"} for name, job in jobs.items()}
    found = uncertainty(_loaded("cluster.hosts=4", *settings({"jobs": late})), 10)
    prompt = {name: {"ranks": some} for name, some in ranks.items()}
    same = uncertainty(_loaded("cluster.hosts=4", *settings({"jobs": prompt})), 10)

    assert found.jobs == same.jobs
    assert found.jobs["red"] == found.jobs["blue"] == (found.low, found.high)
    assert found.high < 1
    assert [job["name"] for job in found.to_dict()["jobs"]] == ["red", "blue"]


def test_an_exact_iteration_has_the_interval_of_the_model() -> None:
    low, high = interval([2.0], 0.1)

    assert low == pytest.approx(2 * exp(-0.1282), rel=0.005)
    assert high == pytest.approx(2 * exp(0.1282), rel=0.005)


def test_a_study_is_judged_by_the_errors_of_others() -> None:
    for study in MODEL_ERRORS:
        assert model_spread(but=study) == median(spread for name, spread in MODEL_ERRORS.items() if name != study)
    assert model_spread() == median(MODEL_ERRORS.values())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_interval_and_another_one_another(ten: Uncertainty) -> None:
    loaded = _loaded()

    assert uncertainty(loaded, 10) == ten
    assert uncertainty(loaded, 10, seed=1).low != ten.low


@pytest.mark.slow
def test_shares_add_up_and_are_ordered(ten: Uncertainty) -> None:
    influences = ten.influences

    assert sum(each.share for each in influences) == pytest.approx(1)
    assert [each.share for each in influences] == sorted((each.share for each in influences), reverse=True)


def test_values_stay_within_what_a_scenario_takes() -> None:
    loaded = _loaded()
    efficiency = next(each for each in parameters(loaded) if each.path == ("transport", "efficiency"))

    assert varied(loaded, {efficiency: 2.0}).scenario.transport.efficiency == 1


def test_too_few_runs_and_nothing_to_vary_are_said() -> None:
    with pytest.raises(InputError, match="too few runs"):
        uncertainty(_loaded(), 3)


def test_a_preset_with_a_wrong_certainty_is_refused(tmp_path) -> None:  # noqa: ANN001  pytest gives a path
    preset = tmp_path / "mine.toml"
    preset.write_text('include = "rdma-100g"\nname = "mine"\nmtu = 2048\n[certainty]\nT = ["mtus"]\n')
    with pytest.raises(InputError, match=r"mine.toml:4: certainty: 'mtus' is no key of this preset"):
        load({"extends": "gpt2-medium-dp", "transport": str(preset)})
    preset.write_text('include = "rdma-100g"\nname = "mine"\n[certainty]\nX = ["mtu"]\n')
    with pytest.raises(InputError, match=r"certainty.X is no list of a grade"):
        load({"extends": "gpt2-medium-dp", "transport": str(preset)})
