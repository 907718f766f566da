"""What the study of DLPerf rests on besides the scripts of its frameworks."""

from __future__ import annotations

from functools import partial
from math import log
from statistics import fmean

import numpy as np
import pytest

from fabricsim.run.gpu_speed import gpu_speed
from fabricsim.run.model_error import MODEL_ERRORS
from fabricsim.studies import dlperf
from fabricsim.studies.dlperf import PADDLE_LAUNCH
from fabricsim.studies.frame.training import PublishedRun

# PaddlePaddle/benchmark@03d036f, README.md: steps per second of BERT-base with 32 sequences a GPU, with CUDA 9 and 10,
# on one GPU, and on eight with a process for each and with one for all.
_ONE, _EIGHT, _TOGETHER = (4.044, 4.003), (3.114, 3.089), (1.803, 1.817)
_FINE_TUNING = (
    "cluster.hosts=1",
    "job.precision=fp32",
    "job.predictions=1",  # classes of sentences
    "job.elementwise=mixed-operators",
    "job.optimizer=operators",
    "job.clip_gradients=true",
)


def _iteration(gpus: int, interval: float, speed: float) -> float:
    alone = ("cluster.gpus_per_pcie_switch=1", "cluster.nic_below_gpu_switch=false") if gpus == 1 else ()
    degrees = f"cluster.gpus_per_host={gpus}", f"job.parallelism.data={gpus}", f"job.global_batch={32 * gpus}"
    host = f"cluster.gpu_speed={speed}", f"job.kernel_launch={interval}us"
    overlap = "job.overlap=none" if gpus == 1 else "job.overlap=ddp"
    return PublishedRun("", "dlperf", (*_FINE_TUNING, *alone, *degrees, *host, overlap)).iteration()


def _measured(rates: tuple[float, ...]) -> float:
    return fmean(1 / rate for rate in rates)


@pytest.mark.slow
def test_one_process_for_eight_gpus_costs_what_was_measured() -> None:
    speed = gpu_speed(partial(_iteration, 1, PADDLE_LAUNCH), _measured(_ONE))
    each, together = (_iteration(8, processes * PADDLE_LAUNCH, speed) for processes in (1, 8))

    assert together - each == pytest.approx(_measured(_TOGETHER) - _measured(_EIGHT), rel=0.01)


@pytest.mark.slow
def test_the_error_behind_intervals_is_that_of_the_rows() -> None:
    errors = [abs(log(row.predicted / row.measured)) for row in dlperf.STUDY.validate().rows]

    assert np.quantile(errors, 0.8) / 1.2816 == pytest.approx(MODEL_ERRORS["dlperf"], abs=0.001)
