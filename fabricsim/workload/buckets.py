"""Gradient buckets of PyTorch DistributedDataParallel."""

from collections import Counter
from collections.abc import Iterable, Sequence
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
        return by_width((widths[block], size) for block, size in self.parts)


def by_width(parts: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Add up sizes by widths, the narrow ones first, of pairs of both."""
    found: Counter[int] = Counter()
    for width, size in parts:
        found[width] += size
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
    size, parts = 0, Counter[int]()
    for number in reversed(range(len(gradients))):
        for tensor in reversed(gradients[number]):
            size += tensor
            parts[number] += tensor
            if size >= (cap if buckets else first_cap):
                buckets.append(Bucket(size, number, tuple(parts.items())))
                size, parts = 0, Counter()
    if size:
        buckets.append(Bucket(size, min(parts), tuple(parts.items())))
    return buckets
