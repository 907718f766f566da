"""Published training rates of Pax and T5X on A100 and H100: GPT, Llama 2 and T5 v1.1 as XLA runs them.

Nothing is fitted to a row. All is of NVIDIA/JAX-Toolbox and of the configurations that it starts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fabricsim import measured
from fabricsim.studies.frame.recipes import ROOM, slowest
from fabricsim.studies.frame.study import Published, by_row
from fabricsim.studies.frame.training import PublishedRun, scatter, signed_agreement

_SCENARIO = "recipes"
_PER_HOST = 8
_MACHINES = {"a100": ("dgx-a100", "rdma-200g"), "h100": ("dgx-h100", "rdma-400g")}
"""Hosts are DGX A100 and DGX H100 (both README.md)."""


class _Configured(NamedTuple):
    """A model as its configuration has it.

    `base`, `shape`: a model of the library, and what differs from it.
    `recompute`: what its layers compute again, as `job.recompute`.
    `scanned`: whether one layer is compiled and repeated, or all layers one by one.
    `fused`: whether attention is one kernel, whatever runs it.
    """

    base: str
    shape: dict[str, int | str]
    recompute: str
    scanned: bool
    fused: bool


def _t5(layers: int, hidden: int, heads: int, inner: int) -> _Configured:
    """Describe a T5 v1.1 of t5x/contrib/gpu/t5 (google-research/t5x): t5_1_1/*.gin @fa8ba26 to @5aed264.

    Its two up-projections and its down-projection (``mlp_activations`` gelu and linear, base.gin) have the elements and
    products of a network with one of each that is half as wide again, which stands for it. Layers are written out, and
    kept whole (network.py @0bc3617 names no ``remat``). Attention gets a bias of relative positions, and is not fused:
    Transformer Engine did that by default from April 2024 on (changelog of pax/README.md). Logits have weights of their
    own (``logits_via_embedding`` false).
    """
    shape: dict[str, int | str] = {
        "layers": layers,
        "decoder_layers": layers,
        "hidden": hidden,
        "heads": heads,
        "head_width": 64,
        "feed_forward": inner * 3 // 2,
        "tied_embedding": "false",
    }
    return _Configured("t5-large", shape, "none", scanned=False, fused=False)


_CONFIGURED = {
    "gpt-126m": _Configured(
        "gpt3-5b",
        {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50304},
        "none",
        scanned=False,
        fused=False,
    ),
    "gpt-5b": _Configured("gpt3-5b", {"vocabulary": 50304}, "selective", scanned=True, fused=True),
    "gpt-175b": _Configured("gpt3-175b", {"vocabulary": 50257}, "full", scanned=True, fused=True),
    "llama2-7b": _Configured("llama2-7b", {}, "none", scanned=False, fused=True),
    "t5-1.1-small": _t5(8, 512, 6, 1024),
    "t5-1.1-large": _t5(24, 1024, 16, 2816),
    "t5-1.1-xl": _t5(24, 2048, 32, 5120),
    "t5-1.1-xxl": _t5(24, 4096, 64, 10240),
}
"""GPT of paxml/contrib/gpu/scripts_gpu/configs.py: GPT126MBase, GPT5BBase and GPT175BBase (nvjax-svc-0/paxml@273753a
and @c53fc29; google/paxml@04516ac has the same numbers).

``USE_REPEATED_LAYER`` of the two large ones compiles one layer. ``CHECKPOINT_POLICY`` of 5B,
SAVE_DOT_WITH_NO_BATCH_DIM, keeps products with weights, so that attention runs again
(praxis/layers/checkpoint_policy.py of google/praxis@1e63434), and norms and GELU, which is left out; that of 175B is
inherited, SAVE_NOTHING, and nothing is repeated of layers that are written out (``REMAT`` false; paxml/tasks/lm/
model_params.py, jjwilke/paxml@6604d63). LLaMA7B is written out by paxml/contrib/gpu/scripts_gpu/run_llama_boolq.sh
(``USE_REPEATED_LAYER`` false; google/paxml@9383da2). Attention is fused with and without Transformer Engine, but not
that of 126M, by a note below the tables of pax/README.md.
"""

_PAX, _T5X = "Pax", "T5X"
_REPLICATED = {
    _PAX: ("job.overlap=ddp", "job.bucket=32MiB", "job.first_bucket=32MiB"),
    _T5X: ("job.overlap=none",),
}
"""How gradients are reduced if each rank holds all parameters.

XLA joins all-reduces up to 32 MiB for GPT 126M (gpt-126m.env of pax/xla_flags, JAX-Toolbox@7559c93), and up to 8 GiB
for T5X (``xla_gpu_all_reduce_combine_threshold_bytes`` of t5x/contrib/gpu/scripts_gpu/multiprocess_pretrain_pile.sh,
google-research/t5x@ae9d618), which is all at once.
"""
_LOSS = {_PAX: "fused", _T5X: "unfused"}
"""T5X's loss is of fp32 logits, and keeps arrays of their size for its gradient (t5x/losses.py of google-research/t5x@
08058ed). U: that of Pax is fused by XLA, casts, exponential and sums, as Transformer Engine has it."""
_NCCL = {_PAX: "2.21", _T5X: "2.18"}
"""That of NGC 24.04, which the rows of Pax name, and U: that of mid-2023, when those of T5X were published."""
_NO_NVLS = 'collectives.algorithm={all_reduce="ring"}'
"""``NCCL_NVLS_ENABLE=0`` of Pax's containers (Known Issues of pax/README.md). U: T5X's, which are built alike."""
_LORA = 'job.adapters={rank=32, targets=["qkv", "projection", "up", "down"]}'
"""``LORA_RANK`` and ``LORA_TARGET_LAYERS``, all, of run_llama_boolq.sh."""


def rows() -> list[Published]:
    """List the published rates, as times of a step."""
    return [_row(record) for record in measured.load("jax").rows]


def _row(record: np.void) -> Published:
    run, table = published_run(record), measured.load("jax")
    framework, gpu, precision = str(record["run"]), str(record["gpu"]).upper(), str(record["precision"])
    shared = "FSDP" if int(record["fsdp"]) > 1 else "data parallelism"
    groups = framework, gpu, precision, shared, str(record["model"])
    source, value = f"NVIDIA/JAX-Toolbox@{record['line']}", float(record["step"])
    return Published(run.name, "s", value, source, table.certainty, run.iteration, groups, drawn=run.drawn)


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row."""
    gpu, gpus, tensor = str(record["gpu"]), int(record["gpus"]), int(record["tensor"])
    batch, data = int(record["global_batch"]), gpus // tensor
    tuning = f" {str(record['tuning']).upper()}" if record["tuning"] else ""
    framework = str(record["run"])
    name = f"{framework} {record['model']}{tuning}, {gpus} {gpu.upper()}, {record['precision']}, batch {batch}"
    cluster, transport = _MACHINES[gpu]
    lines = [
        f"cluster.include={cluster}",
        f"cluster.hosts={-(-gpus // _PER_HOST)}",
        ROOM,
        f"cluster.gpu_speed={slowest(gpus):.4f}",
        f"transport={transport}",
        f'collectives.nccl="{_NCCL[framework]}"',
        *([_NO_NVLS] if gpu == "h100" else []),
        # Gradients are reduced in bf16, as the scenario has it: ahead of their cast (jax-ml/jax, issue 27496)
        "job.launch=graph",  # XLA issues kernels from C++; graphs are off (xla_gpu_graph_level=0)
        f"job.loss_kernels={_LOSS[framework]}",
        "job.parallelism.context=1",
        f"job.parallelism.tensor={tensor}",
        f"job.parallelism.data={data}",
        f"job.micro_batch={batch // data}",
        f"job.global_batch={batch}",
        f"job.sequence={record['sequence']}",
        *_model(record),
        *(_shared(record) if int(record["fsdp"]) > 1 else _replicated(framework)),
    ]
    if record["precision"] == "te-fp8":
        # Scales are those of earlier iterations: DelayedScaling in te_helper.py of google/paxml@2acc9a6 and
        # google-research/t5x@0bc3617
        lines.append("job.products=fp8")
    if record["tuning"] == "lora":
        lines.append(_LORA)
    if record["tuning"]:
        lines.append("collectives.protocol=ll128")  # NCCL_PROTO of run_llama_boolq.sh
    return PublishedRun(name, _SCENARIO, tuple(lines))


def _model(record: np.void) -> Iterator[str]:
    """Say what is trained; nothing is dropped out (``DROPOUT_PROB`` and ``DROPOUT_RATE`` are 0)."""
    said = _CONFIGURED[str(record["model"])]
    yield f"job.model.include={said.base}"
    yield from (f"job.model.{key}={value}" for key, value in said.shape.items())
    yield f"job.recompute={said.recompute}"
    yield f"job.attention={'fused' if said.fused else 'unfused'}"
    if not str(record["model"]).startswith("llama"):
        yield "job.dropout=false"
    if int(record["decoder_sequence"]):
        yield f"job.decoder_sequence={record['decoder_sequence']}"


def _replicated(framework: str) -> Iterator[str]:
    """Say how gradients are reduced. U: XLA compiles the optimizer to one kernel for each tensor."""
    yield "job.parallelism.zero=0"
    yield "job.optimizer=tensors"
    yield from _REPLICATED[framework]


def _shared(record: np.void) -> Iterator[str]:
    """Say how parameters are gathered.

    Layers that are written out keep what was gathered for their forward pass until it is needed again, since both
    passes take one value of the program; a loop over layers gathers in both (U). Transformer Engine turns weights into
    8 bits by operations of JAX (transformer_engine/jax/dot.py of 2024), which XLA moves before their gather.
    """
    yield "job.parallelism.zero=3"
    yield "job.sharded_copies=none"
    if not _CONFIGURED[str(record["model"])].scanned:
        yield "job.parallelism.reshard_after_forward=false"
    if record["precision"] == "te-fp8":
        yield "job.narrow_gathers=true"


STUDY = by_row(
    "jax",
    __doc__,
    rows,
    statistics=signed_agreement,
    pictures=scatter("Steps of Pax and T5X", lambda quantity: quantity.partition(",")[0]),
)
