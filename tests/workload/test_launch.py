"""What the interval between launches rests on, besides the iterations that gave it (`fabricsim.studies.vtrain`)."""

from __future__ import annotations

import json
import statistics
import tarfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fabricsim import measured
from fabricsim.run.pipeline import load, simulate
from fabricsim.scenario.job import KERNEL_LAUNCH
from fabricsim.studies.frame.recipes import extended, published_run, slowest
from fabricsim.studies.frame.training import PublishedRun
from fabricsim.units import PS_PER_S

US = PS_PER_S // 10**6
MS = PS_PER_S // 1000
_IDLE = 500
"""Microseconds without a launch that are not the time to issue one."""


@pytest.fixture(scope="module")
def launches(traces: Path) -> list[list[dict[str, Any]]]:
    """Of each thread of eight ranks, in the order of time."""
    threads: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for name, events in _ranks(traces / "kineto/dlrm_kineto.tar.gz"):
        for event in events:
            if event.get("name") == "cudaLaunchKernel":
                threads.setdefault((name, event["tid"]), []).append(event)
    return [sorted(thread, key=lambda event: event["ts"]) for thread in threads.values()]


def _ranks(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(".json"):
                yield member.name, json.load(file)["traceEvents"]


@pytest.mark.slow
def test_an_eager_framework_took_nearly_as_long_between_launches(launches: list[list[dict[str, Any]]]) -> None:
    gaps = [after["ts"] - before["ts"] for thread in launches for before, after in pairwise(thread)]
    interval = statistics.fmean(gap for gap in gaps if gap < _IDLE)

    assert interval == pytest.approx(40, abs=2)
    assert interval == pytest.approx(KERNEL_LAUNCH["eager"] / US, rel=0.2)


@pytest.mark.slow
def test_a_launch_itself_took_what_recorded_kernels_take(launches: list[list[dict[str, Any]]]) -> None:
    assert statistics.median(event["dur"] for thread in launches for event in thread) * US == KERNEL_LAUNCH["graph"]


_SMALL = '{name="small", family="gpt", layers=12, hidden=512, heads=8, vocabulary=50304, positions=1024}'
# Median iterations of functional tests of Megatron-LM on a host with 8 H100, ms, by tensor-parallel and pipeline
# degree, chunks and recomputation (NVIDIA/Megatron-LM@08165ab, tests/functional_tests/test_cases/gpt,
# golden_values_dev_dgx_h100.json of gpt3_mcore_te_*)
_CALIBRATING = {
    (2, 1, 1, "none"): 115.2,
    (4, 1, 1, "none"): 200.8,
}  # multi_dist_optimizer_instances, overlap_grad_reduce
_OTHERS = {(2, 2, 1, "none"): 133.5, (1, 1, 1, "full"): 79.5, (1, 4, 3, "none"): 95.1, (1, 4, 1, "none"): 89.5}


def _iteration(tensor: int, pipeline: int, chunks: int, recompute: str, *changes: str) -> float:
    """Predict one of these iterations, ms."""
    job = [f"job.model={_SMALL}", "job.micro_batch=4", "job.global_batch=32", "job.sequence=1024"]
    degrees = {"tensor": tensor, "pipeline": pipeline, "virtual_stages": chunks, "data": 8 // tensor // pipeline}
    split = [f"job.parallelism.{name}={degree}" for name, degree in (degrees | {"context": 1}).items()]
    host = ["cluster.hosts=1", "job.parallelism.sequence_parallel=false", "job.launch=transformer-engine"]
    settings = [*job, *split, *host, f"job.recompute={recompute}", *changes]
    return simulate(load("recipes", settings)).iteration / MS


@pytest.mark.slow
def test_layers_of_transformer_engine_are_calibrated_on_two_micro_batches_more() -> None:
    few, more = (_iteration(*shape) for shape in _CALIBRATING)

    assert more - few == pytest.approx(200.8 - 115.2, rel=0.01)


@pytest.fixture(scope="module")
def once() -> float:
    """Time of an iteration, ms, that does not grow with its micro-batches.

    Norms, logs and the optimizer's loops over tensors, which are not modelled, take longer the more a rank holds.
    """
    return 115.2 - _iteration(2, 1, 1, "none")


@pytest.mark.slow
@pytest.mark.parametrize("shape", _OTHERS)
def test_other_small_models_take_as_long_besides_what_an_iteration_takes_once(
    shape: tuple[int, int, int, str], once: float
) -> None:
    assert _iteration(*shape) + once == pytest.approx(_OTHERS[shape], rel=0.22)


_CONTEXT = "job.parallelism.context=2", "job.parallelism.data=1", "job.parallelism.sequence_parallel=true"
_EXPERTS = (
    f"job.model={_SMALL[:-1]}, experts={{count=8, per_token=2, feed_forward=1024}}}}",
    "job.parallelism.expert=8",
    "job.expert_kernels=all-to-all",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "changes", "measured"),
    [
        # gpt/gpt3_mcore_te_tp2_pp2_cp2_nondeterministic @637ddd4: the others are in deterministic mode
        ((2, 2, 1, "none"), _CONTEXT, 282.1),
        # moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_dist_optimizer @08165ab: with an all-gather and routing not fused
        ((1, 1, 1, "none"), _EXPERTS, 113.8),
    ],
)
def test_small_models_of_other_kinds_do_so_too(
    shape: tuple[int, int, int, str], changes: tuple[str, ...], measured: float, once: float
) -> None:
    assert _iteration(*shape, *changes) + once == pytest.approx(measured, rel=0.13)


# Iterations of Llama 3.1 405B in NVFP4 on 512 GPUs without CUDA graphs, relative to those with graphs of all
# (docs.nvidia.com/dl-cuda-graph, examples/llama-31-405b), and what is predicted
_WITHOUT_GRAPHS = {"b200-sxm": (1.15, 1.02), "gb200": (1.54, 1.05), "gb300": (1.79, 1.06)}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", _WITHOUT_GRAPHS)
def test_products_in_4_bits_need_more_of_the_host_than_is_counted(gpu: str) -> None:
    """`docs/explanation/validation/recipes.md` says so; a layer needs as many intervals more on hosts of both kinds."""
    measured_ratio, predicted = _WITHOUT_GRAPHS[gpu]
    record = next(row for row in measured.load("mlperf").rows if row["gpus"] == 2560 and row["precision"] == "nvfp4")
    host = 8 if gpu == "b200-sxm" else 64
    machine = [f"cluster.hosts={512 // host}", f"cluster.gpus_per_host={host}", f"cluster.nics_per_host={host}"]
    degrees = ["job.parallelism.data=8", f"cluster.gpu.include={gpu}", *machine]
    settings = [*published_run(record).settings, *degrees]
    interval = KERNEL_LAUNCH["transformer-engine"] if gpu == "b200-sxm" else 99_700_000

    graphs, eager = (
        _of_long_pipeline((*settings, *launch), stages=8, ranks=8, micro_batches=72)
        for launch in ([], ["job.launch=transformer-engine", f"job.kernel_launch={interval}ps"])
    )

    assert eager / graphs == pytest.approx(predicted, abs=0.01)
    layers = 126 / 8 * 72  # of a stage, for all its micro-batches
    assert measured_ratio * graphs / layers / interval == pytest.approx(132, rel=0.04)


def _of_long_pipeline(settings: Sequence[str], *, stages: int, ranks: int, micro_batches: int) -> float:
    """Tell an iteration of many micro-batches, ps, from those that fill a pipeline of so many stages once and twice.

    As `extended` does, from fewer of them. Of the jobs in 4 bits all micro-batches simulated give the very same; of the
    overlapped one `extended` gives 0.004 % less.
    `ranks`: of data parallelism, each with one sequence in a micro-batch.
    """
    once, twice = (
        simulate(load("recipes", [*settings, f"job.global_batch={count * ranks}"])).iteration
        for count in (stages, 2 * stages)
    )
    return once + (micro_batches - stages) * (twice - once) / stages


_QWEN = "job.model.include=qwen3-235b-a22b", "job.expert_kernels=all-to-all", "job.loss_kernels=fused"


def _overlapped(gpus: int, *changes: str) -> tuple[str, ...]:
    """Settings of Qwen3 235B with all-to-alls of NCCL beside another micro-batch."""
    data = f"job.parallelism.data={gpus // 8}", f"cluster.hosts={gpus // 8}", f"cluster.gpu_speed={slowest(gpus):.4f}"
    split = [f"job.parallelism.{degree}" for degree in ("context=1", "pipeline=8", "virtual_stages=4")]
    batch = "job.micro_batch=1", "job.sequence=4096", "job.recompute=none", "job.bucket=80000000B"
    beside = "job.overlap=ddp", "job.pipeline_overlap=true", "job.expert_overlap=true", "job.launch=transformer-engine"
    return *_QWEN, *split, *data, *batch, *beside, *changes, "cluster.gpu.memory=4TB"


def _seconds(settings: tuple[str, ...]) -> float:
    return extended(settings, PublishedRun("", "recipes", settings).job())


@pytest.mark.slow
def test_nodes_of_a_schedule_are_calibrated_on_two_precisions() -> None:
    """On 64 B200, held up by their hosts (NVIDIA-NeMo/Megatron-Bridge, pull request 1760); 17 and 22 % less without."""
    degrees = "job.parallelism.tensor=1", "job.parallelism.expert=8", "job.parallelism.sequence_parallel=false"
    machine = "cluster.gpu.include=b200-sxm", "job.global_batch=1024"
    narrow = "job.products=mxfp8", "job.padded_experts=true", "job.optimizer=distributed"

    wide = _overlapped(64, *degrees, *machine)
    errors = _seconds(wide) / 17.2 - 1, _seconds((*wide, *narrow)) / 20.1 - 1

    assert sum(errors) == pytest.approx(0, abs=0.01)
    assert max(errors) == pytest.approx(0.035, abs=0.01)


@pytest.mark.slow
def test_another_overlapped_job_is_as_slow_but_for_what_is_repeated() -> None:
    """On 256 H100 behind DeepEP, norms repeated, too (yanring/Megatron-MoE-ModelZoo@c1ad0b5, best_practice/Qwen3)."""
    degrees = "job.parallelism.tensor=2", "job.parallelism.expert=32", "job.parallelism.expert_tensor=1"
    parallel = *degrees, "job.parallelism.data=16", "job.parallelism.sequence_parallel=true"
    job = "cluster.gpu.include=h100-sxm", "job.expert_kernels=flex", "job.recompute=expert-activation"
    settings = _overlapped(256, *parallel, *job)

    predicted = _of_long_pipeline(settings, stages=8, ranks=16, micro_batches=2048 // 16)

    assert predicted / PS_PER_S == pytest.approx(17.6, rel=0.18)
