"""GPT-2, BERT and T5 over TCP 10G, IPoIB 100G and RDMA 100G, after Dai et al., IEEE Micro 44(2), 2024.

What is run stands in `fabricsim.studies.dai2024.grid`. No parameter is fitted to the measured
figures: they are read when all runs are done. Two assumptions were made with the figures known: that
of one rank per node of data parallelism, and that a node's two GPUs share the layers of a split model.
The sensitivity says what others would give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.errors import ScenarioError
from fabricsim.report.grouped import Bar
from fabricsim.results.summary import summarise
from fabricsim.results.validation import Validation
from fabricsim.run.at_once import part, simulate_all
from fabricsim.run.pipeline import load
from fabricsim.studies.dai2024.grid import DATA, PIPELINE, VARIATIONS, WEAK, Assumptions, Point, points
from fabricsim.studies.frame.study import Progress, headline_rows, silent
from fabricsim.topology.platform import WIRE
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.figure import Figure

    from fabricsim.results.result import RunRecord
    from fabricsim.scenario.load import LoadedScenario

TRANSPORTS = ("tcp-10g", "ipoib-100g", "rdma-100g")
_LARGEST = 8  # nodes of the largest run, which is drawn
_OVER_TIME = "gpt2-medium"  # model whose rates over time are drawn
_STRETCHES = 120  # of time
_DEGREES = {"job.parallelism.pipeline", "job.parallelism.tensor"}
"""Keys that are to blame where a model cannot be split as it should be."""
_SHARES = {
    "data_parallel_all_reduce_share": (DATA, ("params-all-reduce",)),
    "pipeline_communication_share": (PIPELINE, ("forward-recv", "embedding-all-reduce")),
}
"""For each share of the abstracts, the parallelism and the timers that it is about."""


@dataclass(frozen=True)
class Outcome:
    """One point on one transport.

    Seconds, the share of them in communication on the critical rank, seconds per timer, and bits per
    second of the busiest wire; of that also stretches of time in seconds, and Gb/s in each.
    """

    iteration: float
    timed_communication_share: float
    timers: dict[str, float]
    utilisation: float
    over_time: tuple[float, tuple[float, ...]]


Known = dict[tuple[str, ...], dict[str, Outcome]]
"""Outcomes by transport of each scenario that was run, by its settings; none if it cannot be."""


@dataclass(frozen=True)
class Findings:
    """The study's figures, by the keys under which the measured ones ship."""

    figures: dict[str, float]
    outcomes: dict[Point, dict[str, Outcome]] = field(repr=False)


def find(
    assumptions: Assumptions, jobs: int = 1, progress: Callable[[float], None] | None = None, known: Known | None = None
) -> Findings:
    """Run all points on all transports and condense them into the study's figures.

    `assumptions`: what to run.
    `jobs`: simulations at the same time; the figures do not depend on it.
    `known`: what other assumptions have found. What is in it is not run again; what is run is added.
    Raises ScenarioError if the assumptions' settings have mistakes.
    """
    known = {} if known is None else known
    grid = list(points(assumptions))
    new = {point.settings: _loaded(point) for point in grid if point.settings not in known}
    runs = [(settings, name, loaded) for settings, each in new.items() for name, loaded in each.items()]
    results = simulate_all([loaded for _, _, loaded in runs], jobs=jobs, progress=progress)
    known.update({settings: {} for settings in new})
    for (settings, name, _), result in zip(runs, results, strict=True):
        known[settings][name] = _outcome(result)
    outcomes = {point: known[point.settings] for point in grid if known[point.settings]}
    return Findings(_figures(outcomes), outcomes)


def _loaded(point: Point) -> dict[str, LoadedScenario]:
    """Load a point's scenario on each transport; none if stages cannot share layers evenly, or ranks heads."""
    try:
        return {name: load("dai2024", [*point.settings, f"transport={name}"]) for name in TRANSPORTS}
    except ScenarioError as error:
        if point.parallel == PIPELINE and _DEGREES.issuperset(mistake.key for mistake in error.mistakes):
            return {}
        raise


def _outcome(result: RunRecord) -> Outcome:
    summary = summarise(result)
    breakdown = summary["breakdown_s"]
    # the study's figures are from Megatron-LM's timers, which count waiting for peers as communication
    timed = summary["exposed_communication_s"] + breakdown["waiting_in_collectives"]
    busiest = max(link.payload for link in result.links if link.kind == WIRE)
    return Outcome(
        iteration=summary["iteration_time_s"],
        timed_communication_share=timed / summary["iteration_time_s"],
        timers=summary["timers_s"],
        utilisation=busiest * 8 / summary["iteration_time_s"],
        over_time=_over_time(result),
    )


def _over_time(result: RunRecord) -> tuple[float, tuple[float, ...]]:
    series = result.series
    if not len(series.names):  # a packet run records the wires that are tapped
        return 0.0, ()
    rate = series.rate[int(series.rate.sum(axis=1).argmax())]
    times = np.arange(len(rate) + 1) * series.interval
    edges = np.linspace(0, result.iteration, _STRETCHES + 1)
    carried = np.interp(edges, times, np.concatenate([[0.0], np.cumsum(rate)]) * (series.interval / PS_PER_S))
    width = result.iteration / PS_PER_S / _STRETCHES
    return width, tuple(round(float(sent) * 8 / 1e9 / width, 3) for sent in np.diff(carried))


def _figures(outcomes: dict[Point, dict[str, Outcome]]) -> dict[str, float]:
    """Condense all runs into the figures of the abstracts: mean gains, peak rates in Gb/s, shares in percent."""
    gains = {
        f"{prefix}_gain_over_{rival.partition('-')[0]}": _mean_gain(outcomes, parallel, rival)
        for parallel, prefix in ((DATA, "data_parallel"), (PIPELINE, "pipeline"))
        for rival in ("ipoib-100g", "tcp-10g")
    }
    peaks = {
        f"peak_utilisation_{name.partition('-')[0]}": max(run[name].utilisation for run in outcomes.values()) / 1e9
        for name in TRANSPORTS
    }
    shares = {key: 100 * _largest_share(outcomes, *which) for key, which in _SHARES.items()}
    return {**gains, **peaks, **shares}


def _mean_gain(outcomes: dict[Point, dict[str, Outcome]], parallel: str, rival: str) -> float:
    return fmean(
        run[rival].iteration / run["rdma-100g"].iteration
        for point, run in outcomes.items()
        if point.parallel == parallel
    )


def _largest_share(outcomes: dict[Point, dict[str, Outcome]], parallel: str, timers: Sequence[str]) -> float:
    return max(
        sum(outcome.timers.get(timer, 0.0) for timer in timers) / outcome.iteration
        for point, run in outcomes.items()
        if point.parallel == parallel
        for outcome in run.values()
    )


def validate(progress: Progress = silent) -> Validation:
    """Compare the study's headline figures with the predicted ones, and vary the assumptions."""
    cases = {"as assumed": Assumptions(), **VARIATIONS}
    found: dict[str, Findings] = {}
    known: Known = {}
    for index, (name, assumptions) in enumerate(cases.items()):
        found[name] = find(assumptions, progress=part(progress, index, len(cases)), known=known)
    rows = headline_rows("dai2024", found["as assumed"].figures)
    return Validation("dai2024", rows, _summary(found), _parameters())


def _summary(found: dict[str, Findings]) -> dict[str, Any]:
    base = found["as assumed"]
    return {
        "runs": sum(len(run) for run in base.outcomes.values()),
        "sensitivity": {
            name: {key: round(value, 4) for key, value in case.figures.items()} for name, case in found.items()
        },
        "points": [
            {
                "parallel": point.parallel,
                "model": point.model,
                "nodes": point.nodes,
                "scaling": point.scaling,
                "transport": name,
                "iteration_s": outcome.iteration,
                "timed_communication_share": outcome.timed_communication_share,
                "utilisation_gbps": outcome.utilisation / 1e9,
            }
            for point, run in base.outcomes.items()
            for name, outcome in run.items()
        ],
        "rates_over_time": {
            name: {"interval_s": outcome.over_time[0], "gbps": list(outcome.over_time[1])}
            for point, run in base.outcomes.items()
            if (point.parallel, point.model, point.nodes, point.scaling) == (DATA, _OVER_TIME, _LARGEST, WEAK)
            for name, outcome in run.items()
        },
    }


def _parameters() -> dict[str, Any]:
    return {
        "scenario": "dai2024 (workloads/scenarios/dai2024.toml); each figure's source stands beside it",
        "fitted": "nothing",
        "chosen for its source": "two ranks per node, models, sequences and micro-batches of an author's later scripts"
        " (github.com/dailiuyao/tmp-file@2019f5a); tensor parallelism of 2 inside a node if the model is split, as"
        " in a log beside them; the sensitivity shows others, some of which come closer",
        "assumed: nodes": "2, 4 and 8; adapter on the first GPU's socket",
        "assumed: batches": "weak scaling keeps the script's micro-batch per rank; strong scaling keeps the batch of"
        " two nodes; split models have one micro-batch in their smallest run",
        "assumed: utilisation": "payload of the busiest wire over the whole iteration, as a counter read each second"
        " gives",
        "left out": "pipelines whose stages cannot share the layers evenly",
    }


def pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw measured against predicted figures, and what each assumption changes."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    rows = [row.to_dict() for row in study.rows]
    groups: Iterable[tuple[str, str, Sequence[dict[str, Any]]]] = (
        ("gains", "Gain of RDMA 100G in iteration time", [row for row in rows if row["unit"] == "x"]),
        ("utilisation", "Peak utilisation of the interconnect", [row for row in rows if row["unit"] == "Gb/s"]),
        ("shares", "Largest share of communication in the iteration", [row for row in rows if row["unit"] == "%"]),
    )
    for name, title, group in groups:
        yield f"dai2024-{name}.png", plots.measured_against_predicted(group, title)
    for parallel in (DATA, PIPELINE):
        title = f"Predicted, {parallel} parallel on {_LARGEST} nodes, weak scaling"
        yield f"dai2024-{parallel}-parallel.png", plots.grouped(_bars(study, parallel), title)
        runs = [
            plots.ScaledRun(
                point["transport"], point["model"], point["nodes"], point["scaling"] == WEAK, point["iteration_s"]
            )
            for point in study.summary["points"]
            if point["parallel"] == parallel
        ]
        yield f"dai2024-{parallel}-scaling.png", plots.scaling(runs, f"Predicted, {parallel} parallel")
    rates = {name: (run["interval_s"], np.array(run["gbps"])) for name, run in study.summary["rates_over_time"].items()}
    title = f"Predicted, busiest wire, {_OVER_TIME} on {_LARGEST} nodes, data parallel"
    yield "dai2024-rates.png", plots.rates_over_time(rates, title)


def _bars(study: Validation, parallel: str) -> list[Bar]:
    return [
        Bar(
            point["model"],
            point["transport"],
            point["iteration_s"] * (1 - point["timed_communication_share"]),
            point["iteration_s"] * point["timed_communication_share"],
        )
        for point in study.summary["points"]
        if (point["parallel"], point["nodes"], point["scaling"]) == (parallel, _LARGEST, WEAK)
    ]
