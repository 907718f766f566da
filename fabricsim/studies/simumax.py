"""Llama 3, DeepSeek-V2 and DeepSeek-V3, cut to a few layers, by Megatron-LM on one host of eight B200.

SimuMax publishes what they took, and what it predicts itself with kernels and collectives that it measured on that
host. Each run is predicted twice: with products and attention as fast as on that host (`_KERNELS`), and as fast as
the preset of B200 has them. Nothing is fitted to an iteration. The summary has SimuMax's own errors as well.

Files without a repository are of MooreThreads/SimuMax@1b8ca90. Both launchers (simu_tools/megatron_scripts/scripts)
have Transformer Engine, the distributed optimizer, gradients reduced in fp32 (``--accumulate-allreduce-grads-in-fp32``)
behind the last backward pass, sequence parallelism if there is tensor parallelism, no user buffers
(``--disable-tp-comm-overlap-*``) and nothing recomputed (``--recompute-num-layers 0``), in the container of January
2026 (docs/b200/b200_real_repro_guide.md); ``cef`` in the name of a case is Transformer Engine's loss
(docs/strategy.md). Sequences are shared out as ``--cp-comm-type a2a``. Experts are behind NCCL's all-to-all and padded
to their even share (``--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity``), the router is in bf16, and
all layers but the first have experts.
"""

from dataclasses import replace

import numpy as np

from fabricsim import measured
from fabricsim.studies.frame.configured import CAPACITY
from fabricsim.studies.frame.recipes import ROOM, slowest
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, spread_agreement

_GPUS = 8
MEASURED, PRESET, SIMUMAX = "kernels of the host", "preset of B200", "SimuMax"
_KERNELS = (
    "cluster.gpu.gemm_efficiency=0.498",
    "cluster.gpu.attention_forward=0.50",
    "cluster.gpu.attention_backward=0.41",
)
"""How fast kernels are on that host, whose clock falls under load (configs/system/b200_bf16_ceperm.json, @e691807).

The median of 80 products of these Llamas, forward and of input gradients (`tests/workload/kernels/b200.csv`), and fused
attention over 131,072 tokens, of which SimuMax counts the half that the mask hides, too: 0.99 to 1.00 forward, 0.83
back.
"""
_SOFTWARE = (
    "job.gradient_precision=fp32",
    "job.optimizer=distributed",
    "job.launch=transformer-engine",
    "job.loss_kernels=fused",
)
_EXPERTS = (
    "job.model.experts.dense_layers=1",
    "job.model.experts.router_precision=bf16",
    "job.expert_kernels=all-to-all",
    *CAPACITY,
)
_KV_HEADS = {"llama3-405b": 16}  # run_pretrain_llama3.sh, twice as many as the model has


def rows() -> list[Published]:
    """List the published iterations, by each reading, and SimuMax's own predictions of them."""
    records = measured.load("simumax").rows
    return [_row(record, reading) for reading in (MEASURED, PRESET, SIMUMAX) for record in records]


def _row(record: np.void, reading: str) -> Published:
    run, table = published_run(record), measured.load("simumax")
    if reading == MEASURED:
        run = replace(run, settings=(*run.settings, *_KERNELS))
    kind = "experts" if int(record["expert"]) > 1 else "long sequences" if int(record["context"]) > 1 else "dense"
    groups: tuple[str, ...] = reading, f"{reading}, {kind}"
    if reading == MEASURED and kind == "dense":
        groups += (f"{groups[1]}, tensor-parallel by {record['tensor']}",)
    value, own = float(record["step"]), reading == SIMUMAX
    predict = (lambda: float(record["simumax"])) if own else run.iteration
    drawn, name = None if own else run.drawn, f"{run.name}, {reading}"
    return Published(name, "s", value, table.source, table.certainty, predict, groups, drawn=drawn)


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    tensor, context, pipeline = (int(record[key]) for key in ("tensor", "context", "pipeline"))
    model, expert = str(record["model"]), int(record["expert"])
    lines = [
        "cluster.hosts=1",
        "cluster.gpu.include=b200-sxm",
        ROOM,
        f"cluster.gpu_speed={slowest(_GPUS):.4f}",
        f"job.model.include={model}",
        *(f"job.{key}={record[key]}" for key in ("micro_batch", "global_batch", "sequence")),
        f"job.model.layers={record['layers']}",
        f"job.model.positions={max(int(record['sequence']), 131072)}",
        f"job.parallelism.tensor={tensor}",
        f"job.parallelism.sequence_parallel={str(tensor > 1).lower()}",
        f"job.parallelism.context={context}",
        f"job.parallelism.pipeline={pipeline}",
        f"job.parallelism.data={_GPUS // (tensor * context * pipeline)}",
        f"job.parallelism.expert={expert}",
        *_SOFTWARE,
    ]
    if tensor * pipeline == _GPUS:  # nobody shares the optimizer
        lines.append("job.parallelism.zero=0")
    if model in _KV_HEADS:
        lines.append(f"job.model.kv_heads={_KV_HEADS[model]}")
    if context > 1:
        lines.append("job.parallelism.context_method=ulysses")
    if expert > 1:
        lines += _EXPERTS
    return PublishedRun(str(record["run"]).removesuffix("_cef"), "recipes", tuple(lines))


STUDY = by_row(
    "simumax",
    __doc__,
    rows,
    statistics=spread_agreement,
    pictures=scatter("Megatron-LM on eight B200", lambda quantity: quantity.rsplit(", ", maxsplit=1)[-1]),
    first=(MEASURED, PRESET, SIMUMAX),
)
