"""Published iterations of large training runs on A100 and H100 clusters.

One set of parameters per GPU type serves all of them. Nothing is fitted to an iteration: compute rates come from
measurements of single kernels, communication from NCCL's own tables and the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabricsim.studies import measured
from fabricsim.studies.study import Study, ValidationRow
from fabricsim.studies.training import Run, agreement, causal_flops, narayanan_flops, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

_DEGREES = ("tensor", "context", "pipeline", "virtual_stages", "data", "zero")


def validate(progress: Callable[[float], None] | None = None) -> Study:
    """Compare the iteration time of each published run.

    Parameters
    ----------
    progress
        Called with the share of runs done.
    """
    table = measured.load("megatron")
    rows = []
    for done, record in enumerate(table.rows, start=1):
        run = published_run(record)
        rows.append(
            ValidationRow(
                run.name, "s", published_seconds(record, run), run.iteration(), str(record["source"]), table.certainty
            )
        )
        if progress is not None:
            progress(done / len(table.rows))
    return Study("megatron", rows, _summary(rows), dict(table.conditions))


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw predicted over measured iterations; returns the files written."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    path = folder / "megatron.png"
    points = [(row.measured, row.predicted, row.quantity.split(",")[0].split(" ")[0]) for row in study.rows]
    plots.save(plots.agreement(points, "iteration time (s)", "Iterations of published training runs"), path)
    return [path]


def published_run(record: np.void) -> Run:
    """Describe the run of a row."""
    name, scenario = str(record["name"]), str(record["scenario"])
    values: dict[str, object] = {f"model.{key}": int(record[key]) for key in ("layers", "hidden", "heads")}
    values |= {f"parallelism.{key}": int(record[key]) for key in _DEGREES}
    values |= {key: int(record[key]) for key in ("micro_batch", "global_batch", "sequence")}
    parallel = str(record["sequence_parallel"]) == "yes"
    values["parallelism.sequence_parallel"] = parallel
    values["parallelism.scatter_gather"] = not parallel and int(min(record["tensor"], record["pipeline"])) > 1
    values["gradient_precision"] = str(record["gradients"])
    values["fused_accumulation"] = str(record["fused_accumulation"]) == "yes"
    values["tensor_overlap"] = str(record["tensor_overlap"]) == "yes"
    values["recompute"] = str(record["recompute"])
    return Run(name, scenario, settings(scenario, values))


def published_seconds(record: np.void, run: Run) -> float:
    """Return the iteration as printed, or from the printed rate and the FLOPs that it counts; seconds."""
    if record["iteration"]:
        return float(record["iteration"])
    job = run.job()
    flops = narayanan_flops(job) if job.recompute == "full" else causal_flops(job)
    return flops / (job.parallelism.ranks * float(record["tflops"]) * 1e12)


def _summary(rows: list[ValidationRow]) -> dict[str, Any]:
    studies = dict.fromkeys(row.source.split(",")[0] for row in rows)
    by_study = {study: agreement(row for row in rows if row.source.startswith(study)) for study in studies}
    return {"agreement": {"all": agreement(rows), **by_study}}
