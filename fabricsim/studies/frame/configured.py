"""How recipes of NeMo on H100 ran, by their configurations: of DGX Cloud up to v25.04.02, and of NeMo 24.07.

``configured.toml`` has those of DGX Cloud, and their sources. NeMo 24.07 has ``NVTE_FUSED_ATTN: 0``, too: NVIDIA/
NeMo-Framework-Launcher, launcher_scripts/conf/config.yaml, has it for 24.03.01 (@01d0773), for 24.05.01 in a fork
(dingqingy/NeMo-Framework-Launcher@0baa3f0) and beside the Llama 3.1 of 24.07 in another (TJ-Solergibert@2620c4e), and
no more for 24.09 (susd1234@e09264f).
"""

import numpy as np

from fabricsim.files.packaged import tables

_LAUNCHER = "24.07"
_TABLES = tables(__package__, "configured.toml")
FLASH_ATTENTION_2 = {"forward": 0.345, "forward_overhead": 84, "backward": 0.33}
"""How fast flash-attn 2 is on H100, as keys of a GPU behind ``attention_``.

With heads of 128 it reaches 298 to 335 TFLOPS for 2,048 to 16,384 tokens under a causal mask, on which the first two
are calibrated, and 322 back without one (Shah et al., arXiv 2407.08608, figures 5 and 6).
"""

CAPACITY = "job.capacity_factor=1", "job.pad_to_capacity=true"
"""Settings of experts that are padded to their even share."""


def configured(record: np.void) -> list[str]:
    """Say how the run of a row ran besides degrees and batches, as settings; nothing of other runs."""
    if str(record["run"]).startswith(_LAUNCHER):
        return _flash_attention_2()
    said = _TABLES["model"].get(str(record["model"]))
    commit, releases = str(record["line"]).partition(":")[0], _TABLES["releases"]
    if said is None or commit not in releases[: said["releases"]]:
        return []
    attention = _flash_attention_2() if commit in releases[: said["flash_attention_2"]] else []
    return [f"job.recompute={said['recompute']}", *attention, *said.get("settings", ())]


def _flash_attention_2() -> list[str]:
    return [f"cluster.gpu.attention_{key}={value}" for key, value in FLASH_ATTENTION_2.items()]
