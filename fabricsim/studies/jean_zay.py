"""GPT-2 shapes in pipelines of 4 to 64 stages on V100 nodes, after Megatron-LM's timers on Jean Zay.

Nothing is fitted to the rows but the last; how fast matrix products are on these GPUs is calibrated from its
passes (see the scenario ``jean-zay``), so that it is shown apart. Megatron-LM prints the timers of the last rank,
which holds the last stage: its ``forward-recv`` is the way of the first micro-batch through the pipeline, and its
``embedding-all-reduce`` begins long before the first stage is ready for it, so both contain the bubble.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fabricsim import measured
from fabricsim.results.breakdown import rank_count
from fabricsim.results.summary import timer_totals
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.at_once import simulate_all
from fabricsim.run.pipeline import load
from fabricsim.studies.frame.study import Progress, Study, silent
from fabricsim.units import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from matplotlib.figure import Figure

    from fabricsim.results.result import RunRecord

TIMERS = {
    "forward_compute_s": "forward-compute",
    "forward_recv_s": "forward-recv",
    "backward_compute_s": "backward-compute",
    "backward_send_forward_recv_s": "backward-send-forward-recv",
    "params_all_reduce_s": "params-all-reduce",
    "embedding_all_reduce_s": "embedding-all-reduce",
    "optimizer_s": "optimizer",
}
"""Timer of each column that is compared, besides the iteration."""
JUDGED = ("7.5B", "30B")
"""Models whose iteration is to be met; the larger ones are shown beside them."""
_CALIBRATION = ", calibration"  # ends the name of the run whose passes gave the rate of matrix products
_GPUS_PER_HOST = 4


@dataclass(frozen=True)
class IterationTimes:
    """Seconds of one iteration, and of each timer on the last rank."""

    iteration: float
    timers: Mapping[str, float]


def validate(progress: Progress = silent) -> Validation:
    """Compare iteration times and timers with the log's."""
    table = measured.load("jean-zay-pipeline")
    results = simulate_all([load("jean-zay", settings(row)) for row in table.rows], progress=progress)
    outcomes = {str(row["model"]): outcome(result) for row, result in zip(table.rows, results, strict=True)}
    return compare(table, outcomes)


def settings(row: np.void) -> list[str]:
    """Return what sets a run apart from the scenario ``jean-zay``."""
    return [
        f"cluster.hosts={row['gpus'] // _GPUS_PER_HOST}",
        f"cluster.gpu.include={row['gpu']}",
        f"job.model.layers={row['layers']}",
        f"job.model.hidden={row['hidden']}",
        f"job.parallelism.pipeline={row['pipeline']}",
        f"job.micro_batch={row['micro_batch']}",
        f"job.global_batch={row['global_batch']}",
    ]


def outcome(result: RunRecord) -> IterationTimes:
    """Condense a run into what the log prints: the timers of the last rank."""
    last = result.ops["rank"] == rank_count(result) - 1
    own = replace(result, ops=result.ops[last], spans=result.spans[last])
    return IterationTimes(seconds(result.iteration), timer_totals(own))


def compare(table: measured.MeasuredTable, outcomes: Mapping[str, IterationTimes]) -> Validation:
    """Put measured and predicted figures side by side.

    `table`: the log.
    `outcomes`: by model, one for each row of `table`.
    """
    rows, errors = [], {}
    for row in table.rows:
        model = str(row["model"])
        found = outcomes[model]
        predicted = {"iteration_s": found.iteration, **{key: found.timers[name] for key, name in TIMERS.items()}}
        own = [
            ValidationRow(_quantity(model, key), "ms", row[key] * 1e3, value * 1e3, table.source, table.certainty)
            for key, value in predicted.items()
        ]
        errors[model] = abs(own[0].error)
        rows += own
    summary = {
        "largest error of the iteration, 7.5B and 30B": max(errors[model] for model in JUDGED),
        "largest error of the iteration, all": max(_of(errors, calibrating=False)),
        "error of the iteration, calibration": max(_of(errors, calibrating=True)),
    }
    return Validation("jean-zay", rows, summary, _parameters())


def _of(errors: Mapping[str, float], *, calibrating: bool) -> list[float]:
    return [error for model, error in errors.items() if model.endswith(_CALIBRATION) == calibrating]


def _quantity(model: str, key: str) -> str:
    return f"{model}: {TIMERS.get(key, 'iteration')}"


def _parameters() -> dict[str, Any]:
    return {
        "scenario": "jean-zay (workloads/scenarios/jean-zay.toml); each figure's source stands beside it",
        "calibrated": "gemm_efficiency and tile_efficiency, from forward-compute and backward-compute of the last stage"
        " of 52B (256 micro-batches of 4 sequences); batch_time from the batch-generator of 18B on 32 GB",
        "fitted": "nothing of nodes of 16 GB",
        "timers": "of the last rank, as Megatron-LM prints them",
        "spread of the log": "its authors saw the same run 40 % slower or faster at other times of the day",
        "not modelled": "the host's work for each send and receive, some 0.5 ms; products are equally fast whichever"
        " way their matrices lie",
    }


def _pictures(study: Validation) -> Iterator[tuple[str, Figure]]:
    """Draw measured against predicted times of each model."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    for model in dict.fromkeys(row.quantity.partition(":")[0] for row in study.rows):
        rows = [row.to_dict() for row in study.rows if row.quantity.startswith(f"{model}:")]
        title = f"One iteration of {model} on Jean Zay"
        yield f"jean-zay-{model}.png".replace(" ", "-"), plots.measured_against_predicted(rows, title)


STUDY = Study("jean-zay", __doc__, validate, _pictures)
