"""What a block does: kernels on the GPU, and the collectives between them, in the order of their launch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from fabricsim.workload.program import CollectiveName


Narrow = Literal["fp8", "mxfp8", "nvfp4"]
"""Precisions of products alone: 8 bits with a scale per tensor, 8 and 4 bits with a scale per block."""

Kernel = Literal[
    "stream",
    "function",
    "hadamard",
    "scatter",
    "product",
    "attention",
    "attention-gradient",
    "scan",
    "scan-gradient",
]
"""What a kernel does: read and write memory, besides with random numbers or exponentials ("function"), behind a random
Hadamard transform ("hadamard"), or adding rows up where others do, too ("scatter"), multiply matrices, fused attention
and its backward pass, or products of Mamba-2 with decays that are computed beside them, and their gradients."""

MASK = 1
"""Bytes per element of a dropout mask."""


class Pass(NamedTuple):
    """What one streaming kernel moves per element: reads and writes, and further bytes."""

    reads: int
    writes: int
    extra: int = 0
    weight: bool = False


@dataclass(frozen=True)
class Operation:
    """One kernel.

    `name`: what it computes.
    `flops`: Floating-point operations of matrix products that are carried out; 0 for all else.
    `traffic`: bytes read from and written to GPU memory.
    `transposed`: bytes besides, if products of the GPU need their factors transposed.
    `added`: part of `traffic` by which adding a product's results to a buffer exceeds writing them.
    `weight`: whether it belongs to the gradient of weights, which no other stage waits for.
    `kernel`: what kind of kernel it is.
    `shape`: of a product: how many of them in one launch, rows, inner width, columns. Of an attention: sequences times
        heads, queries, width of a head, keys. All else has none.
    `narrow`: precision of a product's factors, if narrower than the job's.
    `recorded`: whether it is part of a CUDA graph, though the job's kernels are not.
    `more`: what the host takes besides to issue further kernels in the same call, or less than for others, ps.
    `kernels`: how many run one after the other in its place, each of which starts and drains.
    `held`: processors that others hold meanwhile.
    `least`: what it takes at least, whatever it moves, ps.
    """

    name: str
    flops: int
    traffic: int
    weight: bool = False
    kernel: Kernel = "stream"
    shape: tuple[int, int, int, int] | None = None
    narrow: Narrow | None = None
    recorded: bool = False
    more: int = 0
    kernels: int = 1
    held: int = 0
    transposed: int = 0
    added: int = 0
    least: int = 0


class TokenRouting(NamedTuple):
    """How many experts there are, and how many of them each token goes to, chosen evenly."""

    experts: int
    per_token: int

    def copies(self, parts: int) -> float:
        """Count the parts of all experts, of as many each, that a token goes to in the mean."""
        others = math.comb(self.experts - self.experts // parts, self.per_token)
        return parts * (1 - others / math.comb(self.experts, self.per_token))

    def on_rails(self, size: int, hosts: int, ranks: int) -> int:
        """Give the bytes that go to hosts of `size` bytes that go to ranks."""
        return round(size * self.copies(hosts) / self.copies(ranks))


@dataclass(frozen=True)
class Exchange:
    """One collective call of the ranks that share a block.

    `collective`: what is done.
    `dimension`: the parallel dimension whose group does it: ``"tensor"``, ``"context"`` or ``"expert"``.
    `size`: bytes, counted as in `fabricsim.workload.program.Call`.
    `asynchronous`: whether the operations behind it go on beside it, up to the next `Wait` of its dimension. Those of
    a dimension run one after the other, of different ones side by side, as those of NCCL's communicators do.
    `routing`: of an all-to-all by a dispatcher of tokens, which sends a token once to each rank; over several hosts
    once to each host, and on from there.
    `weights`: bytes that go with these tokens if all experts are on one host; over several, each gets those of its own.
    `least`: what kernels take to pull it over NVLink, though the links be free, ps.
    `behind`: what kernels take behind it before it is of use, ps.
    """

    collective: CollectiveName
    dimension: str
    size: int
    asynchronous: bool = False
    routing: TokenRouting | None = None
    weights: int = 0
    least: int = 0
    behind: int = 0


@dataclass(frozen=True)
class Wait:
    """Whatever comes next needs the asynchronous exchanges so far of a `dimension`."""

    dimension: str


@dataclass(frozen=True)
class Level:
    """The host issues nothing more before the GPU is through with all so far."""


Item = Operation | Exchange | Wait | Level


@dataclass(frozen=True)
class Work:
    """What one rank does in a block for one micro-batch.

    `forward`, `backward`: kernels and exchanges of both passes in order; the backward pass begins with what it
        recomputes. At the end of a pass nothing asynchronous is left.
    `stored`: bytes that the forward pass keeps for the backward pass.
    """

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    stored: int
