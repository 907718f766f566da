"""The training job: model, parallelism, batch, schedule, overlap."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.model import Experts, Model, Positive
from fabricsim.spec.quantity import Bytes, Duration

__all__ = ["DIMENSIONS", "Experts", "Job", "Model", "Parallelism", "Positive"]

DIMENSIONS = ("tensor", "context", "data", "pipeline")
"""Parallel dimensions whose degrees multiply to the number of ranks; as Megatron-LM, the innermost first."""


class Parallelism(Spec):
    """Degrees of parallelism; the product of tensor, context, data and pipeline is the number of ranks.

    ``sequence_parallel`` splits what lies between the tensor-parallel parts of a layer along the sequence
    (Korthikanti et al., arXiv 2205.05198). ``expert`` spreads the experts over groups of data-parallel
    ranks, which it divides. ``virtual_stages`` is the number of model chunks per rank of the interleaved
    schedule. ``zero`` shards optimizer state (1), gradients (2) and parameters (3, FSDP) over the
    data-parallel ranks. With ``scatter_gather`` tensor-parallel ranks send a part each to the next stage and
    gather it there (Narayanan et al., arXiv 2104.04473, section 4.1). ``order`` lists the dimensions from the
    innermost outwards: those named first have neighbouring ranks.
    """

    data: Positive = 1
    pipeline: Positive = 1
    tensor: Positive = 1
    context: Positive = 1
    expert: Positive = 1
    sequence_parallel: bool = False
    context_method: Literal["ring", "ulysses"] = "ring"
    virtual_stages: Positive = 1
    scatter_gather: bool = False
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    order: str = "-".join(DIMENSIONS)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data * self.pipeline


class Job(Spec):
    """One training job.

    ``overlap = "none"`` reduces all gradients after the last backward pass, as Megatron-LM does by default;
    ``"ddp"`` reduces buckets of ``bucket`` bytes as soon as they are full, as PyTorch DistributedDataParallel
    does. With ``zero = 3`` parameters are gathered ``prefetch`` blocks ahead. ``recompute = "full"`` stores
    only layer inputs and repeats the forward pass before the backward pass of each layer; ``"selective"``
    repeats scores, softmax, dropout and context of the attention only. ``attention = "fused"`` computes them in
    one kernel that keeps no scores (FlashAttention). With ``fused_accumulation`` the products that give gradients
    of weights add them to the gradient buffer themselves, as Megatron-LM does with APEX. Without ``tensor_overlap``
    the tensor-parallel all-reduce of the gradient of an input comes behind the gradient of the weight, not beside
    it. With ``flatten_gradients`` gradients are copied into one buffer for their reduction, and back. With
    ``clip_gradients`` the norm of the gradients is above its limit, so that all are scaled. ``batch_time`` is what
    the host takes to fetch a micro-batch and hand it to the tensor-parallel ranks, while the GPU waits, before each
    forward pass of each stage. Of a mixture of experts, an expert takes at most ``capacity_factor`` times its even
    share of tokens, and the busiest takes ``expert_imbalance`` times it.
    """

    model: Model
    parallelism: Parallelism = Parallelism()
    micro_batch: Positive
    global_batch: Positive
    sequence: Positive
    decoder_sequence: Positive | None = None
    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    gradient_precision: Literal["fp16", "bf16", "fp32"] | None = None
    schedule: Literal["1f1b", "gpipe", "zb-h1"] = "1f1b"
    overlap: Literal["none", "ddp"] = "none"
    bucket: Bytes = 25 * 2**20
    first_bucket: Bytes = 2**20
    prefetch: Positive = 1
    recompute: Literal["none", "selective", "full"] = "full"
    attention: Literal["unfused", "fused"] = "unfused"
    fused_accumulation: bool = False
    tensor_overlap: bool = True
    flatten_gradients: bool = False
    clip_gradients: bool = False
    batch_time: Duration = 0
    capacity_factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    expert_imbalance: Annotated[float, Field(ge=1, le=1000)] = 1.0
