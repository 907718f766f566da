"""What studies of training runs share: settings of a run, its iteration, how well a set of them agrees, its picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.run.pipeline import load, simulate
from fabricsim.run.uncertainty import drawn_iterations
from fabricsim.units import seconds
from fabricsim.workload.flops import model_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.validation import Validation, ValidationRow
    from fabricsim.scenario.job import Job
    from fabricsim.studies.frame.study import Pictures


@dataclass(frozen=True)
class PublishedRun:
    """One run of a published table.

    `name`: as the report shows it.
    `scenario`: scenario of the library that describes cluster and software.
    `settings`: what the table says of the run, ``key=value`` each.
    """

    name: str
    scenario: str
    settings: tuple[str, ...]

    def job(self) -> Job:
        """Return the job."""
        job = load(self.scenario, list(self.settings)).scenario.job
        assert job is not None, self.scenario  # noqa: S101  the library's scenarios of training have one
        return job

    def iteration(self) -> float:
        """Simulate one iteration; returns seconds."""
        return seconds(simulate(load(self.scenario, list(self.settings))).iteration)

    def drawn(self, runs: int) -> list[float]:
        """Simulate it with drawn parameters; returns seconds."""
        return _drawn(self.scenario, self.settings, runs)


@cache  # frameworks and releases repeat runs of each other
def _drawn(scenario: str, settings: tuple[str, ...], runs: int) -> list[float]:
    return drawn_iterations(load(scenario, list(settings)), runs)


def settings(scenario: str, values: dict[str, object]) -> tuple[str, ...]:
    """Write settings of a job, and as many hosts as its ranks need.

    `scenario`: gives the GPUs per host.
    `values`: by key below ``job``.
    """
    lines = [f"job.{key}={_written(value)}" for key, value in values.items()]
    ranks = 1
    for degree in ("tensor", "context", "data", "pipeline"):
        ranks *= int(str(values.get(f"parallelism.{degree}", 1)))
    per_host = load(scenario).scenario.cluster.gpus_per_host
    return (f"cluster.hosts={-(-ranks // per_host)}", *lines)


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def narayanan_flops(job: Job) -> float:
    """Hardware FLOPs of an iteration of a GPT with full recomputation, as published throughputs count them.

    ``96 B s L h^2 (1 + s / 6h + V / 16 L h)`` (Narayanan et al., arXiv 2104.04473, section 3.4), with a
    vocabulary of 51,200.
    """
    h, s, layers = job.model.hidden, job.sequence, job.model.layers
    return 96 * job.global_batch * s * layers * h**2 * (1 + s / (6 * h) + 51_200 / (16 * layers * h))


def causal_flops(job: Job) -> float:
    """FLOPs that one iteration needs where attention counts by half, for a causal mask hides the other.

    Of `fabricsim.workload.flops.model_flops` that takes ``6 B s^2 L`` times the width of the attention.
    """
    model = job.model
    width = model.heads * model.head_width if model.head_width is not None else model.hidden
    return model_flops(job) - 6 * job.global_batch * job.sequence**2 * model.layers * width


def agreement(rows: Iterable[ValidationRow]) -> dict[str, float]:
    """Mean, median and largest absolute relative error."""
    errors = [abs(row.error) for row in rows]
    return {
        "runs": float(len(errors)),
        "mean_absolute_error": float(np.mean(errors)),
        "median_absolute_error": float(np.median(errors)),
        "largest_absolute_error": float(np.max(errors)),
    }


def signed_agreement(rows: Sequence[ValidationRow]) -> dict[str, float]:
    """Agreement, and the mean of the errors with their signs."""
    return {**agreement(rows), "mean_error": sum(row.error for row in rows) / len(rows)}


def spread_agreement(rows: Sequence[ValidationRow]) -> dict[str, float]:
    """Signed agreement, and the absolute error that nine rows of ten stay below."""
    return {**signed_agreement(rows), "p90_absolute_error": float(np.quantile([abs(row.error) for row in rows], 0.9))}


def ranked_agreement(rows: Sequence[ValidationRow]) -> dict[str, float]:
    """Agreement, and how well the order of the rows is predicted."""
    correlation = rank_correlation([row.measured for row in rows], [row.predicted for row in rows])
    return {**agreement(rows), "rank_correlation": correlation}


def scatter(title: str, kind: Callable[[str], str], figures: str = "iteration time") -> Pictures:
    """Make the picture of predicted over measured figures of one unit; `kind` tells the colour of a quantity."""

    def draw(found: Validation) -> Iterator[tuple[str, Figure]]:
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        points = [(row.measured, row.predicted, kind(row.quantity)) for row in found.rows]
        (unit,) = {row.unit for row in found.rows}
        yield f"{found.study}.png", plots.agreement(points, f"{figures} ({unit})", title)

    return draw


def rank_correlation(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    first, second = (_mean_ranks(np.asarray(values, np.float64)) for values in (measured, predicted))
    first, second = first - first.mean(), second - second.mean()
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]
