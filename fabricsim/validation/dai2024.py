"""GPT-2, BERT and T5 over TCP 10G, IPoIB 100G and RDMA 100G, after Dai et al., IEEE Micro 44(2), 2024.

The abstracts give averages and maxima over runs whose batch sizes, node counts and degrees they do
not give. `Assumptions` says what is taken for them; `VARIATIONS` changes one at a time to show what
hangs on it. No parameter is fitted to the measured figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fabricsim.errors import ScenarioError
from fabricsim.pipeline import load
from fabricsim.report.grouped import Bar
from fabricsim.results.summary import summarise
from fabricsim.sweep import simulate_all
from fabricsim.topology.platform import WIRE
from fabricsim.validation import measured
from fabricsim.validation.study import Study, ValidationRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from fabricsim.results.result import Result
    from fabricsim.spec.load import LoadedScenario

TRANSPORTS = ("tcp-10g", "ipoib-100g", "rdma-100g")
DATA, PIPELINE = "data", "pipeline"
WEAK, STRONG = "weak", "strong"
_LARGEST = 8
"""Nodes of the largest run, which is drawn."""
_SMALLEST = 2
"""Nodes of the smallest run that uses the network: the point that both kinds of scaling start from."""


@dataclass(frozen=True)
class Script:
    """What one of Megatron-LM's example scripts sets: sequences per micro-batch, and further settings."""

    models: tuple[str, ...]
    micro_batch: int
    sequence: int
    settings: tuple[str, ...] = ()


SCRIPTS = (
    Script(("gpt2-medium", "gpt2-large", "gpt2-xl"), 8, 1024, ("job.recompute=full",)),
    Script(("bert-base", "bert-large"), 4, 512, ("job.recompute=none",)),
    Script(("t5-base", "t5-large"), 16, 512, ("job.recompute=none", "job.decoder_sequence=128")),
)
"""The scripts' values; only that for GPT checkpoints activations."""


@dataclass(frozen=True)
class Assumptions:
    """What the abstracts leave open.

    Attributes
    ----------
    nodes
        Of the runs in each kind of scaling.
    scalings
        Weak: the batch per rank stays that of the script. Strong: the batch of all ranks together
        stays that of two ranks.
    micro_batch_factor
        Multiplies the scripts' micro-batch.
    families
        Models whose name begins so.
    settings
        Laid over the scenario ``dai2024``.
    gpus_per_host
        Ranks per node.
    """

    nodes: tuple[int, ...] = (2, 4, 8)
    scalings: tuple[str, ...] = (WEAK, STRONG)
    micro_batch_factor: float = 1.0
    families: tuple[str, ...] = ("gpt2", "bert", "t5")
    settings: tuple[str, ...] = ()
    gpus_per_host: int = 1


VARIATIONS: dict[str, Assumptions] = {
    "weak scaling only": Assumptions(scalings=(WEAK,)),
    "strong scaling only": Assumptions(scalings=(STRONG,)),
    "adapter on the GPU's socket": Assumptions(settings=("cluster.nic.socket=0",)),
    "two GPUs per node": Assumptions(gpus_per_host=2),
    "gradients in fp32": Assumptions(settings=("job.gradient_precision=fp32",)),
    "twice the micro-batch": Assumptions(micro_batch_factor=2.0),
    "GPT-2 only": Assumptions(families=("gpt2",)),
    "NCCL 2.21 step costs": Assumptions(settings=("collectives=nccl",)),
}
"""One assumption changed at a time."""


@dataclass(frozen=True)
class Point:
    """One configuration of the study, to be run on each transport."""

    parallel: str
    model: str
    nodes: int
    scaling: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """One point on one transport.

    Seconds, the share of them in communication on the critical rank, seconds per timer, and bits per
    second of the busiest wire.
    """

    iteration: float
    communication_share: float
    timers: dict[str, float]
    utilisation: float


@dataclass(frozen=True)
class Findings:
    """The study's figures, by the keys under which the measured ones ship."""

    figures: dict[str, float]
    outcomes: dict[Point, dict[str, Outcome]] = field(repr=False)


def points(assumptions: Assumptions) -> Iterator[Point]:
    """All configurations under given assumptions."""
    for script in SCRIPTS:
        micro = max(1, round(script.micro_batch * assumptions.micro_batch_factor))
        for model in script.models:
            if not model.startswith(assumptions.families):
                continue
            for nodes in assumptions.nodes:
                for scaling in assumptions.scalings:
                    common = (
                        f"job.model={model}",
                        f"job.sequence={script.sequence}",
                        f"cluster.hosts={nodes}",
                        f"cluster.gpus_per_host={assumptions.gpus_per_host}",
                        *script.settings,
                        *assumptions.settings,
                    )
                    ranks = nodes * assumptions.gpus_per_host
                    smallest = _SMALLEST * assumptions.gpus_per_host
                    total = micro * (ranks if scaling == WEAK else smallest)
                    per_rank = total // ranks
                    batch = (f"job.micro_batch={per_rank}", f"job.global_batch={total}")
                    degree = (f"job.parallelism.data={ranks}",)
                    yield Point(DATA, model, nodes, scaling, (*common, *batch, *degree))
                    # The pipeline's micro-batch stays that of the script; the smallest run has one.
                    total = micro * (ranks // smallest if scaling == WEAK else 1)
                    batch = (f"job.micro_batch={micro}", f"job.global_batch={total}")
                    degree = ("job.parallelism.data=1", f"job.parallelism.pipeline={ranks}")
                    yield Point(PIPELINE, model, nodes, scaling, (*common, *batch, *degree))


def find(assumptions: Assumptions, jobs: int = 1, progress: Callable[[float], None] | None = None) -> Findings:
    """Run all points on all transports and condense them into the study's figures."""
    runs: list[tuple[Point, str, LoadedScenario]] = []
    for point in points(assumptions):
        try:
            runs += [(point, name, load("dai2024", [*point.settings, f"transport={name}"])) for name in TRANSPORTS]
        except ScenarioError:
            if point.parallel != PIPELINE:  # only layers that the stages cannot share evenly are left out
                raise
    results = simulate_all([loaded for _, _, loaded in runs], jobs=jobs, progress=progress)
    outcomes: dict[Point, dict[str, Outcome]] = {}
    for (point, name, _), result in zip(runs, results, strict=True):
        outcomes.setdefault(point, {})[name] = _outcome(result)
    return Findings(_figures(outcomes), outcomes)


def _outcome(result: Result) -> Outcome:
    summary = summarise(result)
    busiest = max(link.payload for link in result.links if link.kind == WIRE)
    return Outcome(
        iteration=summary["iteration_time_s"],
        communication_share=summary["communication_share"],
        timers=summary["timers_s"],
        utilisation=busiest * 8 / summary["iteration_time_s"],
    )


def _figures(outcomes: dict[Point, dict[str, Outcome]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for parallel in (DATA, PIPELINE):
        own = [by_transport for point, by_transport in outcomes.items() if point.parallel == parallel]
        for rival, name in (("ipoib-100g", "ipoib"), ("tcp-10g", "tcp")):
            gains = [run[rival].iteration / run["rdma-100g"].iteration for run in own]
            figures[f"{parallel}_{'parallel_' if parallel == DATA else ''}gain_over_{name}"] = fmean(gains)
    every = list(outcomes.values())
    for name in TRANSPORTS:
        peak = max(run[name].utilisation for run in every)
        figures[f"peak_utilisation_{name.partition('-')[0]}"] = peak / 1e9
    shares = {
        DATA: ("data_parallel_all_reduce_share", ("params-all-reduce",)),
        PIPELINE: ("pipeline_communication_share", ("forward-recv", "embedding-all-reduce")),
    }
    for parallel, (key, timers) in shares.items():
        figures[key] = 100 * max(
            sum(outcome.timers[timer] for timer in timers) / outcome.iteration
            for point, run in outcomes.items()
            if point.parallel == parallel
            for outcome in run.values()
        )
    return figures


def validate(progress: Callable[[float], None] | None = None, jobs: int = 2) -> Study:
    """Compare the study's headline figures with the predicted ones, and vary the assumptions."""
    cases = {"as assumed": Assumptions(), **VARIATIONS}
    found: dict[str, Findings] = {}
    for index, (name, assumptions) in enumerate(cases.items()):
        step = None if progress is None else _part(progress, index, len(cases))
        found[name] = find(assumptions, jobs, step)
    base = found["as assumed"]
    rows = [
        ValidationRow(figure.quantity, figure.unit, figure.value, base.figures[key], figure.source, figure.certainty)
        for key, figure in measured.figures("dai2024").items()
    ]
    return Study("dai2024", rows, _summary(found), _parameters())


def _part(progress: Callable[[float], None], index: int, count: int) -> Callable[[float], None]:
    return lambda share: progress((index + share) / count)


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
                "communication_share": outcome.communication_share,
                "utilisation_gbps": outcome.utilisation / 1e9,
            }
            for point, run in base.outcomes.items()
            for name, outcome in run.items()
        ],
    }


def _parameters() -> dict[str, Any]:
    return {
        "scenario": "dai2024 (workloads/scenarios/dai2024.toml); each figure's source stands beside it",
        "fitted": "nothing",
        "assumed: nodes": "2, 4 and 8, one rank each, adapter on the other socket than the GPU",
        "assumed: batches": "weak scaling keeps the micro-batch of Megatron-LM's script per rank; strong scaling keeps the"
        " batch of two ranks; pipelines have one micro-batch in their smallest run",
        "assumed: utilisation": "payload of the busiest wire over the whole iteration, as a counter read each second gives",
        "left out": "pipelines whose stages cannot share the layers evenly",
    }


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw measured against predicted figures, and what each assumption changes."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    rows = [row.to_dict() for row in study.rows]
    groups: Iterable[tuple[str, str, Sequence[dict[str, Any]]]] = (
        ("gains", "Gain of RDMA 100G in iteration time", [row for row in rows if row["unit"] == "x"]),
        ("utilisation", "Peak utilisation of the interconnect", [row for row in rows if row["unit"] == "Gb/s"]),
        ("shares", "Largest share of communication in the iteration", [row for row in rows if row["unit"] == "%"]),
    )
    paths = []
    for name, title, group in groups:
        path = folder / f"dai2024-{name}.png"
        plots.save(plots.measured_against_predicted(group, title), path)
        paths.append(path)
    for parallel in (DATA, PIPELINE):
        path = folder / f"dai2024-{parallel}-parallel.png"
        plots.save(plots.grouped(_bars(study, parallel), _title(parallel)), path)
        paths.append(path)
    return paths


def _title(parallel: str) -> str:
    return f"Predicted iteration, {parallel} parallel on {_LARGEST} nodes, weak scaling"


def _bars(study: Study, parallel: str) -> list[Bar]:
    return [
        Bar(
            point["model"],
            point["transport"],
            point["iteration_s"] * (1 - point["communication_share"]),
            point["iteration_s"] * point["communication_share"],
        )
        for point in study.summary["points"]
        if (point["parallel"], point["nodes"], point["scaling"]) == (parallel, _LARGEST, WEAK)
    ]
