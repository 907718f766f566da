"""Kernels by which GPUs send without NCCL: which library they are of.

Names as they stand in captured traces (``void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, ...)``), from the
sources of the libraries: ``csrc/kernels`` of github.com/deepseek-ai/DeepEP, ``csrc/custom_all_reduce.cuh`` of
github.com/vllm-project/vllm (also in SGLang and AITER), ``include/flashinfer/comm`` of
github.com/flashinfer-ai/flashinfer (also in TensorRT-LLM), ``CUDASymmetricMemoryOps.cu`` of PyTorch; oneCCL is Intel's
(``oneccl_allreduce_pcie``), HCCL that of Ascend (``hcom_allReduce__428_0_1``). Kernels that only lay out or count
(``deep_ep::layout``) compute.
"""

import re
from functools import lru_cache

_LIBRARIES: dict[str, re.Pattern[str]] = {
    "DeepEP": re.compile(r"\bdeep_ep::(?:intranode|internode|internode_ll)::\w*(?:dispatch|combine|barrier)"),
    "custom all-reduce of vLLM or SGLang": re.compile(r"\bcross_device_reduce_\dstage|\bquickreduce::"),
    "FlashInfer or TensorRT-LLM": re.compile(
        r"allreduce_fusion_kernel|\b(?:one|two)[sS]hot\w*All[rR]educe\w*Kernel|\bmoeA2A(?:Dispatch|Combine)Kernel"
    ),
    "symmetric memory of PyTorch": re.compile(r"\b(?:one_shot|two_shot|multimem)_(?:all_(?:reduce|gather)|\w+_kernel)"),
    "MSCCL++": re.compile(r"mscclpp"),
    "oneCCL": re.compile(r"\boneccl_"),
    "HCCL": re.compile(r"\bhcom_[a-z]"),
    "NVSHMEM": re.compile(r"nvshmem"),
}
"""By library; the first whose name is found."""


@lru_cache(4096)
def library_of(name: str) -> str | None:
    """Name the library of a kernel that communicates without NCCL; None for all others."""
    return next((library for library, names in _LIBRARIES.items() if names.search(name)), None)
