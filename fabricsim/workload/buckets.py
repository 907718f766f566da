"""Gradient buckets of PyTorch DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """Gradients that are all-reduced together.

    `size`: bytes.
    `block`: number of the block, in forward order, whose backward pass completes it.
    """

    size: int
    block: int


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
    size = block = 0
    for number in reversed(range(len(gradients))):
        for tensor in reversed(gradients[number]):
            size, block = size + tensor, number
            if size >= (cap if buckets else first_cap):
                buckets.append(Bucket(size, block))
                size = 0
    if size:
        buckets.append(Bucket(size, block))
    return buckets
