"""What the optimizer does once per iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.workload.tape import FP32, PRECISION_BYTES, gradient_bytes
from fabricsim.workload.work import Operation

if TYPE_CHECKING:
    from fabricsim.spec.job import Job


def optimizer_operations(parameters: int, job: Job) -> tuple[Operation, ...]:
    """List what the optimizer does to the parameters of a stage, once per iteration.

    Bytes per parameter, after Megatron-LM's mixed-precision Adam with ``g`` bytes per gradient and
    ``w`` per parameter: zero the buffer ``g``; divide by the data-parallel size ``2 g`` (only with
    data parallelism); copy to fp32 ``g + 4`` (not where gradients are fp32); unscale and look for
    infinities ``8`` (fp16 only: bf16 has no loss scale); norm ``4``; Adam reads gradient, parameter and
    two moments and writes three of them ``28``; write the working copy ``4 + w`` (not in fp32).
    Each pass is one multi-tensor kernel. The scaling by the clip factor happens only where the norm
    is exceeded and is left out.
    """
    grad, width = gradient_bytes(job), PRECISION_BYTES[job.precision]
    rows = [
        ("zero gradients", grad, True),
        ("average gradients", 2 * grad, job.parallelism.data > 1),
        ("copy gradients to fp32", grad + FP32, grad != FP32),
        ("unscale", 2 * FP32, job.precision == "fp16"),
        ("gradient norm", FP32, True),
        ("Adam", 7 * FP32, True),
        ("copy parameters", FP32 + width, width != FP32),
    ]
    return tuple(Operation(name, 0, size * parameters) for name, size, done in rows if done)
