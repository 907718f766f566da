"""What a job needs of a GPU's memory: parameters, gradients, optimizer and activations.

Bytes per parameter, with ``w`` of a weight and ``g`` of a gradient (Rajbhandari et al., arXiv 1910.02054,
section 3.1): ``w + g + 12`` with Adam in mixed precision (fp32 weight and two moments), ``4 + 4 + 8`` in
fp32; ZeRO 1 shares out the optimizer's part over ``n`` data-parallel ranks, ZeRO 2 the gradients, too, and
ZeRO 3 all. While the optimizer runs, gradients of 16 bits have a copy in fp32: with that it is the 20
bytes of Megatron-LM (Megatron Core, "Distributed Optimizer"), but no activations are left then. Frozen weights beside
adapters have neither gradients nor optimizer, and those of layers are kept in the precision of products
(``fp8_model_init`` of Transformer Engine).

Activations are what blocks keep for their backward pass (Korthikanti et al., arXiv 2205.05198, section 4),
times the passes in flight (`fabricsim.workload.passes.in_flight`): in the first stage ``p`` micro-batches
of 1F1B, and ``1 + (p - 1) / (p v)`` times as much when interleaved (section 4.2.3). Where gradients of weights have a
pass of their own, what that needs stays from the backward pass on (`for_weights`).
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

from fabricsim.scenario.job import Job, micro_batches
from fabricsim.workload import passes
from fabricsim.workload.adapters import gathered_elements, trained_parameters
from fabricsim.workload.heads import logit_tokens
from fabricsim.workload.kinds import LAYERS
from fabricsim.workload.operations import block_work
from fabricsim.workload.parameter_counts import Parameters, chunk_parameters, virtual_stages
from fabricsim.workload.shapes import Block, stage_blocks
from fabricsim.workload.tape import NARROW_BYTES, PRECISION_BYTES, gathered_width, gradient_bytes
from fabricsim.workload.work import Operation, Work

MASTER = 4
"""Bytes of an fp32 weight, or gradient, of the optimizer."""
MOMENTS = 8
"""Bytes of Adam's two moments."""
_GRADIENTS, _PARAMETERS = 2, 3  # ZeRO stages from which on these are shared out; the optimizer's part is from 1 on


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU at the fullest moment of an iteration.

    `weights`, `gradients`, `optimizer`: what stays over the iteration, shared out as ZeRO does.
    `activations`: what passes in flight keep for their backward passes.
    `working`: the largest of what comes and goes while they run: activations of the block that is recomputed or logits,
        and gathered parameters and gradients that are not scattered yet.
    `step`: gradients in fp32 while the optimizer runs; activations are gone then.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    step: int

    @property
    def states(self) -> int:
        """Weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """All that is there at the fullest moment."""
        return self.states + max(self.activations + self.working, self.step)


def for_weights(work: Work, width: int) -> int:
    """Bytes that a block keeps from its backward pass until a pass of its own gives the gradients of its weights.

    These are both factors of that gradient: input of a product and gradient of its result, 32 s b h bytes of a layer of
    a GPT (Qi et al., arXiv 2401.10241, table 1), recomputed or not.

    `width`: bytes of an element.
    """
    factors = 0.0
    for item in work.backward:
        if isinstance(item, Operation) and item.weight and item.shape is not None:
            batch, columns, rows, inner = item.shape
            each = NARROW_BYTES[item.narrow] if item.narrow else width
            factors += each * batch * rows * (columns + inner)
    return round(factors)


def stage_memory(job: Job) -> tuple[Memory, ...]:
    """Work out the memory of a rank of each pipeline stage."""
    need = _Need(job)
    return tuple(need.stage(stage) for stage in range(job.parallelism.pipeline))


def in_flight(job: Job, stage: int) -> tuple[int, ...]:
    """Chunks of a stage whose activations are held at once, one entry per pass.

    Of a chunk ``p`` micro-batches in a row go forward.
    """
    degrees = job.parallelism
    stages, chunks = degrees.pipeline, degrees.virtual_stages
    batches = micro_batches(job)
    held = passes.in_flight(passes.ordered(job.schedule, stage, stages, batches, chunks))
    return tuple(number // stages % chunks for number in range(held))


class _Need:
    """Bytes of a job's ranks."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.weight = PRECISION_BYTES[job.precision]
        self.gradient = gradient_bytes(job)
        self.zero = job.parallelism.zero
        self.blocks = stage_blocks(job.model, virtual_stages(job), job.parallelism)
        self.parameters = chunk_parameters(job)
        self._stored: dict[Block, tuple[int, int]] = {}

    def stage(self, number: int) -> Memory:
        """Memory of a rank of a pipeline stage."""
        stages = self.job.parallelism.pipeline
        held = [block for chunk in self.parameters[number::stages] for block in chunk]
        trained = held
        if self.job.adapters is not None:
            trained = [Parameters(count) for chunk in trained_parameters(self.job)[number::stages] for count in chunk]
        master = MOMENTS + (MASTER if self.job.precision != "fp32" else 0)
        copied = MASTER if self.gradient != MASTER else 0
        return Memory(
            weights=self.weights(number),
            gradients=self.share(trained, _GRADIENTS) * self.gradient,
            optimizer=self.share(trained, 1) * master,
            activations=self.activations(number),
            working=max(self.recomputed(number), self.logits(number)) + self.unsharded(number),
            step=self.share(trained, 1) * copied,
        )

    def weights(self, number: int) -> int:
        """Bytes of parameters, and of adapters; frozen ones of layers are as narrow as their products."""
        job, stages = self.job, self.job.parallelism.pipeline
        if job.adapters is None:
            held = [block for chunk in self.parameters[number::stages] for block in chunk]
            return self.share(held, _PARAMETERS) * self.weight
        narrow = NARROW_BYTES.get(job.products or "", self.weight)
        blocks = [block for chunk in self.blocks[number::stages] for block in chunk]
        frozen = sum(block.parameters * (narrow if block.kind in LAYERS else self.weight) for block in blocks)
        whole = round(frozen) + self.weight * sum(map(sum, trained_parameters(job)[number::stages]))
        return whole if self.zero < _PARAMETERS else -(-whole // self.replicas[0])

    @cached_property
    def replicas(self) -> tuple[int, int]:
        """Ranks among which parameters are shared out, and experts."""
        degrees = self.job.parallelism
        return degrees.shards, degrees.expert_shards

    def share(self, blocks: list[Parameters], stage: int) -> int:
        """Parameters whose part a rank holds, where they are shared out from a ZeRO stage on."""
        dense, experts = sum(block.dense for block in blocks), sum(block.experts for block in blocks)
        if self.zero < stage:
            return dense + experts
        return -(-dense // self.replicas[0]) + -(-experts // self.replicas[1])

    def stored(self, block: Block) -> tuple[int, int]:
        """Bytes that a block keeps between its passes, and during its backward pass."""
        if block not in self._stored:
            whole = self.job.model_copy(update={"recompute": "none"})
            self._stored[block] = block_work(block, self.job).stored, block_work(block, whole).stored
        return self._stored[block]

    def activations(self, number: int) -> int:
        """Bytes that all passes in flight keep."""
        chunks, job = self.blocks[number :: self.job.parallelism.pipeline], self.job
        kept = [sum(self.stored(block)[0] for block in chunk) for chunk in chunks]
        degrees = job.parallelism
        steps = passes.ordered(job.schedule, number, degrees.pipeline, micro_batches(job), degrees.virtual_stages)
        if not passes.has_weight_passes(steps):
            return sum(kept[chunk] for chunk in in_flight(job, number))
        of_kind = {block: for_weights(block_work(block, job), self.weight) for block in {*chain.from_iterable(chunks)}}
        needed = [sum(of_kind[block] for block in chunk) for chunk in chunks]
        held = accumulate(
            {"forward": kept[chunk], "backward": needed[chunk] - kept[chunk], "weight": -needed[chunk]}[direction]
            for direction, _, chunk, _ in steps
        )
        return max(held)

    def recomputed(self, number: int) -> int:
        """Bytes that a block's backward pass computes again, at most."""
        stored = [
            self.stored(block) for chunk in self.blocks[number :: self.job.parallelism.pipeline] for block in chunk
        ]
        return max(whole - kept for kept, whole in stored)

    def logits(self, number: int) -> int:
        """Logits as the last product gives them; the loss keeps a copy in fp32, a fused one their gradient instead."""
        job, degrees = self.job, self.job.parallelism
        if number != degrees.pipeline - 1 or self.weight == MASTER or job.loss_kernels == "fused":
            return 0
        return logit_tokens(job) * job.model.vocabulary // degrees.tensor * self.weight

    def unsharded(self, number: int) -> int:
        """Parameters of the block that runs, or of all that ran, from ZeRO 3 on; from ZeRO 2 on a bucket of gradients.

        Parameters gathered ahead take the room that there is, and gradients can go as soon as a bucket is full.
        """
        job = self.job
        blocks = [block for chunk in self.blocks[number :: job.parallelism.pipeline] for block in chunk]
        sizes = [(gathered_elements(block, job) + sum(block.experts)) * gathered_width(block, job) for block in blocks]
        whole = max(sizes) if job.parallelism.reshard_after_forward else sum(sizes)
        gathered = whole if self.zero >= _PARAMETERS else 0
        reduced = sum(block.parameters for block in blocks) * self.gradient
        waiting = min(reduced, job.bucket) if self.zero >= _GRADIENTS else 0
        return gathered + waiting
