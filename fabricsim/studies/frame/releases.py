"""How releases of Megatron-Bridge run mixtures of experts, by their recipes.

``scripts/performance/configs`` of NVIDIA-NeMo/Megatron-Bridge (of commits 767255d, f29a269, 01b2977, 0426418, 07eea52)
says for each model, GPU and precision what CUDA graphs hold (``cuda_graph_impl``, ``cuda_graph_scope``), which
dispatcher there is (``moe_flex_dispatcher_backend``), whether products of experts are fused with what lies between
them (``cutedsl_fused_grouped_mlp``) and whether all-to-alls run beside products (``moe_a2a_overlap``). Its pull
requests say since when: #3983 (DeepSeek-V3 on GB300) and #4249 (Qwen3 on racks) for 26.06, #4498 and #4606 (B300 and
B200) for 26.06.01, #5168 (Kimi K2) for 26.08, #3490 and #3549 (Qwen3 and DeepSeek-V3 on B300) for 26.04.01. Overlap
without a graph of the whole iteration took Qwen3 30B on 16 H100 from 41.3 to 31.3 s (skills/mbridge-perf-moe-comm-
overlap of 6608201), where DeepSeek-V3 had it in 25.09 (``a2a_1f1b`` of 27dfb3d). Qwen3 235B on B300 has it until #2669
(26.04). U: on B200 none of these releases has, whose recipe lost it in December 2025 (#1760).

``src/megatron/bridge/perf_recipes`` of 2026 says what else is in 8 bits with these graphs: attention
(``fp8_dot_product_attention``, qwen/common.py, deepseek/gb300/deepseek_v3.py, gpt_oss/common.py) and logits
(``fp8_output_proj``, the latter two, and deepseek/gb200/deepseek_v3.py).

Tokens of experts in 8 bits are padded by copies of their own (none of the files up to 26.02.01 has
``moe_router_padding_for_fp8``) until Megatron-LM took this into their ordering (pull request 2763 of December 2025). U:
in 26.04.

In all of them (of commits 0fa501a, f0e2c37, 0426418) DeepSeek-V3 and Kimi K2 make queries, keys and values again of
latent vectors (``recompute_modules`` with ``mla_up_proj``), but DeepSeek-V3 on GB300 in BF16, which has activations of
experts again (``moe_act``), and, from 26.06 on, in MXFP8. So has gpt-oss without graphs (scripts/performance/configs/
gpt_oss; its norms, which it has again besides, are left out).

Nemotron 3 has attention and Mamba-2 in graphs as well as routers, but not on H100, where it has experts again, and
Super on B200 has no graphs and, as on B300 but in MXFP8, activations of experts again (scripts/performance/configs/
nemotronh of f601ba9 and later; norms are left out here, too).
"""

from collections.abc import Iterable

# All of an iteration in one graph, and what that takes; what is recorded otherwise
_FUSED = "job.expert_kernels=fused", "job.expert_overlap=true"
_WHOLE = "job.launch=graph", *_FUSED
_ALL, _ROUTER = ('job.recorded=["attention", "router"]',), ('job.recorded=["router"]',)
_HYBRID = ('job.recorded=["attention", "mamba", "router"]',)
_FLEX = ("job.expert_kernels=flex",)
_OVERLAP = ("job.expert_overlap=true",)
# What kernels of HybridEP reach of NVLink, by ranks on GB200, with 8 on B200: the mean of dispatch and combine in bf16,
# less what a rank sends to itself (deepseek-ai/DeepEP@07eea0c, Hybrid-EP_Implementation.md, with as many processors as
# recipes have, 32, on B200 16). U: GB300 and B300 as these, 64 ranks as 32
_NVLINK = {8: 0.730, 16: 0.715, 32: 0.671}
_NVLINK_OF_8 = 0.685
_PROCESSORS = 32  # moe_hybridep_num_sms
_PADDED, _NO_MORE_PADDED = "job.padded_experts=true", "26.04"
# By model and GPU, in MXFP8: since which release, and what is in 8 bits then besides products of layers
_ATTENTION, _LOGITS = "job.attention_products=mxfp8", "job.narrow_logits=true"
_GRAPHS = {
    ("gpt-oss-120b", "gb300"): ("26.06", _ATTENTION, _LOGITS),
    ("gpt-oss-120b", "gb200"): ("26.06", _ATTENTION, _LOGITS),
    ("qwen3-30b-a3b", "gb300"): ("26.06", _ATTENTION),
    ("qwen3-30b-a3b", "gb200"): ("26.06", _ATTENTION),
    ("qwen3-30b-a3b", "b300"): ("26.06.01", _ATTENTION),
    ("qwen3-235b-a22b", "gb300"): ("26.06", _ATTENTION),
    ("qwen3-235b-a22b", "gb200"): ("26.06", _ATTENTION),
    ("qwen3-235b-a22b", "b300"): ("26.06.01", _ATTENTION),
    ("qwen3-235b-a22b", "b200"): ("26.06.01", _ATTENTION),
    ("deepseek-v3", "gb300"): ("26.06", _ATTENTION, _LOGITS),
    ("deepseek-v3", "gb200"): ("26.06", _LOGITS),
    ("deepseek-v3", "b300"): ("26.06.01", _ATTENTION, _LOGITS),
    ("kimi-k2", "gb300"): ("26.08", _ATTENTION),
}
_RECORDED_GPT_OSS = ("gb300", "b300")
# All others: the last line whose model, GPU and release fit
_RECIPES = (
    ("qwen3-30b-a3b", "gb300 gb200 b200", "25.11", _ALL),
    ("qwen3-30b-a3b", "gb300 gb200 b300", "26.02", (*_ROUTER, *_FLEX)),
    ("qwen3-30b-a3b", "b200", "26.02", _ROUTER),
    ("qwen3-30b-a3b", "b200", "26.02.01", (*_ALL, *_FLEX)),
    ("qwen3-30b-a3b", "h100", "25.11", _OVERLAP),
    ("qwen3-30b-a3b", "h100", "26.04", _FLEX),
    ("qwen3-235b-a22b", "gb300 gb200", "25.11", (*_ALL, *_FLEX)),
    ("qwen3-235b-a22b", "h100", "25.11", _OVERLAP),
    ("qwen3-235b-a22b", "b300", "25.11", _OVERLAP),
    ("qwen3-235b-a22b", "b300", "26.04", ()),
    ("qwen3-235b-a22b", "b300", "26.04.01", _FLEX),
    ("deepseek-v3", "h100", "25.09", (*_FLEX, *_OVERLAP)),
    ("deepseek-v3", "gb300", "25.11", (*_ALL, *_FLEX)),
    ("deepseek-v3", "gb200", "25.11", (*_ROUTER, *_FLEX)),
    ("deepseek-v3", "gb300 b300 b200 h100", "26.02", _FLEX),
    ("deepseek-v3", "gb200", "26.02", (*_ALL, *_FLEX)),
    ("deepseek-v3", "b300", "26.04.01", (*_ALL, *_FLEX)),
    ("kimi-k2", "gb300 gb200", "26.02", _FLEX),
    ("nemotron3-nano", "gb300 gb200 b300 b200", "26.02", (*_HYBRID, *_FLEX)),
    ("nemotron3-nano", "h100", "26.02", ('job.recorded=["attention", "mamba"]', *_FLEX)),
    ("nemotron3-super", "gb300 gb200 b300", "26.04", (*_HYBRID, *_FLEX)),
    ("nemotron3-super", "b200", "26.04", _FLEX),
    ("gpt-oss-120b", "gb300 b300", "25.11", _ALL),
    ("gpt-oss-120b", "b300", "26.06", (*_ALL, *_FUSED)),
)


def mixture(release: str, model: str, gpu: str, precision: str) -> tuple[str, ...]:
    """Say how a release runs a mixture of experts, as settings of a job; one of no recipe as Megatron-LM does."""
    if _whole(release, model, gpu, precision):
        return (*_WHOLE, *_GRAPHS[model, gpu][1:])
    own = [each for each in _RECIPES if each[0] == model and gpu in each[1].split() and each[2] <= release]
    padded = (_PADDED,) if "25" < release < _NO_MORE_PADDED and precision != "bf16" else ()
    return ("job.expert_kernels=all-to-all", *padded, *(own[-1][3] if own else ()))


def _whole(release: str, model: str, gpu: str, precision: str) -> bool:
    """Say whether all of an iteration is in one graph."""
    return precision == "mxfp8" and (model, gpu) in _GRAPHS and release >= _GRAPHS[model, gpu][0]


def dispatched(settings: Iterable[str], gpu: str, ranks: int) -> tuple[str, ...]:
    """Say what a dispatcher's kernels reach of NVLink between so many ranks, if settings have one."""
    if gpu == "h100" or not {*_FLEX, _FUSED[0]}.intersection(settings):
        return ()
    share = _NVLINK[max(known for known in _NVLINK if known <= max(ranks, 8))] if gpu.startswith("gb") else _NVLINK_OF_8
    return f"cluster.gpu.nvlink_efficiency={share}", f"job.hybridep_processors={_PROCESSORS}"


def repeated(release: str, model: str, gpu: str, precision: str) -> str:
    """Say what a release computes again in backward passes, as `job.recompute`."""
    if model == "gpt-oss-120b":
        recorded = gpu in _RECORDED_GPT_OSS or _whole(release, model, gpu, precision)
        return "none" if recorded else "expert-activation"
    if model == "deepseek-v3" and gpu == "gb300" and (precision == "bf16" or release >= "26.06"):
        return "expert-activation" if precision == "bf16" else "none"
    if model == "nemotron3-nano" and gpu == "h100":
        return "experts"
    if model == "nemotron3-super" and (gpu == "b200" or (gpu == "b300" and precision != "mxfp8")):
        return "expert-activation"
    return "latent" if model in ("deepseek-v3", "kimi-k2") else "none"
