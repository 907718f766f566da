"""Horovod's hierarchical all-reduce: what its parts move, and how many ranks a host has if these parts ran.

After ``NCCLHierarchicalAllreduce::Execute`` and ``NCCLTorusAllreduce::Execute`` in
``horovod/common/ops/nccl_operations.cc`` of github.com/horovod/horovod. Each host takes the elements apart: what its
ranks can share evenly is reduce-scattered, and each rank all-reduces its share with those of its place on other hosts;
what is left, fewer elements than ranks, is reduced to the last rank of the host, which adds it to its share. Then all
is gathered and broadcast in the host. Several tensors in the fusion buffer are filled up, so that nothing is left.
Hosts with different numbers of ranks share nothing out: their first ranks reduce, all-reduce and broadcast everything.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

UNIT = 64
"""Elements of a fusion buffer for each rank of a host are a multiple of these: ``FUSION_BUFFER_ATOMIC_UNIT``."""


class Ran(NamedTuple):
    """Which parts ran of a tensor that was not in the fusion buffer.

    `shared`, `rest`: whether something was reduce-scattered, and whether something was reduced.
    """

    elements: int
    shared: bool
    rest: bool


class MovedElements(NamedTuple):
    """Elements that the parts move.

    `shared`: Reduce-scattered and gathered in each host.
    `rest`: reduced and broadcast in each host.
    `across`: All-reduced across hosts, by rank 0 and those of its place.
    """

    shared: int
    rest: int
    across: int


def parts(elements: int, local: int, *, fused: bool) -> MovedElements:
    """Take the elements of an all-reduce apart, with `local` ranks on each host.

    Examples
    --------
    >>> parts(1026, 4, fused=False)
    MovedElements(shared=1024, rest=2, across=256)
    >>> parts(1026, 4, fused=True)
    MovedElements(shared=1280, rest=0, across=320)
    """
    if fused:
        elements = -(-elements // (local * UNIT)) * local * UNIT
    each, rest = divmod(elements, local)
    return MovedElements(each * local, rest, each)


def fitting(world: int, ran: Collection[Ran]) -> tuple[int, ...]:
    """Find the numbers of ranks per host, all hosts alike, with which just these parts would have run.

    All `world` ranks are not on one host: on a single one Horovod leaves the hierarchy out.
    """
    elements = np.array([one.elements for one in ran], np.int64)
    shared = np.array([one.shared for one in ran], bool)
    rest = np.array([one.rest for one in ran], bool)
    return tuple(
        local
        for local in range(1, world // 2 + 1)
        if world % local == 0
        and np.array_equal(elements >= local, shared)
        and np.array_equal(elements % local > 0, rest)
    )
