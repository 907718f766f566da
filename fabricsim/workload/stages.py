"""What each pipeline stage of a job computes, holds and sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.workload.operations import PRECISION_BYTES, decoder_sequence, gradient_bytes
from fabricsim.workload.roofline import BlockTime, block_time, optimizer_time
from fabricsim.workload.shapes import Block, layout, stage_blocks

if TYPE_CHECKING:
    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline; every rank of it does the same.

    Attributes
    ----------
    times
        Compute time of each block for one micro-batch, in forward order.
    gradients
        Bytes of each gradient tensor of each block, in forward order.
    optimizer
        Time of the optimizer step, ps.
    message
        Bytes of one micro-batch's activations sent to the next stage, and of their gradients sent
        back; 0 on the last stage.
    """

    times: tuple[BlockTime, ...]
    gradients: tuple[tuple[int, ...], ...]
    optimizer: int
    message: int

    @property
    def forward(self) -> int:
        """Forward time of one micro-batch, ps."""
        return sum(time.forward for time in self.times)

    @property
    def backward(self) -> int:
        """Backward time of one micro-batch, recomputation included, ps."""
        return sum(time.backward for time in self.times)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(sum(tensors) for tensors in self.gradients)


def plan_stages(job: Job, gpu: Gpu) -> tuple[Stage, ...]:
    """Work out the stages of a job on a GPU type."""
    width = gradient_bytes(job)
    times: dict[Block, BlockTime] = {}
    stages = []
    for number, blocks in enumerate(stage_blocks(job.model, job.parallelism.pipeline)):
        for block in blocks:
            if block not in times:
                times[block] = block_time(block, job, gpu)
        stages.append(
            Stage(
                times=tuple(times[block] for block in blocks),
                gradients=tuple(tuple(elements * width for elements in block.tensors) for block in blocks),
                optimizer=optimizer_time(sum(block.parameters for block in blocks), job, gpu),
                message=boundary_bytes(job, number),
            )
        )
    return tuple(stages)


def boundary_bytes(job: Job, stage: int) -> int:
    """Bytes that one micro-batch sends from a stage to the next.

    ``b s h`` activations; behind the encoder of a T5 the encoder output travels along with the
    decoder's activations, since every decoder layer attends to it (Megatron-LM sends both).
    """
    plan = layout(job.model, job.parallelism.pipeline)
    if stage == plan.last:
        return 0
    tokens = job.sequence
    if plan.first_decoder is not None and stage >= plan.first_decoder:
        tokens += decoder_sequence(job)
    return job.micro_batch * tokens * job.model.hidden * PRECISION_BYTES[job.precision]
