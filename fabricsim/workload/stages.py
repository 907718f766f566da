"""What each virtual stage of a job's pipeline computes, holds and sends."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, groupby

from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.workload.adapters import gathered_elements, trained
from fabricsim.workload.issue import Span, row
from fabricsim.workload.kinds import LAYERS
from fabricsim.workload.operations import block_work
from fabricsim.workload.roofline import kernels_span
from fabricsim.workload.shapes import Block, layout, stage_blocks
from fabricsim.workload.tape import PRECISION_BYTES, decoder_sequence, gathered_width
from fabricsim.workload.work import Exchange, Item, Level, Operation, Wait

Timed = Span | Exchange | Wait | Level
"""Kernels in a row, a collective, the end of all asynchronous ones so far, or a host that waits for the GPU."""


@dataclass(frozen=True)
class Passes:
    """What a rank does in a block for one micro-batch, with the time of its kernels.

    `forward`, `backward`: both passes.
    `inputs`, `weights`: the backward pass in two: gradients of inputs, with what is recomputed, and of weights.
    """

    forward: tuple[Timed, ...]
    backward: tuple[Timed, ...]
    inputs: tuple[Timed, ...]
    weights: tuple[Timed, ...]


@dataclass(frozen=True)
class Stage:
    """One virtual stage of the pipeline; every rank of it does the same.

    `blocks`: passes of each block, in forward order.
    `alone`: the same of a micro-batch that has no other one beside it, whose all-to-alls nothing hides.
    `tensors`: elements of each trained tensor of each block that a rank holds, in forward order, experts apart.
    `experts`: the same of experts.
    `layers`: whether each block is a layer, the products of which are in ``job.products``.
    `held`: elements of each block that ZeRO 3 gathers, frozen ones too, experts apart.
    `gathered`: bytes per parameter of each block that ZeRO 3 gathers.
    `message`: bytes of one micro-batch's activations that each of its ranks sends to the next stage, and of their
        gradients sent back; 0 on the last stage.
    """

    blocks: tuple[Passes, ...]
    alone: tuple[Passes, ...]
    tensors: tuple[tuple[int, ...], ...]
    experts: tuple[tuple[int, ...], ...]
    layers: tuple[bool, ...]
    held: tuple[int, ...]
    gathered: tuple[int, ...]
    message: int

    @property
    def forward(self) -> int:
        """Time of all kernels of a forward pass, ps."""
        return computing(block.forward for block in self.blocks)

    @property
    def backward(self) -> int:
        """Time of all kernels of a backward pass, ps."""
        return computing(block.backward for block in reversed(self.blocks))

    @property
    def parameters(self) -> int:
        """Trained parameters that a rank holds."""
        return sum(map(sum, self.tensors)) + sum(map(sum, self.experts))


def computing(passes: Iterable[Iterable[Timed]]) -> int:
    """Time of all kernels of some passes, one behind the other as the host issues them, ps."""
    return row(item for item in chain.from_iterable(passes) if isinstance(item, Span)).alone


def running(passes: Iterable[Iterable[Timed]]) -> int:
    """Time in which the GPU runs kernels of some passes, ps; it does not while it waits for the host."""
    return sum(item.run for item in chain.from_iterable(passes) if isinstance(item, Span))


def plan_stages(job: Job, gpu: Gpu, taken: int = 0) -> tuple[Stage, ...]:
    """Work out the virtual stages of a job on a GPU type, in the order in which a micro-batch goes through them.

    `taken`: processors that others hold during passes.
    """
    count = job.parallelism.pipeline * job.parallelism.virtual_stages
    stage_by_stage = stage_blocks(job.model, count, job.parallelism)
    kinds = dict.fromkeys(chain.from_iterable(stage_by_stage))
    passes = alone = {block: _passes(block, job, gpu, taken) for block in kinds}
    if job.expert_overlap:
        apart = job.model_copy(update={"expert_overlap": False})
        alone = {block: _passes(block, apart, gpu, taken) for block in kinds}
    stages = []
    for number, blocks in enumerate(stage_by_stage):
        stages.append(
            Stage(
                blocks=tuple(passes[block] for block in blocks),
                alone=tuple(alone[block] for block in blocks),
                tensors=tuple(trained(block, job)[0] for block in blocks),
                experts=tuple(trained(block, job)[1] for block in blocks),
                layers=tuple(block.kind in LAYERS for block in blocks),
                held=tuple(gathered_elements(block, job) for block in blocks),
                gathered=tuple(gathered_width(block, job) for block in blocks),
                message=boundary_bytes(job, number),
            )
        )
    return tuple(stages)


def _passes(block: Block, job: Job, gpu: Gpu, held: int) -> Passes:
    work = block_work(block, job)
    forward, backward = (_beside(items, held) for items in (work.forward, work.backward))
    inputs = [item for item in backward if not (isinstance(item, Operation) and item.weight)]
    weights = [item for item in backward if isinstance(item, Operation) and item.weight]
    return Passes(*(_timed(items, job, gpu) for items in (forward, backward, inputs, weights)))


def _beside(items: Iterable[Item], held: int) -> list[Item]:
    """Say of kernels how many processors others hold."""
    return [replace(item, held=held) if held and isinstance(item, Operation) else item for item in items]


def pass_kernels(block: Block, job: Job, gpu: Gpu) -> tuple[Span, Span]:
    """Put all kernels of a block in a forward and in a backward pass in a row."""
    work = block_work(block, job)
    forward, backward = (
        kernels_span([item for item in items if isinstance(item, Operation)], job, gpu)
        for items in (work.forward, work.backward)
    )
    return forward, backward


def _timed(items: Iterable[Item], job: Job, gpu: Gpu) -> tuple[Timed, ...]:
    """Take the time of kernels that follow one another together."""
    timed: list[Timed] = []
    for is_kernel, run in groupby(items, lambda item: isinstance(item, Operation)):
        if is_kernel:
            timed.append(kernels_span([item for item in run if isinstance(item, Operation)], job, gpu))
        else:
            timed += [item for item in run if not isinstance(item, Operation)]
    return tuple(timed)


def boundary_bytes(job: Job, stage: int) -> int:
    """Bytes that one micro-batch sends from each rank of a virtual stage to the next.

    ``b s h`` activations over all context-parallel ranks; behind the encoder of a T5 the encoder output
    travels along with the decoder's activations, since every decoder layer attends to it (Megatron-LM
    sends both). With sequence parallelism or scatter-gather each tensor-parallel rank sends its part.
    """
    degrees = job.parallelism
    plan = layout(job.model, degrees.pipeline * degrees.virtual_stages)
    if stage == plan.last:
        return 0
    tokens = job.sequence
    if plan.first_decoder is not None and stage >= plan.first_decoder:
        tokens += decoder_sequence(job)
    parts = degrees.context * (degrees.tensor if degrees.sequence_parallel or degrees.scatter_gather else 1)
    return job.micro_batch * tokens * job.model.hidden * PRECISION_BYTES[job.precision] // parts
