"""Published iterations of PyTorch's FullyShardedDataParallel on A100 and H100, as `zero = 3` predicts them.

Nothing is fitted to a row. Their hosts and networks are mostly not stated: those of DGX A100 and DGX H100 stand in.
"""

from collections.abc import Iterator

import numpy as np

from fabricsim import measured
from fabricsim.studies.frame.configured import FLASH_ATTENTION_2
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, signed_agreement

_SCENARIO = "fsdp"
_PER_HOST = 8
_SHORT = 4096  # tokens of a sequence up to which attention has a small part in the time
_FLASH_ATTENTION_2 = {"h100": FLASH_ATTENTION_2, "a100": {"forward": 0.73, "backward": 0.63}}
"""How fast FlashAttention-2 is by GPU, which PyTorch had in these months; the preset of H100 has FlashAttention-3.

On A100 as its preset has it (Dao, arXiv 2307.08691, section 4.1).
"""
_FMS_ADAPTERS = 2
"""Adapters of a host of fms-fsdp, whose README has 400 Gb/s per host of A100 and 800 of H100."""
_HBM2E = "cluster.gpu.memory_rate=2.4TBps"
"""Memory of torchtitan's H100: "96GB HBM2e with 2.4 TB/sec peak memory bandwidth" (benchmarks/
asyncTP_llama3_h100_2025-06_torchtitan.md). That they have 500 W in place of 700 is left out: by how much that slows
products is not stated."""
_FLOAT8 = ["job.products=fp8", "job.scaling=current"]
"""float8 of torchtitan: a scale for each tensor, taken from itself; gathers stay in bf16 (enable_fsdp_float8_all_gather
is false in llama3_70b.toml, and not set in the commands of that page)."""
_TRITON = {"forward": 1.4, "backward": 2.0}
"""How many times faster that is than FlashAttention in Triton, forward and backward: "around 1.3-1.5" and "around 2"
(the same section). MPT's benchmarks ask for ``attn_impl`` triton (mosaicml/llm-foundry, scripts/train/benchmarking/
submit_benchmarks.py), which alone knew its bias of scores (ALiBi) until 2024 (pull request 820 of llm-foundry)."""
_LLAMAS = {
    "llama2-13b": ("include=llama2-7b", "feed_forward=13824"),
    "llama2-34b": ("include=llama2-70b", "feed_forward=22016"),
}
"""Settings of models that the library lacks, besides layers, width and heads."""


def rows() -> list[Published]:
    """List the published runs."""
    return [_row(record) for record in measured.load("fsdp").rows]


def _row(record: np.void) -> Published:
    run, table = published_run(record), measured.load("fsdp")
    gpu = "H100" if str(record["gpu"]).startswith("h100") else "A100"
    length = "up to" if record["sequence"] <= _SHORT else "above"
    group = f"{_first(str(record['run']))}, {gpu}, {length} {_SHORT} tokens"
    value, certainty = float(record["step"]), table.certainty
    return Published(run.name, "s", value, table.source, certainty, run.iteration, (group,), drawn=run.drawn)


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    gpu, gpus, sequence = str(record["gpu"]), int(record["gpus"]), int(record["sequence"])
    new, tensor = gpu.startswith("h100"), int(record["tensor"])
    batches = f"{record['global_batch']} in {record['micro_batch']}"
    name = f"{record['run']}, {gpus} {gpu}, {sequence} tokens, batch {batches}, recompute {record['recompute']}"
    lines = [
        f"cluster.include={'dgx-h100' if new else 'dgx-a100'}",
        f"cluster.hosts={-(-gpus // _PER_HOST)}",
        f"cluster.nics_per_host={_FMS_ADAPTERS if str(record['run']).startswith('fms') else _PER_HOST}",
        f"cluster.gpu.include={gpu}",
        "cluster.gpu.memory=400GiB",
        f"transport={'rdma-400g' if new else 'rdma-200g'}",
        *_model(record),
        *_attention(record),
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
        lines.append(f"job.product_overlap={str('async TP' in str(record['run'])).lower()}")
    if str(record["run"]).startswith("torchtitan"):
        lines += [_HBM2E] if new else []
        lines += _FLOAT8 if record["products"] == "fp8" else []
    else:
        lines.append("job.sharded_copies=gradients")
    return PublishedRun(name, _SCENARIO, tuple(lines))


def _model(record: np.void) -> list[str]:
    name = str(record["model"])
    shape = [f"{key}={record[key]}" for key in ("layers", "hidden", "heads")]
    shape.append(f"positions={max(int(record['sequence']), _SHORT)}")
    if name != "mpt":
        shape = [*_LLAMAS.get(name, (f"include={name}",)), *shape]
    return [f"job.model.{line}" for line in shape]


def _attention(record: np.void) -> Iterator[str]:
    slower = _TRITON if record["model"] == "mpt" else {}
    for key, value in _FLASH_ATTENTION_2[str(record["gpu"])[:4]].items():
        yield f"cluster.gpu.attention_{key}={value / slower.get(key, 1):.3g}"


def _first(quantity: str) -> str:
    return quantity.partition(" ")[0]


STUDY = by_row(
    "fsdp",
    __doc__,
    rows,
    statistics=signed_agreement,
    pictures=scatter("Iterations under FullyShardedDataParallel", _first),
)
