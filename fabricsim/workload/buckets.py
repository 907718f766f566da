"""Gradient buckets of PyTorch DistributedDataParallel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bucket:
    """Gradients that are all-reduced together.

    `size`: bytes.
    `block`: number of the block, in forward order, whose backward pass completes it.
    `parts`: blocks, and how much of it is of each.
    """

    size: int
    block: int
    parts: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def by_width(self, widths: Sequence[int]) -> dict[int, int]:
        """Add up its parts by the `widths` of blocks, the narrow ones first."""
        found: Counter[int] = Counter()
        for block, size in self.parts:
            found[widths[block]] += size
        return dict(sorted(found.items()))


def gradient_buckets(gradients: Sequence[Sequence[int]], first_cap: int, cap: int) -> list[Bucket]:
    """Fill buckets as PyTorch DistributedDataParallel does once it knows the order of gradients.

    Tensors are taken in the order in which the backward pass yields them and never split; a bucket
    is closed as soon as it holds its cap, so it exceeds it by less than its last tensor
    (Li et al., arXiv 2006.15704, section 4.2).

    `gradients`: bytes of each tensor of each block, in forward order.
    `first_cap`: bytes at which the first bucket is closed; it is small, to start communication early.
    `cap`: bytes at which all others are closed.
    Returns: in the order in which they are ready; their sizes add up to all gradients.
    """
    buckets: list[Bucket] = []
    parts: Counter[int] = Counter()
    for number in reversed(range(len(gradients))):
        for tensor in reversed(gradients[number]):
            parts[number] += tensor
            if parts.total() >= (cap if buckets else first_cap):
                buckets.append(_bucket(parts))
                parts = Counter()
    if parts.total():
        buckets.append(_bucket(parts))
    return buckets


def _bucket(parts: Counter[int]) -> Bucket:
    return Bucket(parts.total(), min(parts), tuple(parts.items()))
