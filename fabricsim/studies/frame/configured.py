"""How recipes of NeMo on H100 ran, by their configurations: of DGX Cloud up to v25.04.02, and of NeMo 24.07.

Files without a repository are of NVIDIA/dgxc-benchmarking.

``configure.sh`` of Grok-1, of GPT-3 up to v25.01.1 and of Nemotron-4 340B up to v25.02.02 has ``NVTE_FUSED_ATTN=0``
(@143b90d; grok1 @741c886; nemotron @35a9aec and @8f5cbb3), with which Transformer Engine calls flash-attn 2. That of
GPT-3 has 1 from v25.02.02 on (@8f5cbb3), and Nemotron-4 is launched by NeMo's own scripts from v25.04.02 on
(nemotron/launch.sh @741c886).

``activations_checkpoint_granularity`` is ``null`` in the yaml of Grok-1, GPT-3 (both @35a9aec) and Nemotron-4 15B, and
``selective`` in that of Nemotron-4 340B (both @8f5cbb3): core attention runs again.

NeMo 24.07 has ``NVTE_FUSED_ATTN: 0`` as well: NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/config.yaml, has it
for 24.03.01 (@01d0773), for 24.05.01 in a fork (dingqingy/NeMo-Framework-Launcher@0baa3f0) and beside the Llama 3.1 of
24.07 in another (TJ-Solergibert@2620c4e), and no more for 24.09 (susd1234@e09264f).

Operations of PyTorch order tokens of Grok-1: Megatron-core fused them later (``moe_permute_fusion`` of 0.11). Its
experts run one after another and have their tokens padded: ``moe_grouped_gemm: false``,
``moe_pad_expert_input_to_capacity: true``, ``moe_expert_capacity_factor: 1.0`` (grok1/grok1_314b.yaml @35a9aec).
"""

from typing import NamedTuple

import numpy as np

_LAUNCHER = "24.07"
_RELEASES = ("35a9aec", "e6afea3", "5f23b67", "0efdb23")  # v24.11.1, v25.01.1, v25.02.02 and v25.04.02
FLASH_ATTENTION_2 = {"forward": 0.345, "forward_overhead": 84, "backward": 0.33}
"""How fast flash-attn 2 is on H100, as keys of a GPU behind ``attention_``.

With heads of 128 it reaches 298 to 335 TFLOPS for 2,048 to 16,384 tokens under a causal mask, on which the first two
are calibrated, and 322 back without one (Shah et al., arXiv 2407.08608, figures 5 and 6).
"""


class _Configuration(NamedTuple):
    """What a recipe says in how many releases, of flash-attn 2 in how many of these."""

    releases: int
    flash_attention_2: int
    recompute: str
    more: tuple[str, ...] = ()


CAPACITY = "job.capacity_factor=1", "job.pad_to_capacity=true"
"""Settings of experts that are padded to their even share."""
_GROK = "job.expert_kernels=unfused", *CAPACITY
_CONFIGURATIONS = {
    "grok-1": _Configuration(4, 4, "none", _GROK),
    "gpt3-175b": _Configuration(4, 2, "none"),
    "nemotron4-15b": _Configuration(3, 0, "none"),
    "nemotron4-340b": _Configuration(3, 3, "selective"),
}


def configured(record: np.void) -> list[str]:
    """Say how the run of a row ran besides degrees and batches, as settings; nothing of other runs."""
    if str(record["run"]).startswith(_LAUNCHER):
        return _flash_attention_2()
    said = _CONFIGURATIONS.get(str(record["model"]))
    commit = str(record["line"]).partition(":")[0]
    if said is None or commit not in _RELEASES[: said.releases]:
        return []
    attention = _flash_attention_2() if commit in _RELEASES[: said.flash_attention_2] else []
    return [f"job.recompute={said.recompute}", *attention, *said.more]


def _flash_attention_2() -> list[str]:
    return [f"cluster.gpu.attention_{key}={value}" for key, value in FLASH_ATTENTION_2.items()]
