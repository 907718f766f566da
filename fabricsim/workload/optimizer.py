"""What the optimizer does once per iteration."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fabricsim.scenario.job import KERNEL_LAUNCH, Job
from fabricsim.scenario.schedule import Direction
from fabricsim.workload.buckets import gradient_buckets
from fabricsim.workload.issue import SHARE_OF_PYTORCH
from fabricsim.workload.tape import FP32, PRECISION_BYTES, Tape, gradient_bytes
from fabricsim.workload.work import Level, Operation

_CHAIN = {
    "first moment times its factor": (1, 1),
    "gradient times the rest": (1, 1),
    "new first moment": (2, 1),
    "second moment times its factor": (1, 1),
    "square of gradient": (1, 1),
    "square times the rest": (1, 1),
    "new second moment": (2, 1),
    "root": (1, 1),
    "root plus epsilon": (1, 1),
    "update": (2, 1),
    "decay": (1, 1),
    "update plus decay": (2, 1),
    "times learning rate": (1, 1),
    "new parameter": (2, 1),
    "assign first moment": (1, 1),
    "assign second moment": (1, 1),
    "assign parameter": (1, 1),
}
"""Reads and writes of Adam as ``AdamWeightDecayOptimizer`` of google-research/bert has it (``optimization.py``), and
NVIDIA's script after it: each operation a kernel, and variables assigned from what was worked out beside them."""


_DECAY = {
    "times decay": (1, 1),
    "times learning rate": (1, 1),
    "parameter less decay": (2, 1),
    "assign parameter": (1, 1),
}
"""Reads and writes of the decay of weights beside Adam, each an operator, as PaddleNLP has it (``optimization.py`` of
PaddlePaddle/models@05d1e77, pretrain_language_models/BERT), with a copy of each parameter from before Adam. Norms of
layers and biases do not decay."""


_DISTRIBUTED = {"copy parameters": 1, "quantise own parameters": 2}
"""Kernels of a pass of Megatron-LM's distributed optimizer for each tensor that a rank has a part of.

Parameters are copied one by one (``_copy_main_params_to_model_params``, megatron/core/optimizer/distrib_optimizer.py);
if they are gathered in 8 bits, their largest element is found, then they are cast (``cast_master_weights_to_fp8`` of
Transformer Engine)."""


def parts_of_tensors(blocks: Sequence[Sequence[int]], shards: int, job: Job, experts: int = 1) -> int:
    """Count the tensors of a chunk that a rank updates a part of, in the mean over the ranks that share them.

    `n` ranks cut a bucket of `k` tensors into `n` parts of equal size, which have ``k + n - 1`` pieces of tensors.

    `blocks`: elements of each tensor of each block.
    `experts`: how many a rank has, each of which has its own of what is listed together.
    """
    tensors, width = experts * sum(map(len, blocks)), gradient_bytes(job)
    caps = job.first_bucket // width, job.bucket // width
    buckets = len(gradient_buckets(blocks, *caps)) if job.overlap == "ddp" else min(tensors, 1)
    return -(-(tensors + buckets * (shards - 1)) // shards)


def optimizer_operations(
    tensors: Sequence[int], job: Job, parts: int = 1, held: int = 0
) -> tuple[Operation | Level, ...]:
    """List what the optimizer does to the parameters of a stage, once per iteration.

    Bytes per parameter, after Megatron-LM's mixed-precision Adam with ``g`` bytes per gradient and ``w`` per
    parameter: zero the buffer ``g`` (tensor by tensor there is none); divide by the data-parallel size ``2 g``
    (only with data or context parallelism, whose ranks have other tokens, and if `gradient_copies` do not); copy to
    fp32 ``g + 4`` (not if gradients are fp32); unscale and look for infinities ``8`` (fp16 only: bf16 has no loss
    scale); norm ``4``; scale by the clip factor ``8`` (only if the norm is above its limit, ``clip_gradients``);
    Adam reads gradient, parameter and two moments and writes three of them ``28``, operation by operation ``156``;
    write the working copy ``4 + w`` (not in fp32); with narrower products turn it, and transpose it, once, but with
    ZeRO 3 (`parameters_for_products`); shared out, each rank does so with all that it holds, once they are
    gathered, or turns its own and transposes all (``job.narrow_gathers``). By operators, the squares of the norm are
    ``8`` besides, gradients are not averaged (the loss is), and decay is by operators of its own (`_DECAY`).

    `tensors`: elements of each parameter tensor, or of all together.
    `job`: says with ``optimizer`` whether a pass is one kernel for all tensors or one for each. That of
        ``"distributed"`` is not in CUDA graphs (docs.nvidia.com/dl-cuda-graph, examples/llama-31-405b), and the host
        reads the norm of gradients before it goes on (``get_grad_norm_fp32``, megatron/core/optimizer/clip_grads.py).
    `parts`: how many parts of tensors a rank has (`parts_of_tensors`).
    `held`: elements that a rank holds, if it updates but a share of them.
    """
    grad, width = gradient_bytes(job), PRECISION_BYTES[job.precision]
    replicas = job.parallelism.data * job.parallelism.context
    adam = _CHAIN if job.optimizer == "separate" else {"Adam": (4, 3)}
    operators = job.optimizer == "operators"
    rows = [
        ("zero gradients", grad, job.optimizer in {"fused", "distributed"}),
        ("average gradients", 2 * grad, replicas > 1 and not (job.flatten_gradients or operators)),
        ("copy gradients to fp32", grad + FP32, grad != FP32),
        ("unscale", 2 * FP32, job.precision == "fp16"),
        ("square of gradient", 2 * FP32, operators),
        ("gradient norm", FP32, True),
        ("clip", 2 * FP32, job.clip_gradients),
        ("copy of parameter", 2 * FP32, operators),
        *((name, FP32 * sum(moves), True) for name, moves in adam.items()),
        ("copy parameters", FP32 + width, width != FP32),
        ("quantise own parameters", width + 1, job.narrow_gathers),
    ]
    kernels = tensors if job.optimizer in {"tensors", "separate", "operators"} else [sum(tensors)]
    listed = [Operation(name, 0, size * elements) for name, size, done in rows if done for elements in kernels]
    if operators:
        listed += [
            Operation(name, 0, FP32 * sum(moves) * elements)
            for elements in tensors
            if elements > _widest(job)
            for name, moves in _DECAY.items()
        ]
    if job.optimizer == "distributed":
        return *_distributed(listed, job, parts), *_gathered(held or sum(tensors), job)
    return *listed, *(each for elements in ([held] if held else kernels) for each in _gathered(elements, job))


def _widest(job: Job) -> int:
    """Elements of the widest bias of a layer; what has more is taken for a matrix, as is BERT's bias over its words."""
    return max(job.model.feed_forward or 0, 4 * job.model.hidden)


def _gathered(elements: int, job: Job) -> list[Operation]:
    """List what makes parameters that are not gathered for each pass ready for narrower products of an iteration."""
    if job.products is None or job.adapters is not None or job.parallelism.fully_sharded:
        return []
    if job.narrow_gathers:
        return [_transpose(elements)]
    return Tape(job).narrowed("parameters", elements, job.products, layouts=2)


def _transpose(elements: int) -> Operation:
    return Operation("transpose parameters", 0, 0, transposed=2 * elements)


def _distributed(listed: Iterable[Operation], job: Job, parts: int) -> Iterator[Operation | Level]:
    """Split passes that go tensor by tensor, and have the host wait for the norm of gradients."""
    each = max(job.kernel_launch, KERNEL_LAUNCH["transformer-engine"])
    more = round(SHARE_OF_PYTORCH * each) - job.kernel_launch
    for item in listed:
        kernels = max(parts * _DISTRIBUTED.get(item.name, 0), 1)
        yield from [replace(item, traffic=item.traffic // kernels, more=more)] * kernels
        if item.name == "gradient norm":
            yield Level()


def parameters_for_products(elements: int, job: Job, direction: Direction) -> list[Operation]:
    """List what makes parameters of a layer, as ZeRO 3 has gathered them, ready for narrower products of a pass.

    In the job's precision they are turned, for a backward pass that repeats products in both layouts. In 8 bits they
    are as the forward pass reads them, and transposed for the backward pass.

    `elements`: those that a rank holds of the layer.
    """
    if job.products is None:  # as always with adapters, whose frozen weights are shared out in 16 bits
        return []
    if job.narrow_gathers:
        return [] if direction == "forward" else [_transpose(elements)]
    repeats = direction == "backward" and job.recompute not in ("none", "selective")
    return Tape(job).narrowed("parameters", elements, job.products, layouts=2 if repeats else 1)


def gradient_copies(tensors: Sequence[int], job: Job) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """List what is done to the gradients of a stage before and after they are reduced in one buffer.

    They are put into it in one kernel, divided by the data-parallel size, and each is copied back, replicas or
    not: ``allreduce_gradients`` of Megatron-LM's ``DistributedDataParallel`` without contiguous buffers.

    `tensors`: elements of each parameter tensor of the stage.
    `job`: gives the precision of gradients.
    Returns: kernels before and after; none without ``flatten_gradients``.
    """
    if not job.flatten_gradients:
        return (), ()
    moved = 2 * gradient_bytes(job)
    size = moved * sum(tensors)
    before = Operation("flatten gradients", 0, size), Operation("average gradients", 0, size)
    return before, tuple(Operation("copy gradient back", 0, moved * elements) for elements in tensors)
