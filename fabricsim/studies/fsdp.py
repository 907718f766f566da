"""Published iterations of PyTorch's FullyShardedDataParallel on A100 and H100, as `zero = 3` predicts them.

Nothing is fitted to a row. Their hosts and networks are mostly not stated: those of DGX A100 and DGX H100 stand in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabricsim.studies import measured
from fabricsim.studies.study import Study, ValidationRow
from fabricsim.studies.training import Run, agreement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

_SCENARIO = "fsdp"
_PER_HOST = 8
_SHORT = 4096
"""Tokens of a sequence up to which attention has a small part in the time."""
_LLAMAS = {
    "llama2-13b": ("include=llama2-7b", "feed_forward=13824"),
    "llama2-34b": ("include=llama2-70b", "feed_forward=22016"),
}
"""Settings of models that the library lacks, besides layers, width and heads."""


def validate(progress: Callable[[float], None] | None = None) -> Study:
    """Compare the iteration time of each published run.

    Parameters
    ----------
    progress
        Called with the share of runs done.
    """
    table = measured.load("fsdp")
    rows = []
    for done, record in enumerate(table.rows, start=1):
        run, source = published_run(record), table.source
        rows.append(ValidationRow(run.name, "s", float(record["step"]), run.iteration(), source, table.certainty))
        if progress is not None:
            progress(done / len(table.rows))
    return Study("fsdp", rows, _summary(table.rows, rows), dict(table.conditions))


def published_run(record: np.void) -> Run:
    """Describe the run of a row."""
    gpu, gpus, sequence = str(record["gpu"]), int(record["gpus"]), int(record["sequence"])
    new, tensor = gpu.startswith("h100"), int(record["tensor"])
    batches = f"{record['global_batch']} in {record['micro_batch']}"
    name = f"{record['run']}, {gpus} {gpu}, {sequence} tokens, batch {batches}, recompute {record['recompute']}"
    lines = [
        f"cluster.include={'dgx-h100' if new else 'dgx-a100'}",
        f"cluster.hosts={-(-gpus // _PER_HOST)}",
        f"cluster.gpu.include={gpu}",
        "cluster.gpu.memory=400GiB",
        f"transport={'rdma-400g' if new else 'rdma-200g'}",
        *_model(record),
        f"job.micro_batch={record['micro_batch']}",
        f"job.global_batch={record['global_batch']}",
        f"job.sequence={sequence}",
        f"job.recompute={record['recompute']}",
        f"job.gradient_precision={record['gradients']}",
        f"job.parallelism.data={gpus // tensor}",
        f"job.parallelism.reshard_after_forward={str(record['reshard'] == 'yes').lower()}",
    ]
    if tensor > 1:
        lines += [f"job.parallelism.tensor={tensor}", "job.parallelism.sequence_parallel=true"]
    return Run(name, _SCENARIO, tuple(lines))


def _model(record: np.void) -> list[str]:
    name = str(record["model"])
    shape = [f"{key}={record[key]}" for key in ("layers", "hidden", "heads")]
    shape.append(f"positions={max(int(record['sequence']), _SHORT)}")
    if name != "mpt":
        shape = [*_LLAMAS.get(name, (f"include={name}",)), *shape]
    return [f"job.model.{line}" for line in shape]


def _summary(records: np.ndarray[Any, Any], rows: list[ValidationRow]) -> dict[str, Any]:
    """Agreement by source, GPU and length of sequences."""
    groups: dict[str, list[ValidationRow]] = {}
    for record, row in zip(records, rows, strict=True):
        gpu = "H100" if str(record["gpu"]).startswith("h100") else "A100"
        length = "up to" if record["sequence"] <= _SHORT else "above"
        source = str(record["run"]).partition(" ")[0]
        groups.setdefault(f"{source}, {gpu}, {length} {_SHORT} tokens", []).append(row)
    found = {name: {**agreement(chosen), "mean_error": _mean(chosen)} for name, chosen in groups.items()}
    return {"agreement": {"all": {**agreement(rows), "mean_error": _mean(rows)}, **found}}


def _mean(rows: list[ValidationRow]) -> float:
    return sum(row.relative_error or 0.0 for row in rows) / len(rows)


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw predicted over measured iterations; returns the files written."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

    path = folder / "fsdp.png"
    points = [(row.measured, row.predicted, row.quantity.partition(" ")[0]) for row in study.rows]
    plots.save(plots.agreement(points, "iteration time (s)", "Iterations under FullyShardedDataParallel"), path)
    return [path]
