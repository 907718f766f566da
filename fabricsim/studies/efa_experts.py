"""Mixtures of experts of Megatron-Bridge on B300 over EFA: Kimi K2 and Qwen3 235B, by what exchanges their tokens.

Nothing is fitted to a row. Files without a repository are of awslabs/awsome-distributed-ai, below
3.test_cases/megatron/megatron-bridge. The rows are of its commit 95b939c. Scripts were read as stored, at the commits
given; U: those of the rows' commit set the same.

``bench_kimi_k2_pretrain.py`` (of June 2026, read without its commit, and @2899f09) and ``bench_qwen3_pretrain.py``
(@51bf2a7) take recipes of Megatron-Bridge 0.4.2, and set: degrees, whole experts (``expert_tensor_parallel_size`` 1),
sequence parallelism, no CUDA graphs, fused ordering of tokens, grouped products, forced balance. Only with overlap
there are chunks, two for each stage, and then nothing is recomputed; without it Kimi K2 repeats everything
(``uniform``, one layer at a time), Qwen3 what ``RECOMPUTE`` says: of ``selective`` no modules are named, so that it is
core attention, Megatron-core's default. The recipes say the rest (`_QWEN3`).
"""

from dataclasses import replace
from functools import partial

import numpy as np

from fabricsim import measured
from fabricsim.studies.frame import recipes
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, signed_agreement

_TABLE = "efa-experts"
_PER_HOST = 8
# What `fabricsim.studies.frame.recipes` says of NVIDIA's own recipes of this release, which these scripts do not call
_OF_RELEASES = (
    "job.expert_kernels",
    "job.expert_overlap",
    "job.recorded",
    "cluster.gpu.nvlink_efficiency",
    "job.hybridep_processors",
)
# p6-b300.48xlarge: 16 adapters of 400 Gb/s for 8 GPUs (kimi-k2/README.md @0c6e327; 6.4 Tb/s, AWS), two of each GPU
# taken as one. U: all else as p5, and slots of the sixth generation, for NCCL's all-to-all between two hosts moves 95.8
# GB/s for each GPU (179.6 times 8 of 15, `_RATES`), more than the 63 of the fifth. p5.48xlarge is the preset
_SLOT = "{generation=6, lanes=16}"
_HOSTS = {
    "b300": (
        f"cluster.gpu_pcie={_SLOT}",
        "cluster.nic.name=efa-800g",
        f"cluster.nic.pcie={_SLOT}",
        "transport.include=efa-400g",
        "transport.line_rate=800Gbps",
    ),
    "h100": ("transport=efa-400g",),
}
_LINE = {"b300": 100.0, "h100": 50.0}  # GB/s of the adapters of a GPU
# GB/s of dispatch and combine as DeepEP counts, by hosts of a group of experts: UCCL and DeepEP of the same commits as
# in the rows, on the same hosts, 4,096 tokens of 7,168 elements to 8 of 256 experts (micro-benchmarks/
# expert-parallelism/ep-backend-comparison, RESULTS.md @97b9bb8 and RESULTS-p5.md @46793a8 of the same repository). They
# calibrate a rate of the network alone, for what a host keeps for itself is counted, too (test_internode.py of
# deepseek-ai/DeepEP). U: these are the best of a search over sizes of chunks, and Megatron-core's calls reach them
# without one, also with fewer tokens; between other numbers of hosts as between the nearest
_RATES = {
    ("DeepEP over UCCL", "b300"): {2: (91.9, 59.6), 4: (102.1, 95.3), 8: (93.9, 90.5)},
    ("DeepEP over NVSHMEM", "b300"): {2: (126.6, 106.4), 4: (97.1, 95.4), 8: (84.2, 73.1)},
    ("DeepEP over UCCL", "h100"): {4: (38.2, 30.2), 8: (29.9, 26.7)},
    ("DeepEP over NVSHMEM", "h100"): {4: (43.7, 46.1), 8: (39.6, 39.2)},
}
# src/megatron/bridge/recipes of NVIDIA-NeMo/Megatron-Bridge, in versions whose functions take no arguments, as they do
# in 0.4.2: those of Qwen3 (qwen/qwen3_moe.py) have an optimizer that keeps copies of parameters, gradients in fp32
# (_pretrain_common) and no CommOverlapConfig, which would put messages of chunks beside passes; that which Kimi K2 is
# put on (deepseek_v3_pretrain_config_32nodes of deepseek/deepseek_v3.py) has none of these
_QWEN3 = ("job.optimizer=distributed", "job.gradient_precision=fp32")
_QWEN3_MESSAGES = "job.pipeline_overlap=false"


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
    run, model, gpu = recipes.published_run(record), str(record["model"]), str(record["gpu"])
    dispatcher, overlap, qwen3 = str(record["dispatcher"]), record["overlap"] == "yes", model.startswith("qwen3")
    shape = f"EP{record['expert']} PP{record['pipeline']}, micro-batch {record['micro_batch']}"
    beside = "overlap" if overlap else "no overlap"
    name = f"{model}, {dispatcher}, {record['gpus']} {gpu.upper()}, {shape}, {beside}"
    lines = [
        f"job.recompute={record['recompute']}",
        f"job.expert_overlap={str(overlap).lower()}",
        *_dispatcher(dispatcher, gpu, -(-int(record["expert"]) // _PER_HOST)),
        *(_QWEN3 if qwen3 else ()),
        *([_QWEN3_MESSAGES] if qwen3 and overlap else ()),
    ]
    kept = (line for line in run.settings if not line.startswith(_OF_RELEASES))
    return replace(run, name=name, settings=("cluster.include=aws-p5", *kept, *_HOSTS[gpu], *lines))


def _dispatcher(name: str, gpu: str, hosts: int) -> tuple[str, ...]:
    """Say what exchanges tokens between so many hosts; a dispatcher's rate is that of all that goes over the network.

    Beside tokens that is little: gradients and parameters of what experts are not, and messages of stages. NVLink stays
    that of NCCL, which tensor-parallel ranks use: the rates have what a dispatcher does inside hosts.
    """
    if name == "NCCL":
        return ("job.expert_kernels=all-to-all",)
    if hosts == 1:
        return ("job.expert_kernels=flex",)
    return "job.expert_kernels=flex", f"transport.efficiency={network_rate(name, gpu, hosts) / _LINE[gpu]:.4f}"


def network_rate(dispatcher: str, gpu: str, hosts: int) -> float:
    """Give what a dispatcher moves over the network per GPU, GB/s, if a group of experts is on so many hosts.

    The mean over as many bytes of dispatch and combine, without those that stay on their host.
    """
    rates = _RATES[dispatcher, gpu]
    known = min(rates, key=lambda count: abs(count - hosts))
    dispatch, combine = rates[known]
    return 2 / (1 / dispatch + 1 / combine) * (known - 1) / known


STUDY = by_row(
    _TABLE,
    __doc__,
    rows,
    statistics=signed_agreement,
    pictures=scatter("Mixtures of experts over EFA", lambda quantity: quantity.split(", ")[1]),
)
