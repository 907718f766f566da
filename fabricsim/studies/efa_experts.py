"""Mixtures of experts of Megatron-Bridge on B300 over EFA: Kimi K2 and Qwen3 235B, by what exchanges their tokens.

Nothing is fitted to a row. Files without a repository are of awslabs/awsome-distributed-ai, below
3.test_cases/megatron/megatron-bridge. The rows are of its commit 95b939c. Scripts were read as stored, at the commits
given; U: those of the rows' commit set the same.

``bench_kimi_k2_pretrain.py`` (of June 2026, read without its commit, and @2899f09) and ``bench_qwen3_pretrain.py``
(@51bf2a7) take recipes of Megatron-Bridge 0.4.2, and set: degrees, whole experts (``expert_tensor_parallel_size`` 1),
sequence parallelism, no CUDA graphs, fused ordering of tokens, grouped products, forced balance. Only with overlap
there are chunks, two for each stage, and then nothing is recomputed; without it Kimi K2 repeats everything
(``uniform``, one layer at a time), Qwen3 what ``RECOMPUTE`` says, of which ``selective`` alone names no modules, so that
it is core attention, Megatron-core's default. The recipes say the rest (`_OPTIMIZER`, `_MESSAGES`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fabricsim import measured
from fabricsim.studies.frame import recipes
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import scatter, signed_agreement

if TYPE_CHECKING:
    import numpy as np

    from fabricsim.studies.frame.training import PublishedRun

_TABLE = "efa-experts"
_PER_HOST = 8
_LINE = 100.0  # GB/s of the adapters of a GPU
# p6-b300.48xlarge: 16 adapters of 400 Gb/s for 8 GPUs (kimi-k2/README.md @0c6e327; 6.4 Tb/s, AWS), two of each GPU
# taken as one. U: all else as p5, and slots of the sixth generation, for NCCL's all-to-all between two hosts moves 95.8
# GB/s for each GPU (179.6 times 8 of 15, `_MICRO`), more than the 63 of the fifth
_SLOT = "{generation=6, lanes=16}"
_HOSTS = (
    f"cluster.gpu_pcie={_SLOT}",
    "cluster.nic.name=efa-800g",
    f"cluster.nic.pcie={_SLOT}",
    "transport.include=efa-400g",
    "transport.line_rate=800Gbps",
)
# GB/s of dispatch and combine as DeepEP counts, by hosts of a group of experts: UCCL and DeepEP of the same commits as
# in the rows, on p6-b300, 4,096 tokens of 7,168 elements to 8 of 256 experts (`_MICRO`). Calibrated so: a rate of the
# network alone, for what hosts keep for themselves is counted, too (test_internode.py of deepseek-ai/DeepEP). These are
# the best of a search over sizes of chunks; U: Megatron-core's calls, which take those of the library, reach as much,
# also with fewer tokens
_MICRO = "micro-benchmarks/expert-parallelism/ep-backend-comparison/RESULTS.md @97b9bb8"
_RATES = {
    "DeepEP over UCCL": {2: (91.9, 59.6), 4: (102.1, 95.3), 8: (93.9, 90.5)},
    "DeepEP over NVSHMEM": {2: (126.6, 106.4), 4: (97.1, 95.4), 8: (84.2, 73.1)},
}
# src/megatron/bridge/recipes of NVIDIA-NeMo/Megatron-Bridge, the versions whose functions take no arguments, as 0.4.2:
# qwen/qwen3_moe.py (qwen3_235b_a22b_pretrain_config) has an optimizer with copies of parameters of its own and, of
# _pretrain_common, gradients in fp32; deepseek/deepseek_v3.py (deepseek_v3_pretrain_config_32nodes), on which Kimi K2
# is put, has neither
_OPTIMIZER = {"qwen3-235b-a22b": ("job.optimizer=distributed", "job.gradient_precision=fp32")}
# It asks for no CommOverlapConfig either, which would have messages of chunks beside passes
_MESSAGES = {"qwen3-235b-a22b": ("job.pipeline_overlap=false",)}
_KEY_HEADS = {"qwen3-235b-a22b": 4}


def rows() -> list[Published]:
    """List the published runs."""
    return [_row(record) for record in measured.load(_TABLE).rows]


def _row(record: np.void) -> Published:
    run, table = published_run(record), measured.load(_TABLE)
    dispatcher, model = str(record["dispatcher"]), str(record["model"])
    overlap = "overlap" if record["overlap"] == "yes" else "no overlap"
    groups = (dispatcher, model, f"{overlap}, micro-batches of {record['micro_batch']}")
    value, missing = float(record["step"]), str(record["missing"])
    predict = partial(_predicted, run)
    return Published(run.name, "s", value, str(record["line"]), table.certainty, predict, groups, missing, run.drawn)


def _predicted(run: PublishedRun) -> float:
    return recipes.extended(run.settings, run.job())


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    run, model = recipes.published_run(record), str(record["model"])
    overlap = record["overlap"] == "yes"
    shape = f"EP{record['expert']} PP{record['pipeline']}, micro-batch {record['micro_batch']}"
    name = f"{model}, {record['dispatcher']}, {record['gpus']} GPUs, {shape}, {'overlap' if overlap else 'no overlap'}"
    lines = [
        *_attention(model, int(record["tensor"])),
        f"job.recompute={record['recompute']}",
        f"job.expert_overlap={str(overlap).lower()}",
        *_dispatcher(str(record["dispatcher"]), int(record["expert"]) // _PER_HOST),
        *_OPTIMIZER.get(model, ()),
        *(_MESSAGES.get(model, ()) if overlap else ()),
    ]
    return replace(run, name=name, settings=("cluster.include=aws-p5", *run.settings, *_HOSTS, *lines))


def _attention(model: str, tensor: int) -> tuple[str, ...]:
    """Give each tensor-parallel rank a head of keys and values, if there are fewer."""
    few = _KEY_HEADS.get(model, tensor) < tensor
    return (f"job.model.kv_heads={tensor}",) if few else ()


def _dispatcher(name: str, hosts: int) -> tuple[str, ...]:
    """Say what exchanges tokens between so many hosts; a dispatcher's rate is that of all that goes over the network.

    Experts have no other rank with the same ones here, and gradients of the rest and messages of stages are small.
    NVLink stays that of NCCL, which tensor-parallel ranks use: the rates have what a dispatcher does inside hosts.
    """
    if name == "NCCL":
        return ("job.expert_kernels=all-to-all",)
    if hosts == 1:
        return ("job.expert_kernels=flex",)
    return ("job.expert_kernels=flex", f"transport.efficiency={network_rate(name, hosts) / _LINE:.4f}")


def network_rate(dispatcher: str, hosts: int) -> float:
    """Give what a dispatcher moves over the network per GPU, GB/s, between so many hosts.

    The mean over as many bytes of dispatch and combine, without those for the host itself.
    """
    dispatch, combine = _RATES[dispatcher][hosts]
    return 2 / (1 / dispatch + 1 / combine) * (hosts - 1) / hosts


STUDY = by_row(
    _TABLE,
    __doc__,
    rows,
    statistics=signed_agreement,
    pictures=scatter("Mixtures of experts over EFA", lambda quantity: quantity.split(", ")[1]),
)
