"""BERT-base on one to four hosts of eight V100 with 100 Gb/s InfiniBand, by seven frameworks, after DLPerf.

Nothing is fitted to a row. One description serves all frameworks but for what their sources say: which operations are
kernels of their own, the precision of gradients, when they are reduced, and that Python issues PyTorch's kernels.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fabricsim import measured
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, spread_agreement

if TYPE_CHECKING:
    import numpy as np

_SCENARIO = "dlperf"
_PER_HOST = 8
_WHOLE_GRADIENTS = ("TensorFlow", "NVIDIA TensorFlow", "OneFlow", "MindSpore")
"""Frameworks that cast weights of 32 bits in the graph, so that gradients are cast back before they are reduced."""
_ALL_AT_ONCE = ("job.overlap=none", "job.flatten_gradients=true")
"""DistributedDataParallel of APEX with buckets of at least 250 million elements: run_pretraining.py of NVIDIA."""


def rows() -> list[Published]:
    """List the published rates, as seconds per iteration."""
    return [_row(record) for record in measured.load("dlperf").rows]


def _row(record: np.void) -> Published:
    run, gpus, framework = published_run(record), int(record["gpus"]), str(record["framework"])
    seconds = int(record["batch"]) * gpus / float(record["rate"])
    hosts = -(-gpus // _PER_HOST)
    place = f"{hosts} host{'s' * (hosts > 1)}" if gpus >= _PER_HOST else "part of a host" if gpus > 1 else "1 GPU"
    groups = framework, str(record["precision"]), place, "compiled" if record["fused"] == "yes" else "not compiled"
    certainty, missing = measured.load("dlperf").certainty, str(record["missing"])
    predict = lambda: _predicted(run.settings)  # noqa: E731  a row and how it is predicted
    return Published(run.name, "s", seconds, str(record["line"]), certainty, predict, groups, missing, run.drawn)


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    gpus, batch, framework = int(record["gpus"]), int(record["batch"]), str(record["framework"])
    hosts = -(-gpus // _PER_HOST)
    lines: tuple[str, ...] = (
        f"cluster.hosts={hosts}",
        f"cluster.gpus_per_host={min(gpus, _PER_HOST)}",
        "cluster.gpu.memory=1TB",  # what ran had room
        f"job.parallelism.data={gpus}",
        f"job.micro_batch={batch}",
        f"job.global_batch={batch * gpus}",
        f"job.precision={record['precision']}",
        f"job.launch={'eager' if 'PyTorch' in framework else 'graph'}",
        f"job.elementwise={_elementwise(framework, compiled=record['fused'] == 'yes')}",
    )
    if record["precision"] == "fp16" and framework in _WHOLE_GRADIENTS:
        lines += ("job.gradient_precision=fp32",)
    if gpus == 1:
        lines += ("cluster.gpus_per_pcie_switch=1", "cluster.nic_below_gpu_switch=false")
    else:
        lines += _ALL_AT_ONCE if "PyTorch" in framework else ("job.overlap=ddp",)
    compiled = ", compiled" if record["fused"] == "yes" else ""
    return PublishedRun(f"{framework}{compiled}, {gpus} GPUs, {record['precision']}, batch {batch}", _SCENARIO, lines)


def _elementwise(framework: str, *, compiled: bool) -> str:
    return "fused" if compiled else "separate" if "TensorFlow" in framework else "operators"


@cache  # frameworks ran the same job
def _predicted(settings: tuple[str, ...]) -> float:
    return PublishedRun("", _SCENARIO, settings).iteration()


STUDY = by_row(
    "dlperf",
    __doc__,
    rows,
    statistics=spread_agreement,
    pictures=scatter("Iterations of BERT-base on V100", lambda quantity: quantity.split(",")[0]),
)
