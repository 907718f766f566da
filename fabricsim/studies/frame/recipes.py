"""What studies of training recipes share: a row of a table, the run that it describes, and what is guessed.

Recipes state degrees, batches and precision. What they leave out is guessed by one rule for all rows: memory decides
what is recomputed (nothing, or feed-forward networks, or all, the first that fits), gradients are reduced as the
scenario ``recipes`` says, tensor parallelism overlaps with products (NeMo's ``tp_comm_overlap``; none has it in NVFP4:
llama3_llm_pretrain.py and llama31_llm_pretrain.py of Megatron-Bridge, ``TP_COMM_OVERLAP`` of MLPerf v5.1; nor with
whole experts: deepseek_v3.py and qwen3_llm_pretrain.py of the former), and machines are the reference systems of their
GPU (`_MACHINES`). All GPUs go at the pace of the slowest one (`slowest`). What configurations of MLPerf say besides is
in `fabricsim.studies.frame.submissions`, what those of DGX Cloud say in `fabricsim.studies.frame.configured`.

Messages of interleaved schedules go beside passes (``overlap_p2p_comm``): by a rule of NeMo and Megatron-Bridge
(megatron_comm_overlap.py), and before it by grok1_314b.yaml, gpt3_175b_hydra.yaml (@35a9aec) and nemotron/configure.sh
(of 340B, @35a9aec) of dgxc-benchmarking and run_and_time.sh of MLPerf v3.0. U: the others.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from statistics import NormalDist

import numpy as np

from fabricsim import measured
from fabricsim.errors import InputError
from fabricsim.files.packaged import tables
from fabricsim.run.pipeline import load
from fabricsim.scenario.job import Job
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.studies.frame.configured import CAPACITY, configured
from fabricsim.studies.frame.releases import dispatched, mixture, repeated
from fabricsim.studies.frame.study import Published, Study, by_row
from fabricsim.studies.frame.submissions import EIGHT_BILLION, TUNING, gathers_beside_products, submitted
from fabricsim.studies.frame.training import PublishedRun, scatter, spread_agreement
from fabricsim.workload.fit import fullest, usable_memory

_SCENARIO = "recipes"
_RACKS = (72, 64)  # GPUs of an NVL72 that a job takes of each rack: all, or 16 trays of four, as recipes ask for
ROOM = "cluster.gpu.memory=4TB"
"""Setting of all runs: what ran did fit, whatever the model of memory says."""
_MACHINES = {"h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm", "b300": "b300-sxm"}
# Standard deviation of the speed of GPUs of one type: a variation of 8 % on the mean of five clusters (Sinha et al.,
# arXiv 2208.11035), which is that between the whiskers of a box plot, 5.4 standard deviations. U: theirs are V100, MI60
_SPREAD = 0.015
# Gradients in a bucket, and at least so many for each data-parallel rank: DistributedDataParallel of Megatron-core
_BUCKET, _BUCKET_PER_RANK = 40_000_000, 1_000_000
_MOST_MESSAGES = 10_000  # of all-to-alls side by side: a ring over hosts tells those of a host apart, others all fold
_LONG = 6  # micro-batches per stage up to which all are simulated
_RECOMPUTE = ("none", "feed-forward", "full")
SCALES = ((256, "below 256 GPUs"), (1024, "256 to 1k GPUs"), (4096, "1k to 4k GPUs"), (10**9, "above 4k GPUs"))
_ATTENTION = tables(__package__, "attention.toml")
# JAX issues kernels from C++, and MaxText's recipe keeps queries, keys and values (maxtext/configure.sh of the same
# repository: remat_policy save_qkv_proj of Llama 3, @0b71cfd), that of Llama 2 their projection, too (custom, @35a9aec)
_MAXTEXT = {"llama2-70b": "keep-attention", "llama3-70b": "keep-qkv"}
# Pax keeps all products (SAVE_DOT_ONLY), but not fused attention, a custom call (ENABLE_TE, NVTE_FUSED_ATTN), or those
# of attention alone (SAVE_QKV_OUT_PROJ), and shares out parameters of 5B within each host, of 175B over 16
# (DCN_MESH_SHAPE; paxml/configure.sh and paxml_mod_configs.py @35a9aec). Norms and GELU run again, which is left out
_PAX = {"gpt3-5b": "selective", "gpt3-175b": "keep-attention"}
# XLA gathers what it turns into 8 bits as such ("Q->AG->DQ->dot": openxla/xla, pull request 17453, and 5240 before)
_GATHERED_IN_8_BITS = "job.narrow_gathers=true"
# Of MLPerf's submissions (NVIDIA/benchmarks/llama2_70b_lora of training_results_v5.0, train.py), which set
# MCORE_CUDA_GRAPH=1, and of NeMo's fine-tuning recipes in performance mode (linear_qkv of nemo/collections/llm/recipes/
# llama3_8b.py, rank 8)
_ADAPTERS = {True: '{rank=16, targets=["qkv", "projection"], dropout=true}', False: '{rank=8, targets=["qkv"]}'}
# What Transformer Engine's Linear takes of a host with Grace in bf16 for its one kernel; PyTorch's own takes 37.1 us,
# and 13.5 of the Xeon 8480C of DGX H100 (NVIDIA/TransformerEngine, issue 2053). U: for all kernels
_GRACE = "job.kernel_launch=99.7us"
# Tokens of a record of SQuAD (a paragraph, a question and its answer), of which sequences of fine-tuning are packed
# (NVIDIA/NeMo, docs/source/performance/performance_summary.md; SquadDataModule of llama3/finetuning/llama3_finetune.py
# of dgxc-benchmarking). U: some 200; this divides sequences
_SQUAD = 256
# Releases of Megatron-Bridge repeat nothing but up-projections of latent attention, and move what does not fit to the
# host (recompute_granularity, cpu_offloading_num_layers, NVIDIA-NeMo/Megatron-Bridge, scripts/performance/utils/
# overrides.py and configs). U: but activations of experts, and 5 of 32 layers on H100
_BRIDGE = ("25.", "26.")  # their experts are whole (expert_tensor_parallel_size=1, scripts/performance/configs)
# DeepSeek-V3 of NeMo 25.04 has whole experts, too, and says what it repeats (ETP and RM, deepseek_v3/pretraining/
# launch.sh of NVIDIA/dgxc-benchmarking@1f6d9f4), and pads experts to their capacity (USE_TOKEN_DROP there). U: on GB200
# that is fused attention, which is left out
_LAUNCHED, _REPEATED = "Deepseek V3", {"h100": "latent", "gb200": "none"}
# Nor do those of NeMo before (activations_checkpoint_granularity: null, conf/peft/llama/sft.yaml of NVIDIA/
# NeMo-Framework-Launcher), whose optimizer keeps but the lower halves of fp32 weights beside bf16 ones
# (store_param_remainders, megatron_base_model.py of NVIDIA/NeMo), nor MLPerf's fine-tuning of Llama 2 (conf/
# megatron_gpt_peft_tuning_config.yaml of its submissions), which keeps inputs of SwiGLU in 8 bits (FP8_ACT)
_NEMO = "24."
# Attention in 8 bits: FP8_DPA=1 of that fine-tuning (config_common.sh), and of Llama 3.1 8B what reads
# config_common_fp8attn.sh, single hosts in 4 bits and those of HPE; context parallelism keeps F16 there elsewhere
_EIGHT = "v5.1 HPE, llama31_8b"
# Inputs of SwiGLU in 8 bits: FP8_ACT=1 of that fine-tuning with one GPU per sequence on H200, B200 and GB200 (config_
# DGXB200_1x8x1xtp1pp1cp1.sh, config_GB200_2x4x1xtp1pp1cp1.sh of GigaComputing in v5.0; of Dell, 1x8 H200 and 2x8 B200,
# in v5.1), and in 4 bits on B200 (four hosts, context 4); not with more GPUs (config_GB200_36x4x1xtp1pp1cp8.sh), nor
# on B300 and GB300, which have the memory (config_DGXB300_1x8x1xtp1pp1cp1.sh of Dell)
_SMALL = ("h200", "b200", "gb200")
# The loss is Transformer Engine's (cross_entropy_fusion_impl: te) in all recipes for training from the beginning that
# Megatron-Bridge has of these models: _set_common_perf_overrides of scripts/performance/utils/overrides.py, which all
# call (configs/{llama,gpt_oss,qwen,kimi}/*_llm_pretrain.py), before that llama3_70b and deepseek_v3_llm_pretrain.yaml,
# later _benchmark_common of recipes/utils. U: not that of fine-tuning, which 26.06 has as native in
# dryrun_configs/llama/llama3_70b_sft_gb200_fp8_mx_v1.yaml, though earlier recipes call the same. MLPerf's of Llama 3.1
# 8B has it, too (CE_FUSION_IMPL=te, config_common_8b.sh)
_TUNED = ("SFT", "LoRA")
# Megatron-core's optimizer is that of all recipes for Megatron but GPT-3 of dgxc and MLPerf up to v4.1 (distributed_
# fused_adam of APEX in nemo_megatron/gpt3_175b_hydra.yaml @35a9aec, mcore_distributed_optim in that of Grok-1 and
# Nemotron-4) and, U, NeMo 24.07. DeepSeek-V3 and Kimi K2, and all in BF16, have one that keeps no copy of parameters
# apart (use_precision_aware_optimizer, scripts/performance of Megatron-Bridge)
_APEX, _AWARE = ("v3.", "v4.", _NEMO), ("deepseek-v3", "kimi-k2")
# Nemotron 3.5 Lightning is Nano with modules that predict two further tokens, which all of Nemotron 3 keep in 16 bits
# (mtp_use_repeated_layer, keep_mtp_spec_in_bf16, recipes/nemotronh/nemotron_3_5_lightning.py @9112eeb)
_LIGHTNING = "Nemotron_3_5_Lightning"
TABLES = ("dgxc", "megatron-bridge")


Groups = Callable[[np.void], tuple[str, ...]]
"""Names the groups of a row besides GPU, precision and scale."""


def by_run(record: np.void) -> tuple[str, ...]:
    """Group a row with others of its model, and of its framework or release."""
    return str(record["model"]), str(record["run"]).split(" ", maxsplit=1)[0]


def study(name: str, about: str, groups: Groups, title: str, label: Callable[[str], str]) -> Study:
    """Make the study of a table of recipes; `title` and `label`, from a row's quantity, are those of its picture."""
    rows = partial(published, name, groups)
    first = "all", *(scale for _, scale in SCALES)
    return by_row(name, about, rows, statistics=spread_agreement, pictures=scatter(title, label), first=first)


def published(table: str, groups: Groups) -> list[Published]:
    """List the rows of a table of recipes."""
    found = measured.load(table)
    return [_row(record, found.certainty, groups) for record in found.rows]


def _row(record: np.void, certainty: measured.Certainty, groups: Groups) -> Published:
    run = published_run(record)
    said = str(record["guessed"])
    named = f"{run.name}{f' ({said})' if said else ''}"
    precision, kind = str(record["precision"]), "experts" if int(record["expert"]) > 1 else "dense"
    scale = next(name for most, name in SCALES if int(record["gpus"]) < most)
    gpu = str(record["gpu"])
    every = (gpu.upper(), precision.upper(), kind, scale, *groups(record))
    value, source, missing = float(record["step"]), str(record["line"]), missing_of(record)
    return Published(
        named,
        "s",
        value,
        source,
        certainty,
        lambda: _predicted(run.settings, gpu),
        every,
        missing,
        lambda runs: _drawn(run.settings, gpu, runs),
    )


def missing_of(record: np.void) -> str:
    """Say why a row is not predicted; nothing if it is."""
    if said := str(record["missing"]):
        return said
    pipeline, expert = int(record["pipeline"]), int(record["expert"])
    stage = int(record["gpus"]) // pipeline
    per_host = _per_host(str(record["gpu"]), int(record["gpus"]))
    apart = pipeline * (per_host if stage > per_host else 1)
    slow = apart * (expert - 1) > _MOST_MESSAGES
    return f"rings over racks tell {apart} GPUs apart, whose all-to-alls take minutes" if slow else ""


def run_named(table: str, text: str) -> tuple[PublishedRun, float]:
    """Find the first run of a table of recipes whose name begins so, and its measured step, seconds.

    Raises InputError if there is none, or its job is not modelled.
    """
    if table not in TABLES:
        raise InputError(f"--row is for rows of recipes: give {' or '.join(TABLES)} in place of {table}")
    every = measured.load(table).rows
    record = next((one for one in every if published_run(one).name.startswith(text)), None)
    if record is None:
        hint = did_you_mean(text, [published_run(one).name for one in every], f"validate {table} --json names them")
        raise InputError(f"--row {text!r}: {table} has no such row; {hint}")
    if missing := missing_of(record):
        raise InputError(f"--row {text!r}: {published_run(record).name}: {missing}")
    return run_of(record), float(record["step"])


def run_of(record: np.void) -> PublishedRun:
    """Describe the run of a row that is predicted, with what is guessed."""
    run = published_run(record)
    return replace(run, settings=_fitting(run.settings, run.job(), str(record["gpu"])))


def published_run(record: np.void) -> PublishedRun:
    """Describe the run of a row, without what is guessed from its memory."""
    gpu, gpus, run = str(record["gpu"]), int(record["gpus"]), str(record["run"])
    precision = str(record["precision"])
    tensor, context, pipeline = (int(record[key]) for key in ("tensor", "context", "pipeline"))
    adapted = "lora" in run.lower()
    if adapted and context == 1:  # more GPUs than sequences share these
        context = max(gpus // (tensor * pipeline * int(record["global_batch"])), 1)
    data, name = max(gpus // (tensor * context * pipeline), 1), str(record["model"])
    degrees = {"tensor": tensor, "context": context, "pipeline": pipeline, "data": data}
    lines = [
        *_machine(gpu, gpus),
        f"job.model.include={name}",
        *([f"job.model.layers={record['layers']}"] if record["layers"] else []),
        *_ahead(record),
        *([f"job.adapters={_ADAPTERS[TUNING in run]}"] if adapted else []),
        *([f"job.model.positions={record['sequence']}"] if adapted else []),
        *submitted(run, name, gpu, gpus),
        *([f"job.packed={_SQUAD}"] if "SFT" in run or (adapted and TUNING not in run) else []),
        *(f"job.parallelism.{key}={value}" for key, value in degrees.items()),
        f"job.parallelism.virtual_stages={record['chunks']}",
        f"job.parallelism.expert={record['expert']}",
        f"job.parallelism.sequence_parallel={str(tensor > 1).lower()}",
        *(f"job.{key}={record[key]}" for key in ("micro_batch", "global_batch", "sequence")),
    ]
    if tensor > 1 and gathers_beside_products(run) and precision != "nvfp4" and not _whole(record):
        lines.append("job.product_overlap=true")
    if int(record["chunks"]) > 1:
        lines.append("job.pipeline_overlap=true")
    if record["shards"]:
        lines += ["job.parallelism.zero=3", f"job.parallelism.replicate={max(data // int(record['shards']), 1)}"]
        lines += _xla(record)
    elif data * context > 1 and not adapted:
        lines += ["job.overlap=ddp", f"job.bucket={2 * max(_BUCKET, _BUCKET_PER_RANK * data * context)}B"]
    else:
        lines.append("job.parallelism.zero=0")
    lines += _attention(run, gpu)
    lines += _repeats(record)
    if _is_distributed(record):
        lines.append("job.optimizer=distributed")
    if (run.startswith(_BRIDGE) and not run.endswith(_TUNED)) or EIGHT_BILLION in run:
        lines.append("job.loss_kernels=fused")
    if int(record["expert"]) > 1:
        lines += _experts(record)
    lines += configured(record)
    if precision != "bf16":
        lines += _narrow(record, context)
    lines += _host(gpu, lines)
    shape = "".join(
        f" {key}{value}" for key, value in zip(("TP", "CP", "PP"), (tensor, context, pipeline), strict=True)
    )
    text = f"{run}, {gpus} {gpu.upper()}, {precision},{shape}, batch {record['global_batch']}"
    return PublishedRun(text, _SCENARIO, tuple(lines))


def _host(gpu: str, lines: list[str]) -> list[str]:
    """Say how long a host takes to issue a kernel that is not recorded: layers are Transformer Engine's."""
    if "job.launch=graph" in lines:
        return []
    return [_GRACE if gpu.startswith("gb") else "job.launch=transformer-engine"]


def _xla(record: np.void) -> list[str]:
    """Say how XLA runs a job whose parameters are shared out."""
    lines = ["job.sharded_copies=none", "job.launch=graph"]
    if str(record["run"]).startswith("Paxml"):
        lines.append(f"job.recompute={_PAX[str(record['model'])]}")
    if str(record["run"]).startswith("Maxtext"):
        lines.append(f"job.recompute={_MAXTEXT[str(record['model'])]}")
        lines += [_GATHERED_IN_8_BITS] if record["precision"] == "fp8" else []
    return lines


def _repeats(record: np.void) -> list[str]:
    """Say what is computed again, if a run's sources do."""
    run, gpu = str(record["run"]), str(record["gpu"])
    if run.startswith(_LAUNCHED):
        return [f"job.recompute={_REPEATED[gpu]}"]
    if not run.startswith((*_BRIDGE, _NEMO)) and TUNING not in run:
        return []
    release = run.split(" ", maxsplit=1)[0]
    return [f"job.recompute={repeated(release, str(record['model']), gpu, str(record['precision']))}"]


def _experts(record: np.void) -> list[str]:
    """Say how experts run: of Megatron-Bridge as the release has it, of others behind NCCL's all-to-all."""
    run, gpu = str(record["run"]), str(record["gpu"])
    release = run.split(" ", maxsplit=1)[0] if run.startswith(_BRIDGE) else ""
    lines = mixture(release, str(record["model"]), gpu, str(record["precision"]))
    more = [*dispatched(lines, gpu, int(record["expert"])), *(CAPACITY if run.startswith(_LAUNCHED) else ())]
    return [*(["job.parallelism.expert_tensor=1"] if _whole(record) else []), *lines, *more]


def _whole(record: np.void) -> bool:
    """Whether experts are whole, and spread over tensor-parallel ranks as well."""
    spread = int(record["expert"]) > 1 and int(record["tensor"]) > 1
    return spread and str(record["run"]).startswith((*_BRIDGE, _LAUNCHED))


def _attention(run: str, gpu: str) -> list[str]:
    """Say how fast attention was by the cuDNN of a run, if not as fast as its GPU's parameters have it.

    MLPerf v5.0 and NeMo 25.04 have NGC 25.04 or an earlier one, MLPerf v5.1 has 25.09. Releases of Megatron-Bridge of
    2026 have cuDNN 9.18 or later (docker/README.md of NVIDIA-NeMo/Megatron-Bridge).
    """
    older = _ATTENTION["of 2025" if run.startswith(("v5.1", *_BRIDGE)) else "9.9"]
    if run.startswith("26.") or gpu not in older:
        return []
    lines = []
    for way, (share, overhead, narrow) in older[gpu].items():
        lines += [f"cluster.gpu.attention_{way}={share}", f"cluster.gpu.attention_{way}_overhead={overhead}"]
        lines.append(f"cluster.gpu.narrow_attention_{way}.fp8={narrow}")
    return lines


def _narrow(record: np.void, context: int) -> list[str]:
    """Say what is computed in 8 or 4 bits, and where scales come from.

    Scales per tensor are of the tensor itself in Megatron-Bridge (``fp8_cs``) and in MLPerf v5.1 (``FP8_RECIPE``
    ``tensorwise``) but for fine-tuning, of earlier iterations elsewhere. Those of MLPerf v5.1 gather parameters in 8
    bits (``FP8_PARAM_GATHER=True``, ``config_common.sh``). Fine-tuning trades heads for sequences (``cp_comm_type``
    ``a2a``), in v5.1 with Transformer Engine's fused operations (``USE_TE_OPS``).
    """
    run, precision = str(record["run"]), str(record["precision"])
    tuning = TUNING in run
    lines = [f"job.products={precision}"]
    if precision == "fp8" and not tuning and run.startswith((*_BRIDGE, "v5.1")):
        lines.append("job.scaling=current")
    if precision == "fp8" and run.startswith("v5.1"):
        lines.append("job.activation_quantises=true" if tuning else _GATHERED_IN_8_BITS)
    if tuning or run == _EIGHT or (EIGHT_BILLION in run and precision == "nvfp4"):
        lines.append("job.attention_products=fp8")
    if tuning and context > 1:
        lines.append("job.parallelism.context_method=ulysses")
    small = str(record["gpu"]) in _SMALL and (context == 1 or precision == "nvfp4")
    if tuning and small and "job.activation_quantises=true" not in lines:  # which keeps its input as it is
        lines.append("job.activation_input=fp8")
    return lines


def _is_distributed(record: np.void) -> bool:
    """Whether Megatron-core's distributed optimizer copies parameters tensor by tensor."""
    run, model = str(record["run"]), str(record["model"])
    if record["shards"] or run.startswith(_APEX) or model.startswith("gpt3"):
        return False
    return not run.startswith(_BRIDGE) or (model not in _AWARE and str(record["precision"]) != "bf16")


def _ahead(record: np.void) -> list[str]:
    """Say which modules predict further tokens, if not those of the model, and that Nemotron's stay in 16 bits."""
    model, run = str(record["model"]), str(record["run"])
    lines = ["job.model.multi_token={depth=1}"] if model == "deepseek-v3" and "w/o MTP" not in run else []
    if _LIGHTNING in run:
        lines = ['job.model.multi_token={depth=2, pattern="*E", repeated=true}']
    predicts = bool(lines) or model == "nemotron3-super"
    wide = predicts and model.startswith("nemotron3") and record["precision"] != "bf16"
    return [*lines, *(["job.model.multi_token.narrow=false"] if wide else [])]


def _machine(gpu: str, gpus: int) -> list[str]:
    each = _per_host(gpu, gpus)
    lines = [f"cluster.hosts={-(-gpus // each)}", f"cluster.gpu.include={_MACHINES.get(gpu, gpu)}"]
    lines.append(ROOM)
    lines.append(f"cluster.gpu_speed={slowest(gpus):.4f}")
    rack_lines = [f"cluster.gpus_per_host={each}", f"cluster.nics_per_host={each}"]
    return ["cluster.include=gb200-nvl72", *rack_lines, *lines] if gpu.startswith("gb") else lines


def _per_host(gpu: str, gpus: int) -> int:
    """GPUs of a host, or of a rack, that a job takes."""
    if not gpu.startswith("gb"):
        return min(gpus, 8)
    return min(gpus, next((size for size in _RACKS if gpus % size == 0), _RACKS[-1]))


def slowest(gpus: int) -> float:
    """Give the speed of the slowest of GPUs of one type, relative to the median.

    Times vary normally, and the expected maximum of as many variables is Blom's approximation. Iterations are as fast
    as their slowest GPU, since all wait for it in each collective.
    """
    return 1 / (1 + _SPREAD * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25)))


@cache  # tables repeat runs from release to release
def _predicted(settings: tuple[str, ...], gpu: str) -> float:
    job = PublishedRun("", _SCENARIO, settings).job()
    return extended(_fitting(settings, job, gpu), job)


def _drawn(settings: tuple[str, ...], gpu: str, runs: int) -> list[float]:
    """Predict a step with drawn parameters; a long one by what they do to a short one."""
    job = PublishedRun("", _SCENARIO, settings).job()
    few = min(job.global_batch, 2 * job.parallelism.pipeline * job.micro_batch * job.parallelism.data)
    short = PublishedRun("", _SCENARIO, (*_fitting(settings, job, gpu), f"job.global_batch={few}"))
    scale = _predicted(settings, gpu) / short.iteration()
    return [scale * iteration for iteration in short.drawn(runs)]


def _fitting(settings: tuple[str, ...], job: Job, gpu: str) -> tuple[str, ...]:
    """Add what memory decides to be recomputed, unless the settings say it."""
    said = any(line.startswith("job.recompute=") for line in settings)
    return settings if said else (*settings, f"job.recompute={recomputed(job, gpu)}")


def extended(settings: tuple[str, ...], job: Job) -> float:
    """Simulate an iteration, a long one by two short ones; returns seconds.

    Once a pipeline of ``p`` stages is full, each micro-batch adds the same: of more than `_LONG` times ``p``
    micro-batches, ``2 p`` and ``3 p`` are simulated, and the others take what lies between these.
    """
    degrees = job.parallelism
    each, stages = job.micro_batch * degrees.data, degrees.pipeline
    batches, first, second = job.global_batch // each, 2 * stages, 3 * stages
    if batches <= _LONG * stages:
        return PublishedRun("", _SCENARIO, settings).iteration()
    short, longer = (
        PublishedRun("", _SCENARIO, (*settings, f"job.global_batch={each * count}")).iteration()
        for count in (first, second)
    )
    return short + (batches - first) * (longer - short) / (second - first)


def recomputed(job: Job, gpu: str) -> str:
    """Choose the least that has to be recomputed so that a job fits into a GPU; all, if nothing makes it fit."""
    name = _MACHINES.get(gpu, gpu)
    usable = usable_memory(load(_SCENARIO, [f"cluster.gpu.include={name}"]).scenario.cluster.gpu)
    ways = (way for way in _RECOMPUTE if fullest(job.model_copy(update={"recompute": way}))[1].total <= usable)
    return next(ways, _RECOMPUTE[-1])
