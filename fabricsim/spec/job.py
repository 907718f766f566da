"""The training job: model, parallelism, batch, schedule, overlap."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.quantity import Bytes, Duration

Positive = Annotated[int, Field(ge=1, lt=2**31)]


class Model(Spec):
    """A transformer by its numbers.

    ``layers`` counts encoder layers of a ``t5``, which has ``decoder_layers`` besides;
    ``feed_forward`` defaults to ``4 * hidden`` and ``head_width`` to ``hidden / heads``.
    """

    name: str
    family: Literal["gpt", "bert", "t5"]
    layers: Positive
    hidden: Positive
    heads: Positive
    vocabulary: Positive
    positions: Positive
    decoder_layers: Positive | None = None
    feed_forward: Positive | None = None
    head_width: Positive | None = None
    tied_embedding: bool = True


class Parallelism(Spec):
    """Degrees of parallelism; their product is the number of ranks the job uses."""

    data: Positive = 1
    pipeline: Positive = 1


class Job(Spec):
    """One training job.

    ``overlap = "none"`` all-reduces all gradients after the last backward pass, as Megatron-LM does
    by default; ``"ddp"`` all-reduces buckets of ``bucket`` bytes as soon as they are full, as PyTorch
    DistributedDataParallel does. ``recompute = "full"`` stores only layer inputs and repeats the
    forward pass before the backward pass of each layer.
    """

    model: Model
    parallelism: Parallelism = Parallelism()
    micro_batch: Positive
    global_batch: Positive
    sequence: Positive
    decoder_sequence: Positive | None = None
    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    gradient_precision: Literal["fp16", "bf16", "fp32"] | None = None
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    overlap: Literal["none", "ddp"] = "none"
    bucket: Bytes = 25 * 2**20
    first_bucket: Bytes = 2**20
    recompute: Literal["none", "full"] = "full"


class Collectives(Spec):
    """How collectives are cut and what each of their steps costs besides the wire.

    ``chunk`` is the most that one channel sends in one step, ``send_chunk`` the most that a send between two
    ranks hands over at once; of either, a connection's FIFO holds two. ``network_step`` and
    ``intra_host_step`` are fixed times per step (flags, fences, proxy), after NCCL's tuning tables.
    """

    channels: Annotated[int, Field(ge=1, le=64)] = 2
    chunk: Bytes = 2 * 2**20
    send_chunk: Bytes = 2**19
    network_step: Duration = 0
    intra_host_step: Duration = 0
