"""The training job: model, parallelism, batch, schedule, overlap."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from fabricsim.scenario.base import NameIn, Spec
from fabricsim.scenario.model import Experts, Latent, Model, Positive
from fabricsim.scenario.quantity import Bytes, Duration
from fabricsim.scenario.schedule import SCHEDULES

__all__ = ["DIMENSIONS", "Adapters", "Experts", "Job", "Latent", "Model", "Parallelism", "Positive"]

Recompute = Literal[
    "none",
    "selective",
    "latent",
    "expert-activation",
    "experts",
    "feed-forward",
    "keep-attention",
    "keep-qkv",
    "full",
]
"""What is computed again, in the order in which it is tried if memory is short."""

DIMENSIONS = ("tensor", "context", "data", "pipeline")
"""Parallel dimensions whose degrees multiply to the number of ranks; as Megatron-LM, the innermost first."""

FULLY_SHARDED = 3
"""ZeRO stage that shares out parameters as well."""

SHARDED_KEYS = ("prefetch", "sharded_copies")
"""Settings of a job for that stage alone."""

SHARDED_DEGREES = ("replicate", "reshard_after_forward")
"""Settings of its parallelism for that stage alone."""

UNSHARDED_KEYS = ("overlap", "bucket", "first_bucket")
"""Settings of a job without effect at that stage, which gathers and reduces block by block."""


class Parallelism(Spec):
    """Degrees of parallelism; the product of tensor, context, data and pipeline is the number of ranks.

    ``sequence_parallel`` splits what lies between the tensor-parallel parts of a layer along the sequence
    (Korthikanti et al., arXiv 2205.05198). ``expert`` spreads the experts over groups of data-parallel
    ranks, which it divides; tensor-parallel ranks split each. With ``expert_tensor = 1`` experts are whole, and
    spread over the tensor- and context-parallel ranks as well: ``expert`` divides the ranks of a stage (parallel
    folding: Liu et al., arXiv 2504.14960). ``virtual_stages`` is the number of model chunks per rank of the interleaved
    schedule. ``zero`` shards optimizer state (1), gradients (2) and parameters (3, FSDP) over the
    data-parallel ranks. With ``zero = 3`` these are ``replicate`` groups, each of which shares out all parameters
    among its own ranks (hybrid sharding), and without ``reshard_after_forward`` parameters gathered for a forward pass
    stay for the backward pass. With ``scatter_gather`` tensor-parallel ranks send a part each to the next stage and
    gather it there (Narayanan et al., arXiv 2104.04473, section 4.1). ``order`` lists the dimensions from the
    innermost outwards: those named first have neighbouring ranks.
    """

    data: Positive = 1
    pipeline: Positive = 1
    tensor: Positive = 1
    context: Positive = 1
    expert: Positive = 1
    expert_tensor: Positive | None = None
    sequence_parallel: bool = False
    context_method: Literal["ring", "ulysses"] = "ring"
    virtual_stages: Positive = 1
    scatter_gather: bool = False
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    replicate: Positive = 1
    reshard_after_forward: bool = True
    order: str = "-".join(DIMENSIONS)

    @property
    def fully_sharded(self) -> bool:
        """Whether ZeRO shares out parameters as well."""
        return self.zero == FULLY_SHARDED

    @property
    def shards(self) -> int:
        """Ranks among which ZeRO shares out what is not of experts."""
        return self.data * self.context // self.replicate

    @property
    def folded(self) -> bool:
        """Whether experts are whole, and spread over tensor- and context-parallel ranks as well."""
        return self.expert_tensor == 1

    @property
    def expert_parts(self) -> int:
        """Tensor-parallel ranks that split an expert."""
        return 1 if self.folded else self.tensor

    @property
    def expert_shards(self) -> int:
        """Ranks among which ZeRO shares out experts: those that hold the same, of a group of `replicate`."""
        return self.shards * self.tensor // self.expert_parts // self.expert

    @property
    def reduces(self) -> bool:
        """Whether several ranks hold the same parameters, or experts, so that gradients are reduced."""
        return max(self.data * self.context, self.expert_shards) > 1

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data * self.pipeline


KERNEL_LAUNCH = {"eager": 45_500_000, "transformer-engine": 75_000_000, "graph": 5_000_000}
"""Interval at which the host issues kernels, ps, by ``launch``.

``"eager"``: a framework in Python that issues each by itself. Calibrated, to half a microsecond, so that the 14 runs
of Megatron-LM on one node of A100 with 1,024 hidden, one sequence per micro-batch, one stage and no tensor
parallelism come out right on average (`fabricsim.studies.vtrain`). It holds the host's time for all that the list
of kernels leaves out. In a trace of DLRM on V100 PyTorch had 40 us between launches (facebookresearch/param, with
the profiler on).

``"transformer-engine"``: layers of Transformer Engine, as Megatron-LM, NeMo, Megatron-Bridge and MLPerf have them since
2023, on hosts of H100. Calibrated on functional tests of Megatron-LM with a small model, whose host holds up the GPU:
two micro-batches more, tensor-parallel by 4 in place of 2, take 85.6 ms for its 12 layers (NVIDIA/Megatron-LM@08165ab,
tests/functional_tests/test_cases/gpt, ``golden_values_dev_dgx_h100.json``).

``"graph"``: recorded kernels (CUDA graphs), or a framework that issues them from C++. In that trace a launch itself
took 5 us; back to back launches take 1.8 us on V100 and 2.7 on A100 (reference values of ReFrame's check
kernel_latency, CSCS).
"""

MODERN = 2023
"""Models of this year and later are trained in bf16 with fused attention and without recomputation, as Llama 3 was
(Grattafiori et al., arXiv 2407.21783, section 3.3.2); Megatron-LM has added gradients of weights to their buffer in
the products themselves since the end of 2021. Those before are trained as its scripts of 2021 say."""


def _since(modern: str | bool, before: str | bool) -> Callable[[dict[str, Any]], Any]:  # noqa: FBT001
    """Give the default of a key by the year of the model, which pydantic has checked before."""
    return lambda checked: modern if checked["model"].year >= MODERN else before


class Adapters(Spec):
    """Low-rank adapters beside frozen weights (Hu et al., arXiv 2106.09685).

    A product of ``targets`` gets one beside it, through ``rank`` elements per token; the products of attention are
    ``"qkv"`` and ``"projection"``, those of feed-forward networks ``"up"`` and ``"down"``. Adapters alone have
    gradients and an optimizer. With ``dropout`` parts of their inputs are dropped, in a kernel of its own.
    """

    rank: Positive
    dropout: bool = False
    targets: Annotated[tuple[Literal["qkv", "projection", "up", "down"], ...], Field(strict=False)] = (
        "qkv",
        "projection",
    )


class Job(Spec):
    """One training job.

    ``precision``, ``recompute``, ``attention`` and ``fused_accumulation`` default to what was usual in the model's year
    (`MODERN`), ``kernel_launch`` to that of ``launch`` (`KERNEL_LAUNCH`).

    With ``packed`` a sequence is several documents of so many tokens, and attention stays within each.

    Of a BERT, ``predictions`` is how many tokens of a sequence are masked and get logits; all by default.

    ``products`` is the precision of the products with weights of layers (Transformer Engine's ``fp8_autocast``): scaled
    per tensor (``"fp8"``) or per block (``"mxfp8"``, ``"nvfp4"``). The scale of a tensor comes from earlier iterations,
    or with ``scaling = "current"`` from the tensor itself, which is read once more for it. All else stays in
    ``precision``: attention without ``attention_products``, and logits without ``narrow_logits`` (``fp8_output_proj``
    of Megatron-LM). With ``activation_input`` the input of SwiGLU is kept in 8 bits, and turned back before its
    gradient (``activation_func_fp8_input_store`` of Megatron-LM). With ``activation_quantises`` SwiGLU and its gradient
    write factors of products in 8 bits themselves (``use_transformer_engine_op_fuser``).
    With ``adapters`` the weights of the model are frozen, and those in ``products`` kept as such.

    ``overlap = "none"`` reduces all gradients after the last backward pass, as Megatron-LM does by default;
    ``"ddp"`` reduces buckets of ``bucket`` bytes as soon as they are full, as PyTorch DistributedDataParallel
    does. With ``zero`` parameters of layers are gathered in 8 bits with ``narrow_gathers`` (``fp8_param_gather`` of
    Megatron-LM, ``enable_fsdp_float8_all_gather`` of torchtitan; XLA does so by itself). With ``zero = 3`` they are
    gathered ``prefetch`` blocks ahead; ``sharded_copies`` says whether they go out of a buffer and gradients into one
    (``"both"``, ``fully_shard`` of PyTorch), gradients alone
    (``"gradients"``, its ``FullyShardedDataParallel``) or neither (``"none"``, XLA). ``recompute = "full"`` stores
    only layer inputs and repeats the forward pass before the backward pass of each layer; ``"selective"`` repeats
    scores, softmax, dropout and context of the attention only, fused or not, ``"latent"`` what leads from latent
    vectors to queries, keys and values (``--recompute-modules mla_up_proj`` of Megatron-LM),
    ``"expert-activation"`` the activation of experts (``moe_act`` there), ``"experts"`` all of these, exchanges
    included (``moe``), ``"feed-forward"`` up-projection and activation of dense layers (``mlp``), ``"keep-qkv"`` all of
    them but queries, keys and values, which are kept (``remat_policy: save_qkv_proj`` of MaxText),
    ``"keep-attention"`` its projection besides (``custom`` with ``out_proj=device``). ``attention = "fused"`` computes
    them in one kernel that keeps no scores (FlashAttention). ``loss_kernels = "fused"`` takes the loss of logits in
    three, in the precision of these (Transformer Engine). Without ``dropout`` a GPT, BERT or T5 has none,
    as with a rate of 0. What lies between products is fused, or with
    ``elementwise = "operators"`` each operator of a framework is a kernel, with ``"mixed-operators"`` those of layer
    norms, GELU, softmax and residuals in 32 bits, as in PaddlePaddle 1.8, with ``"separate"`` each operation, as in
    TensorFlow without XLA. With ``fused_accumulation`` the products that
    give gradients of weights add them to the gradient buffer themselves, as Megatron-LM does with APEX. Without
    ``tensor_overlap`` the tensor-parallel all-reduce of the gradient of an input comes behind the gradient of the
    weight, not beside it. With ``product_overlap`` (sequence parallelism with the user buffers of Transformer Engine)
    gathers and scatters run beside the products that they feed or follow, part by part.
    With ``pipeline_overlap`` messages of the interleaved schedule go beside passes that they are not for.
    With ``flatten_gradients`` gradients are copied into one buffer for their reduction, and back. With
    ``clip_gradients`` the norm of the gradients is above its limit, so that all are scaled. Each pass of the
    ``optimizer`` is one kernel for all tensors (``"fused"``, as APEX has it), one for each (``"tensors"``, or
    ``"operators"`` with a norm and a decay of weights as in PaddlePaddle 1.8), or each
    operation of it is one for each tensor (``"separate"``); with ``"distributed"`` one for all, but for copies of
    parameters and their quantisation, behind the norm that the host waits for. ``batch_time`` is what
    the host takes to fetch a micro-batch and hand it to the tensor-parallel ranks, while the GPU waits, before each
    forward pass of each stage. Of a mixture of experts, an expert takes at most ``capacity_factor`` times its even
    share of tokens, and each of the busiest rank takes ``expert_imbalance`` times it, as far as there are tokens. With
    ``pad_to_capacity`` each takes ``capacity_factor`` times it, padded if there are fewer
    (``moe_pad_expert_input_to_capacity`` of Megatron-LM), so that the host needs no count of them.

    ``expert_kernels`` says how products of experts are issued: those of a rank as one kernel (``"grouped"``); by the
    host one by one, behind an all-to-all of NCCL (``"all-to-all"``; ``"unfused"`` if operations of PyTorch order
    tokens and add them up) or a dispatcher that sends a token once to each rank (``"flex"``: DeepEP, HybridEP); or
    behind such a one without the host, in kernels that take activation and quantisation with them (``"fused"``).
    With ``hybridep_processors`` the dispatcher is HybridEP, which has so many (``moe_hybridep_num_sms`` of Megatron-LM)
    and takes time beside that of the links.
    With ``expert_overlap`` all-to-alls run beside kernels of another micro-batch. With ``padded_experts`` the tokens of
    each are copied to a whole number of blocks of ``products`` before them and back behind them (``Fp8Padding`` of
    Transformer Engine). ``recorded`` are the parts of layers in CUDA graphs if the rest is not.
    """

    model: Model
    parallelism: Parallelism = Parallelism()
    micro_batch: Positive
    global_batch: Positive
    sequence: Positive
    decoder_sequence: Positive | None = None
    predictions: Positive | None = None
    packed: Positive | None = None
    precision: Literal["fp16", "bf16", "fp32"] = Field(default_factory=_since("bf16", "fp16"))
    gradient_precision: Literal["fp16", "bf16", "fp32"] | None = None
    products: Literal["fp8", "mxfp8", "nvfp4"] | None = None
    scaling: Literal["delayed", "current"] = "delayed"
    attention_products: Literal["fp8", "mxfp8"] | None = None
    narrow_logits: bool = False
    activation_input: Literal["fp8"] | None = None
    activation_quantises: bool = False
    adapters: Adapters | None = None
    schedule: Annotated[str, NameIn(SCHEDULES)] = "1f1b"
    overlap: Literal["none", "ddp"] = "none"
    bucket: Bytes = 25 * 2**20
    first_bucket: Bytes = 2**20
    prefetch: Positive = 1
    narrow_gathers: bool = False
    sharded_copies: Literal["both", "gradients", "none"] = "both"
    recompute: Recompute = Field(default_factory=_since("none", "full"))
    dropout: bool = True
    attention: Literal["unfused", "fused"] = Field(default_factory=_since("fused", "unfused"))
    loss_kernels: Literal["unfused", "fused"] = "unfused"
    elementwise: Literal["fused", "operators", "mixed-operators", "separate"] = "fused"
    fused_accumulation: bool = Field(default_factory=_since(modern=True, before=False))
    tensor_overlap: bool = True
    product_overlap: bool = False
    pipeline_overlap: bool = False
    flatten_gradients: bool = False
    clip_gradients: bool = False
    optimizer: Literal["fused", "tensors", "operators", "separate", "distributed"] = "fused"
    launch: Literal["eager", "transformer-engine", "graph"] = "eager"
    kernel_launch: Duration = Field(default_factory=lambda checked: KERNEL_LAUNCH[checked["launch"]])
    batch_time: Duration = 0
    capacity_factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    pad_to_capacity: bool = False
    expert_imbalance: Annotated[float, Field(ge=1, le=1000)] = 1.0
    expert_kernels: Literal["grouped", "unfused", "all-to-all", "flex", "fused"] = "grouped"
    expert_overlap: bool = False
    hybridep_processors: Positive | None = None
    padded_experts: bool = False
    recorded: Annotated[tuple[Literal["attention", "mamba", "router"], ...], Field(strict=False)] = ()


def micro_batches(job: Job) -> int:
    """Micro-batches of each replica."""
    return job.global_batch // (job.micro_batch * job.parallelism.data)
