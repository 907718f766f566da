"""Data parallelism: who holds and reduces which gradients, and who gathers which parameters, when.

====  =======================================  ===================================================
zero  gradients                                parameters
====  =======================================  ===================================================
0     all-reduced once                         held by all
1     reduce-scattered once                    all-gathered once, after the optimizer or, with
                                               overlap, before the first forward pass needs them
2     reduce-scattered after each micro-batch  as 1
3     as 2, block by block                     all-gathered for each forward and backward pass,
                                               block by block
====  =======================================  ===================================================

Rajbhandari et al., "ZeRO", arXiv 1910.02054; 1 is Megatron-LM's distributed optimizer, 3 is PyTorch's
FullyShardedDataParallel (Zhao et al., arXiv 2304.11277).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job
from fabricsim.scenario.schedule import Direction
from fabricsim.units import seconds
from fabricsim.workload.buckets import Bucket, by_width, gradient_buckets
from fabricsim.workload.lane import RankOps
from fabricsim.workload.links import share as part
from fabricsim.workload.optimizer import parameters_for_products
from fabricsim.workload.program import Call, CollectiveName
from fabricsim.workload.roofline import kernels_span
from fabricsim.workload.stages import Stage, running
from fabricsim.workload.tape import PRECISION_BYTES, gradient_bytes
from fabricsim.workload.work import Operation

ALIGNMENT = 128
"""Elements; Megatron-LM pads what it shards to a multiple of them and of the group."""

TIMERS: dict[CollectiveName, str] = {
    "all_reduce": "params-all-reduce",
    "reduce_scatter": "grads-reduce-scatter",
    "all_gather": "params-all-gather",
}
"""Timer of each collective."""


class Reducer:
    """Gradients of a rank that has no replica: nothing to do.

    `pending`: the last op that runs beside the computing; the optimizer waits for it.
    """

    def __init__(self) -> None:
        self.pending: tuple[int, ...] = ()

    def begin(self) -> None:
        """Before the first pass."""

    def before_forward(self, chunk: int, block: int) -> None:
        """Before the forward pass of a block."""

    def before_backward(self, chunk: int, block: int) -> None:
        """Before the backward pass of a block."""

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:
        """After the backward pass of a block; `final` is that of the last micro-batch."""

    def beside_pass(self, direction: Direction, chunk: int, block: int, *, final: bool) -> float:  # noqa: ARG002  those that overlap look at them
        """Give the `fabricsim.workload.links.share` of the pass of a block beside collectives."""
        return 0.0

    def quiet(self, direction: Direction, chunk: int, *, final: bool) -> bool:  # noqa: ARG002
        """Whether nothing happens in a pass of a chunk."""
        return True

    def finish(self) -> None:
        """After the last pass."""

    def publish(self) -> None:
        """After the optimizer."""


@dataclass(frozen=True)
class _Share:
    """Parameters of a rank that the same ranks have copies of.

    `group`: those ranks.
    `tensors`: elements of each tensor of each block of each chunk that the rank holds.
    """

    group: tuple[int, ...]
    tensors: tuple[tuple[tuple[int, ...], ...], ...]

    def block(self, chunk: int, block: int) -> int:
        """Count the elements of a block."""
        return sum(self.tensors[chunk][block])

    def chunk(self, chunk: int) -> int:
        """Count the elements of a chunk."""
        return sum(map(sum, self.tensors[chunk]))

    @property
    def all(self) -> int:
        """Elements of all chunks."""
        return sum(self.chunk(chunk) for chunk in range(len(self.tensors)))


class _Replicated(Reducer):
    """What all strategies share: what is reduced over whom, and the calls.

    Experts are spread over ranks that hold the same of everything else, so fewer ranks have a copy of them.
    """

    def __init__(self, job: Job, lane: RankOps, chunks: Sequence[Stage]) -> None:
        super().__init__()
        self.lane = lane
        self.zero = job.parallelism.zero
        self.reduce: CollectiveName = "reduce_scatter" if self.zero else "all_reduce"
        self.gradient = gradient_bytes(job)
        self.parameter = PRECISION_BYTES[job.precision]
        self.chunks = chunks
        shares = (
            _Share(lane.group("data"), tuple(chunk.tensors for chunk in chunks)),
            _Share(lane.group("expert_data"), tuple(chunk.experts for chunk in chunks)),
        )
        self.shares = [share for share in shares if share.all and len(share.group) > 1]

    def padded(self, share: _Share, elements: int) -> int:
        """Elements that are sent: what is sharded is padded."""
        unit = math.lcm(len(share.group), ALIGNMENT) if self.zero else 1
        return -(-elements // unit) * unit

    def wait_for(self, collective: CollectiveName, share: _Share, size: int) -> None:
        """Communicate `size` bytes, and do nothing else meanwhile."""
        if size:
            self.lane.join(Call(collective, share.group, size, "data"), TIMERS[collective])

    def least(self, collective: CollectiveName, share: _Share, size: int) -> float:
        """Least time of a call of `size` bytes, s."""
        return self.lane.slowed.seconds(collective, share.group, size) if size else 0.0

    def beside(self, collective: CollectiveName, group: tuple[int, ...], size: int) -> None:
        """Communicate `size` bytes beside what comes next, behind the calls before."""
        if not size:
            return
        self.lane.launch(TIMERS[collective])
        after = (*self.pending, *self.lane.last())
        self.pending = (self.lane.beside(Call(collective, group, size, "data"), TIMERS[collective], after=after),)

    def reduced(self, share: _Share, elements: int) -> int:
        """Bytes of the reduction of some gradients."""
        return self.padded(share, elements) * self.gradient


class AtOnce(_Replicated):
    """All gradients in one piece, when nothing else goes on."""

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:  # noqa: ARG002
        """Reduce the gradients of a micro-batch."""
        if self.zero > 1 and block == 0:
            for share in self.shares:
                self.wait_for(self.reduce, share, self.reduced(share, share.chunk(chunk)))

    def quiet(self, direction: Direction, chunk: int, *, final: bool) -> bool:  # noqa: ARG002
        """Whether nothing happens in a pass of a chunk."""
        return self.zero <= 1 or direction == "forward"

    def finish(self) -> None:
        """Reduce the gradients of all micro-batches."""
        if self.zero <= 1:
            for share in self.shares:
                self.wait_for(self.reduce, share, self.reduced(share, share.all))

    def publish(self) -> None:
        """Gather the parameters that others have updated, those of each width at once."""
        for share in self.shares if self.zero else ():
            parts = (
                (width, share.block(chunk, block))
                for chunk, stage in enumerate(self.chunks)
                for block, width in enumerate(stage.gathered)
            )
            for width, elements in by_width(parts).items():
                self.wait_for("all_gather", share, self.padded(share, elements) * width)


class Bucketed(_Replicated):
    """Buckets, each reduced beside the backward pass once it is full."""

    def __init__(self, job: Job, lane: RankOps, chunks: Sequence[Stage]) -> None:
        super().__init__(job, lane, chunks)
        caps = job.first_bucket // self.gradient, job.bucket // self.gradient
        self._buckets = [
            (share, [gradient_buckets(tensors, *caps) for tensors in share.tensors]) for share in self.shares
        ]
        self._gathers: dict[tuple[int, int], tuple[int, ...]] = {}
        self._gathering = False
        self._beside_reductions = [self._share_of("backward", number) for number in range(len(chunks))]
        # In a pipeline stages wait for their first inputs while parameters come, and forward passes do not slow
        slows = job.parallelism.pipeline == 1
        self._beside_gathers = [self._share_of("forward", number) if slows else 0.0 for number in range(len(chunks))]

    def _share_of(self, direction: Direction, chunk: int) -> float:
        """Give the share of a pass of a chunk beside gathers of its parameters or reductions of its gradients."""
        buckets = [(share, bucket) for share, chunks in self._buckets for bucket in chunks[chunk]]
        blocks = self.chunks[chunk].blocks
        if direction == "forward":
            sizes = ((share, size) for share, bucket in buckets for size in self._gathered(share, chunk, bucket))
            times, passes = (self.least("all_gather", *each) for each in sizes), [block.forward for block in blocks]
        else:
            sizes = ((share, self.reduced(share, bucket.size)) for share, bucket in buckets)
            times, passes = (self.least(self.reduce, *each) for each in sizes), [block.backward for block in blocks]
        return part(sum(times), seconds(running(passes)))

    def _gathered(self, share: _Share, chunk: int, bucket: Bucket) -> list[int]:
        """Bytes of the parameters of a bucket as they are gathered, those of each width apart."""
        widths = self.chunks[chunk].gathered
        return [self.padded(share, elements) * width for width, elements in bucket.by_width(widths).items()]

    def beside_pass(self, direction: Direction, chunk: int, block: int, *, final: bool) -> float:  # noqa: ARG002
        """Give the share of the pass of a block, that of its chunk."""
        if direction == "forward":
            return self._beside_gathers[chunk] if self._gathering else 0.0
        return self._beside_reductions[chunk] if self.overlaps(direction, final=final) else 0.0

    def begin(self) -> None:
        """Gather the parameters, those first that are needed first."""
        if not self.zero:
            return
        for share, chunks in self._buckets:
            for chunk, buckets in enumerate(chunks):
                for bucket in reversed(buckets):
                    for size in self._gathered(share, chunk, bucket):
                        self.beside("all_gather", share.group, size)
                    self._gathers[chunk, bucket.block] = self.pending

    def before_forward(self, chunk: int, block: int) -> None:
        """Wait for the parameters; a bucket is complete from its first block on, and they come in order."""
        if not block:
            self._gathering = not self.quiet("forward", chunk, final=False)
        self.lane.wait(self._gathers.pop((chunk, block), ()))

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:
        """Reduce the buckets that are full now."""
        if not self.overlaps("backward", final=final):
            return
        for share, chunks in self._buckets:
            for bucket in chunks[chunk]:
                if bucket.block == block:
                    self.beside(self.reduce, share.group, self.reduced(share, bucket.size))

    def overlaps(self, direction: Direction, *, final: bool) -> bool:
        """Whether a pass runs beside collectives: a backward pass whose gradients are reduced."""
        return direction == "backward" and (final or self.zero > 1)

    def quiet(self, direction: Direction, chunk: int, *, final: bool) -> bool:
        """Whether nothing happens in a pass of a chunk."""
        if direction == "forward":
            return all(awaited != chunk for awaited, _ in self._gathers)
        return not self.overlaps("backward", final=final)


class Sharded(_Replicated):
    """Parameters gathered block by block ahead of each pass, and gradients scattered after it.

    As `fully_shard` of PyTorch does (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py): what was gathered is
    copied out of its buffer, and gradients into theirs, in the precision of their reduction, on the stream that
    computes. Parameters of narrower products are turned after each gather, or gathered as such and transposed for the
    backward pass, since products in 8 bits of Hopper read both factors along what they add up.
    """

    def __init__(self, job: Job, gpu: Gpu, lane: RankOps, chunks: Sequence[Stage]) -> None:
        super().__init__(job, lane, chunks)
        degrees = job.parallelism
        self._ahead, self._again = job.prefetch, degrees.reshard_after_forward
        self._blocks = [len(chunk.blocks) for chunk in chunks]
        self._gathers: dict[int, tuple[int, ...]] = {}
        self._replicas = lane.group("replicate")
        if degrees.replicate > 1:
            self.shares = [_Share(lane.group("shard"), share.tensors) for share in self.shares]
        self._job, self._gpu = job, gpu
        self._parts: dict[tuple[int, int, Direction], float] = {}

    def beside_pass(self, direction: Direction, chunk: int, block: int, *, final: bool) -> float:  # noqa: ARG002
        """Give the share of the pass of a block beside the collectives of its own parameters and gradients."""
        if (chunk, block, direction) not in self._parts:
            passes, back = self.chunks[chunk].blocks[block], direction == "backward"
            kernels = seconds(running([passes.backward if back else passes.forward]))
            collectives = 0.0
            for share in self.shares:
                gathered = self._gathered(share, chunk, block)
                scattered = self.reduced(share, share.block(chunk, block))
                collectives += self.least("all_gather", share, gathered) * (self._again or not back)
                collectives += self.least("reduce_scatter", share, scattered) * back
            self._parts[chunk, block, direction] = part(collectives, kernels)
        return self._parts[chunk, block, direction]

    def before_forward(self, chunk: int, block: int) -> None:
        """Gather the blocks ahead, and wait for this one."""
        self._gather(chunk, range(block, min(block + self._ahead + 1, self._blocks[chunk])))
        self._take(chunk, block, "forward")

    def before_backward(self, chunk: int, block: int) -> None:
        """Gather the blocks that come next, and wait for this one; nothing if they are there from the forward pass."""
        if self._again:
            self._gather(chunk, range(block, max(block - self._ahead, 0) - 1, -1))
            self._take(chunk, block, "backward")
        else:
            self._prepare([], chunk, block, "backward")

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:  # noqa: ARG002
        """Scatter the gradients of a block."""
        for share in self.shares:
            elements = share.block(chunk, block)
            if not elements:
                continue
            if self._job.sharded_copies != "none":
                copied = elements * (self.parameter + self.gradient)
                self._compute([Operation("gradients into their buffer", 0, copied)], "backward")
            size = self.reduced(share, elements)
            self.beside("reduce_scatter", share.group, size)
            if len(self._replicas) > 1:
                self.beside("all_reduce", self._replicas, size // len(share.group))

    def quiet(self, direction: Direction, chunk: int, *, final: bool) -> bool:  # noqa: ARG002
        """Whether nothing happens in a pass of a chunk: never."""
        return False

    def _gather(self, chunk: int, blocks: range) -> None:
        for block in blocks:
            if block not in self._gathers:
                for share in self.shares:
                    self.beside("all_gather", share.group, self._gathered(share, chunk, block))
                self._gathers[block] = self.pending

    def _gathered(self, share: _Share, chunk: int, block: int) -> int:
        """Bytes of the parameters of a block as they are gathered."""
        return self.padded(share, self._whole(share, chunk, block)) * self.chunks[chunk].gathered[block]

    def _whole(self, share: _Share, chunk: int, block: int) -> int:
        """Count the elements of a block with the frozen ones beside adapters."""
        return share.block(chunk, block) if self._job.adapters is None else self.chunks[chunk].held[block]

    def _take(self, chunk: int, block: int, direction: Direction) -> None:
        """Wait for the parameters of a block, copy them out, and make them ready for a pass."""
        self.lane.wait(self._gathers.pop(block))
        copied = 2 * self._held(chunk, block) * self.chunks[chunk].gathered[block]
        copies = [Operation("parameters out of their buffer", 0, copied)] if self._job.sharded_copies == "both" else []
        self._prepare(copies, chunk, block, direction)

    def _prepare(self, copies: list[Operation], chunk: int, block: int, direction: Direction) -> None:
        """Make parameters ready for the products of a pass."""
        turned: list[Operation] = []
        if self.chunks[chunk].layers[block]:
            turned = parameters_for_products(self._held(chunk, block), self._job, direction)
        self._compute([*copies, *turned], direction)

    def _held(self, chunk: int, block: int) -> int:
        return sum(self._whole(share, chunk, block) for share in self.shares)

    def _compute(self, operations: list[Operation], direction: Direction) -> None:
        if operations:
            self.lane.compute(kernels_span(operations, self._job, self._gpu), f"{direction}-compute")


def make_reducer(job: Job, gpu: Gpu, lane: RankOps, chunks: Sequence[Stage]) -> Reducer:
    """Choose how a rank's gradients are reduced.

    `job`, `gpu`, `lane`: the job, what it runs on, and the ops of the rank.
    `chunks`: the virtual stages that the rank holds.
    """
    experts = any(map(any, (chunk.experts for chunk in chunks)))
    if len(lane.group("data")) == 1 and not (experts and len(lane.group("expert_data")) > 1):
        return Reducer()
    if job.parallelism.fully_sharded:
        return Sharded(job, gpu, lane, chunks)
    return (AtOnce if job.overlap == "none" else Bucketed)(job, lane, chunks)
