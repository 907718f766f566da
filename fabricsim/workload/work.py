"""What a block does: kernels on the GPU, and the collectives between them, in the order of their launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fabricsim.workload.program import CollectiveName


Kernel = Literal["stream", "function", "product", "attention", "attention-gradient"]
"""What a kernel does: read and write memory, besides with random numbers or exponentials ("function"), multiply
matrices, or fused attention and its backward pass."""


@dataclass(frozen=True)
class Operation:
    """One kernel.

    Attributes
    ----------
    name
        What it computes.
    flops
        Floating-point operations of matrix products that are carried out; 0 for all else.
    traffic
        Bytes read from and written to GPU memory.
    weight
        Whether it belongs to the gradient of weights, which no other stage waits for.
    kernel
        What kind of kernel it is.
    shape
        Of a product: how many of them in one launch, rows, inner width, columns. Of an attention: sequences
        times heads, queries, width of a head, keys. All else has none.
    """

    name: str
    flops: int
    traffic: int
    weight: bool = False
    kernel: Kernel = "stream"
    shape: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class Exchange:
    """One collective call of the ranks that share a block.

    Attributes
    ----------
    collective
        What is done.
    dimension
        The parallel dimension whose group does it: ``"tensor"``, ``"context"`` or ``"expert"``.
    size
        Bytes, counted as in `fabricsim.workload.program.Call`.
    asynchronous
        Whether the operations behind it go on beside it, up to the next `Wait`.
    """

    collective: CollectiveName
    dimension: str
    size: int
    asynchronous: bool = False


@dataclass(frozen=True)
class Wait:
    """Whatever comes next needs the asynchronous exchanges so far."""


Item = Operation | Exchange | Wait


@dataclass(frozen=True)
class Work:
    """What one rank does in a block for one micro-batch.

    Attributes
    ----------
    forward, backward
        Kernels and exchanges of both passes in order; the backward pass begins with what it recomputes. At
        the end of a pass nothing asynchronous is left.
    stored
        Bytes that the forward pass keeps for the backward pass.
    """

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    stored: int
