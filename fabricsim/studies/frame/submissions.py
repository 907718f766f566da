"""How submissions to MLPerf Training ran language models, by their configurations.

Those of v5.1 are in mlcommons/training_results_v5.1@4da2d1c, those of v5.0 in training_results_v5.0@0fdc28f.

Submissions on Blackwell record all kernels (``_cg`` in the name of their configuration, ``FULL_CUDA_GRAPH=1`` and
``MCORE_CUDA_GRAPH=1`` in ``config_common_cg.sh``), and so do all of fine-tuning in v5.0 and v5.1 and of Llama 3.1 8B,
which source that file (of NVIDIA, Dell, HPE, Nebius, University-of-Florida and others); not that of IBM
(``config_GB200_512x4x40xtp4pp8cp2.sh``).

Pipelines are of neighbouring ranks with ``TP_PP_DP_MAPPING=True``, which ``config_common.sh`` of v5.1 has, and in v5.0
that of 512 GB200 (``config_GB200_128x4x112xtp4pp8cp2_cg_dplast.sh``), not of 256 (``config_GB200_64x4x112xtp4pp8cp2_
cg.sh``). U: those of more GPUs do, too.

Tensor-parallel gathers run beside products (of v3.0 by ``config_tp_h100.sh``), but where ``TP_COMM_OVERLAP`` is
commented out, as in both of University-of-Florida (``config_DGXB200_32x8x144xtp4pp8cp2_cg.sh``, and of 56 hosts):
``custom.yaml`` takes it as false.

Core attention runs again in v3.0 (``ACT_CKPT_GRANULARITY``, ``run_and_time.sh`` in mlcommons/training_results_v3.0),
and was that of flash-attn 1 (Transformer Engine asked for 1.0.2 and later): 2 is of July 2023, a month later, and about
twice as fast (Dao, arXiv 2307.08691).
"""

TUNING = "llama2_70b_lora"
"""Fine-tuning, as it stands in the name of a run."""

EIGHT_BILLION = "llama31_8b"
"""Llama 3.1 8B, likewise."""

_BLACKWELL = ("b200", "gb200", "b300", "gb300")
_ON_BLACKWELL, _EAGER = ("v4.1", "v5."), "v5.0 IBM"
_WITHOUT_BUFFERS = "v5.1 University-of-Florida"
_FLASH_ATTENTION_1 = (
    "job.recompute=selective",
    "cluster.gpu.attention_forward=0.17",
    "cluster.gpu.attention_backward=0.165",
)
_LARGE, _APART = "llama3-405b", 256


def submitted(run: str, model: str, gpu: str, gpus: int) -> list[str]:
    """Say how a submission ran besides degrees and batches, as settings; nothing of other runs.

    `run`: its name, that of the round first.
    """
    lines = ["job.launch=graph"] if _is_recorded(run, gpu) else []
    if model == _LARGE and (run.startswith("v5.1") or (run.startswith("v5.0") and gpu in _BLACKWELL and gpus > _APART)):
        lines.append("job.parallelism.order=tensor-context-pipeline-data")
    if run.startswith("v3.0"):
        lines += _FLASH_ATTENTION_1
    return lines


def _is_recorded(run: str, gpu: str) -> bool:
    if TUNING in run or EIGHT_BILLION in run:
        return True
    return run.startswith(_ON_BLACKWELL) and gpu in _BLACKWELL and not run.startswith(_EAGER)


def gathers_beside_products(run: str) -> bool:
    """Whether a run has user buffers, as those of no submission do."""
    return not run.startswith(_WITHOUT_BUFFERS)
