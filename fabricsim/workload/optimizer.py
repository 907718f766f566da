"""What the optimizer does once per iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.workload.tape import FP32, NARROW_BYTES, PRECISION_BYTES, gradient_bytes
from fabricsim.workload.work import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.scenario.job import Job


def optimizer_operations(parameters: int, job: Job) -> tuple[Operation, ...]:
    """List what the optimizer does to the parameters of a stage, once per iteration.

    Bytes per parameter, after Megatron-LM's mixed-precision Adam with ``g`` bytes per gradient and
    ``w`` per parameter: zero the buffer ``g``; divide by the data-parallel size ``2 g`` (only with
    data parallelism, and where `gradient_copies` do not); copy to fp32 ``g + 4`` (not if gradients
    are fp32); unscale and look for infinities ``8`` (fp16 only: bf16 has no loss scale); norm ``4``;
    scale by the clip factor ``8`` (only if the norm is above its limit, ``clip_gradients``); Adam
    reads gradient, parameter and two moments and writes three of them ``28``; write the working copy
    ``4 + w`` (not in fp32); with narrower products turn it, and transpose it, once. Each pass is one
    multi-tensor kernel.
    """
    grad, width = gradient_bytes(job), PRECISION_BYTES[job.precision]
    rows = [
        ("zero gradients", grad, True),
        ("average gradients", 2 * grad, job.parallelism.data > 1 and not job.flatten_gradients),
        ("copy gradients to fp32", grad + FP32, grad != FP32),
        ("unscale", 2 * FP32, job.precision == "fp16"),
        ("gradient norm", FP32, True),
        ("clip", 2 * FP32, job.clip_gradients),
        ("Adam", 7 * FP32, True),
        ("copy parameters", FP32 + width, width != FP32),
        (
            "quantise parameters",
            round(width + 2 * NARROW_BYTES[job.products or "fp8"]),
            job.products is not None and job.adapters is None,
        ),
    ]
    return tuple(Operation(name, 0, size * parameters) for name, size, done in rows if done)


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
