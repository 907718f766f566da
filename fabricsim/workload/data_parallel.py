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

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fabricsim.workload.buckets import gradient_buckets
from fabricsim.workload.operations import PRECISION_BYTES, gradient_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.spec.job import Job
    from fabricsim.workload.lane import Lane
    from fabricsim.workload.program import CollectiveName
    from fabricsim.workload.stages import Stage

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

    Attributes
    ----------
    pending
        The last op that runs beside the computing; the optimizer waits for it.
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

    def overlaps(self, *, final: bool) -> bool:  # noqa: ARG002  those that overlap look at it
        """Whether a backward pass runs beside collectives."""
        return False

    def finish(self) -> None:
        """After the last pass."""

    def publish(self) -> None:
        """After the optimizer."""


class _Replicated(Reducer):
    """What all strategies share: sizes, and calls of the group."""

    def __init__(self, job: Job, lane: Lane, chunks: Sequence[Stage]) -> None:
        super().__init__()
        self.lane = lane
        self.chunks = chunks
        self.zero = job.parallelism.zero
        self.reduce: CollectiveName = "reduce_scatter" if self.zero else "all_reduce"
        self.group = lane.group("data")
        self.gradient = gradient_bytes(job)
        self.parameter = PRECISION_BYTES[job.precision]

    def padded(self, elements: int) -> int:
        """Elements that are sent: what is sharded is padded."""
        unit = math.lcm(len(self.group), ALIGNMENT) if self.zero else 1
        return -(-elements // unit) * unit

    def wait_for(self, collective: CollectiveName, size: int) -> None:
        """Communicate, and do nothing else meanwhile."""
        self.lane.join(collective, "data", self.group, size, TIMERS[collective])

    def beside(self, collective: CollectiveName, size: int) -> int:
        """Communicate beside what comes next, one call after the other; returns the op."""
        after = (*self.pending, *self.lane.last())
        op = self.lane.beside(collective, "data", self.group, size, TIMERS[collective], after=after)
        self.pending = (op,)
        return op


class AtOnce(_Replicated):
    """All gradients in one piece, when nothing else goes on."""

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:  # noqa: ARG002
        """Reduce the gradients of a micro-batch."""
        if self.zero > 1 and block == 0:
            self.wait_for(self.reduce, self.padded(self.chunks[chunk].parameters) * self.gradient)

    def finish(self) -> None:
        """Reduce the gradients of all micro-batches."""
        if self.zero <= 1:
            self.wait_for(self.reduce, self.padded(self._parameters) * self.gradient)

    def publish(self) -> None:
        """Gather the parameters that others have updated."""
        if self.zero:
            self.wait_for("all_gather", self.padded(self._parameters) * self.parameter)

    @property
    def _parameters(self) -> int:
        return sum(chunk.parameters for chunk in self.chunks)


class Bucketed(_Replicated):
    """Buckets, each reduced beside the backward pass once it is full."""

    def __init__(self, job: Job, lane: Lane, chunks: Sequence[Stage]) -> None:
        super().__init__(job, lane, chunks)
        caps = job.first_bucket // self.gradient, job.bucket // self.gradient
        self._buckets = [gradient_buckets(chunk.tensors, *caps) for chunk in chunks]
        self._gathers: dict[tuple[int, int], int] = {}

    def begin(self) -> None:
        """Gather the parameters, those first that are needed first."""
        if not self.zero:
            return
        for chunk, buckets in enumerate(self._buckets):
            for bucket in reversed(buckets):
                op = self.beside("all_gather", self.padded(bucket.size) * self.parameter)
                self._gathers[chunk, bucket.block] = op

    def before_forward(self, chunk: int, block: int) -> None:
        """Wait for the parameters; a bucket is complete from its first block on, and they come in order."""
        if (chunk, block) in self._gathers:
            self.lane.wait([self._gathers.pop((chunk, block))])

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:
        """Reduce the buckets that are full now."""
        if not self.overlaps(final=final):
            return
        for bucket in self._buckets[chunk]:
            if bucket.block == block:
                self.beside(self.reduce, self.padded(bucket.size) * self.gradient)

    def overlaps(self, *, final: bool) -> bool:
        """Whether a backward pass runs beside collectives."""
        return final or self.zero > 1


class Sharded(_Replicated):
    """Parameters gathered block by block ahead of each pass, and gradients scattered after it."""

    def __init__(self, job: Job, lane: Lane, chunks: Sequence[Stage]) -> None:
        super().__init__(job, lane, chunks)
        self._ahead = job.prefetch
        self._gathers: dict[int, int] = {}

    def before_forward(self, chunk: int, block: int) -> None:
        """Gather the blocks ahead, and wait for this one."""
        last = len(self.chunks[chunk].tensors) - 1
        self._gather(chunk, range(block, min(block + self._ahead, last) + 1))
        self.lane.wait([self._gathers.pop(block)])

    def before_backward(self, chunk: int, block: int) -> None:
        """Gather the blocks that come next, and wait for this one."""
        self._gather(chunk, range(block, max(block - self._ahead, 0) - 1, -1))
        self.lane.wait([self._gathers.pop(block)])

    def after_backward(self, chunk: int, block: int, *, final: bool) -> None:  # noqa: ARG002
        """Scatter the gradients of a block."""
        self.beside("reduce_scatter", self._elements(chunk, block) * self.gradient)

    def overlaps(self, *, final: bool) -> bool:  # noqa: ARG002
        """Whether a backward pass runs beside collectives."""
        return True

    def _gather(self, chunk: int, blocks: range) -> None:
        for block in blocks:
            if block not in self._gathers:
                self._gathers[block] = self.beside("all_gather", self._elements(chunk, block) * self.parameter)

    def _elements(self, chunk: int, block: int) -> int:
        return self.padded(sum(self.chunks[chunk].tensors[block]))


def make_reducer(job: Job, lane: Lane, chunks: Sequence[Stage]) -> Reducer:
    """Choose how a rank's gradients are reduced.

    Parameters
    ----------
    job, lane
        The job, and the ops of the rank.
    chunks
        The virtual stages that the rank holds.
    """
    if len(lane.group("data")) == 1:
        return Reducer()
    if job.parallelism.zero == 3:  # noqa: PLR2004  its usual name
        return Sharded(job, lane, chunks)
    return (AtOnce if job.overlap == "none" else Bucketed)(job, lane, chunks)
