"""BERT-base on one to four hosts of eight V100 with 100 Gb/s InfiniBand, by seven frameworks, after DLPerf.

One description serves all frameworks but for what their sources say: which operations are kernels of their own, the
precision of gradients, when these are reduced and whether they are scaled, and that Python issues PyTorch's kernels.
What kernels reach under a framework, in a precision, compiled or not, is one number, the speed of its GPUs. It is
calibrated on the rows with the fewest GPUs, which are not judged: on one GPU, if there are such.
"""

from dataclasses import replace
from functools import cache, partial
from statistics import median
from typing import NamedTuple

import numpy as np

from fabricsim import measured
from fabricsim.run.gpu_speed import gpu_speed
from fabricsim.scenario.job import KERNEL_LAUNCH
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, spread_agreement
from fabricsim.units import PS_PER_US

_SCENARIO = "dlperf"
_PER_HOST = 8
_ALL_AT_ONCE = ("job.overlap=none", "job.flatten_gradients=true")
"""In one buffer at the end: TensorFlow 2.3 scales gradients before it reduces them (``model_training_utils.py`` of its
model garden), NVIDIA's PyTorch has buckets of 250 million elements (``run_pretraining.py``, APEX)."""


PADDLE_LAUNCH = 31.6
"""The interval at which a process of PaddlePaddle issues operators, us.

Calibrated on the fine-tuning of BERT-base on eight V100 in PaddlePaddle/benchmark@03d036f, README.md, with 1.5.0:
0.322 s an iteration with a process for each GPU, 0.552 s with one for all (``tests/studies/test_dlperf.py``).
"""


class _Framework(NamedTuple):
    """What the scripts of a framework say of a run.

    `elementwise`, `optimizer`: which kernels these are, if nothing is compiled.
    `reduced`: when gradients are reduced.
    `whole`: whether weights of 32 bits are cast in the graph, so that gradients are cast back before they are reduced.
    `clips`: whether gradients are scaled by the norm of all.
    `launch`: the host's interval between kernels, us.
    `one_process`: whether one process drives all GPUs of a host, so that it issues the kernels of each in turn.
    """

    elementwise: str = "operators"
    optimizer: str = "tensors"
    reduced: tuple[str, ...] = ("job.overlap=ddp",)
    whole: bool = False
    clips: bool = True
    launch: float = KERNEL_LAUNCH["graph"] / PS_PER_US
    one_process: bool = False


_FRAMEWORKS = {
    "MindSpore": _Framework(reduced=("job.overlap=none",), whole=True),
    "MxNet": _Framework(clips=False),
    "NVIDIA PyTorch": _Framework(
        optimizer="fused", reduced=_ALL_AT_ONCE, clips=False, launch=KERNEL_LAUNCH["eager"] / PS_PER_US
    ),
    "NVIDIA TensorFlow": _Framework("separate", "separate"),
    "OneFlow": _Framework(whole=True),
    "PaddlePaddle": _Framework("mixed-operators", "operators", launch=PADDLE_LAUNCH, one_process=True),
    "TensorFlow": _Framework("separate", reduced=_ALL_AT_ONCE, whole=True, one_process=True),
}


def rows() -> list[Published]:
    """List the published rates, as seconds per iteration."""
    return [_row(record) for record in measured.load("dlperf").rows]


class _Software(NamedTuple):
    """What the speed of GPUs goes by."""

    framework: str
    precision: str
    compiled: bool


def _software(record: np.void) -> _Software:
    return _Software(str(record["framework"]), str(record["precision"]), bool(record["fused"] == "yes"))


def _measured(record: np.void) -> float:
    """Time of an iteration, s."""
    return int(record["batch"]) * int(record["gpus"]) / float(record["rate"])


@cache
def _calibrating(software: _Software) -> tuple[np.void, ...]:
    """List the rows with the fewest GPUs."""
    those = [record for record in measured.load("dlperf").rows if _software(record) == software]
    fewest = min(int(record["gpus"]) for record in those)
    return tuple(record for record in those if int(record["gpus"]) == fewest)


@cache
def _speed(software: _Software) -> float:
    """Give the median of the speeds with which GPUs take what was measured."""
    found = median(
        gpu_speed(partial(_iteration, _described(record).settings), _measured(record))
        for record in _calibrating(software)
    )
    return float(f"{found:.4g}")


def _iteration(settings: tuple[str, ...], speed: float) -> float:
    return _predicted((*settings, _at(speed)))


def _at(speed: float) -> str:
    return f"cluster.gpu_speed={speed}"


def _row(record: np.void) -> Published:
    run, gpus, software = published_run(record), int(record["gpus"]), _software(record)
    hosts = -(-gpus // _PER_HOST)
    place = f"{hosts} host{'s' * (hosts > 1)}" if gpus >= _PER_HOST else "part of a host" if gpus > 1 else "1 GPU"
    groups = software.framework, software.precision, place, "compiled" if software.compiled else "not compiled"
    certainty, missing = measured.load("dlperf").certainty, str(record["missing"])
    if gpus == int(_calibrating(software)[0]["gpus"]):
        missing = missing or f"calibrates the speed of GPUs, {_speed(software)}"
    predict = lambda: _predicted(run.settings)  # noqa: E731  a row and how it is predicted
    return Published(
        run.name, "s", _measured(record), str(record["line"]), certainty, predict, groups, missing, run.drawn
    )


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row, with GPUs as fast as they are under its software."""
    run = _described(record)
    return replace(run, settings=(*run.settings, _at(_speed(_software(record)))))


def _described(record: np.void) -> PublishedRun:
    gpus, batch, framework = int(record["gpus"]), int(record["batch"]), str(record["framework"])
    hosts, compiled, said = -(-gpus // _PER_HOST), record["fused"] == "yes", _FRAMEWORKS[framework]
    lines: tuple[str, ...] = (
        f"cluster.hosts={hosts}",
        f"cluster.gpus_per_host={min(gpus, _PER_HOST)}",
        "cluster.gpu.memory=1TB",  # what ran had room
        f"job.parallelism.data={gpus}",
        f"job.micro_batch={batch}",
        f"job.global_batch={batch * gpus}",
        f"job.precision={record['precision']}",
        f"job.kernel_launch={said.launch * (min(gpus, _PER_HOST) if said.one_process else 1):g}us",
        f"job.elementwise={'fused' if compiled else said.elementwise}",
        f"job.optimizer={'tensors' if compiled else said.optimizer}",
        f"job.clip_gradients={str(said.clips).lower()}",
    )
    if record["precision"] == "fp16" and said.whole:
        lines += ("job.gradient_precision=fp32",)
    if gpus == 1:
        lines += ("cluster.gpus_per_pcie_switch=1", "cluster.nic_below_gpu_switch=false")
    else:
        lines += said.reduced
    name = f"{framework}, compiled" if compiled else framework
    return PublishedRun(f"{name}, {gpus} GPUs, {record['precision']}, batch {batch}", _SCENARIO, lines)


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
