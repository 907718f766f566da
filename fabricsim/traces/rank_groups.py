"""Which ranks are in the groups of rank 0, in the order of ranks that Megatron-LM has by default."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MOST_LISTED = 2**22
"""Ranks in all groups of a recording."""


class Sizes(NamedTuple):
    """Ways in which a job is parallel.

    `tensor`, `expert`, `data`, `pipeline`: ranks of each kind of group; `expert` divides `data`.
    """

    tensor: int
    expert: int
    data: int
    pipeline: int


def groups_of_rank_0(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Give the groups TP, EP, DP, DP_EP, PP and all of rank 0.

    Tensor-parallel ranks are next to each other, then come expert, data and pipeline parallel ones: the order
    ``tp-cp-ep-dp-pp`` of ``megatron/core/parallel_state.py`` and of AICB's ``workload_applyer.py``.

    Returns: global ranks; DP_EP are those that have the same experts.
    """
    tensor, expert, data, pipeline = sizes
    stage = tensor * data
    strides = {
        "TP": (1, tensor),
        "EP": (tensor, expert),
        "DP": (tensor, data),
        "DP_EP": (tensor * expert, data // expert),
        "PP": (stage, pipeline),
        "all": (1, stage * pipeline),
    }
    return {name: strided(size, stride) for name, (stride, size) in strides.items()}


@lru_cache(4)
def strided(size: int, stride: int = 1, first: int = 0) -> tuple[int, ...]:
    """Give the ranks of a group, the same object for groups alike: a file may name many of a million ranks each."""
    return tuple(range(first, first + size * stride, stride))


def shown(ranks: Sequence[int], most: int) -> str:
    """List ranks in a message, `most` at the most."""
    return ", ".join(map(str, ranks[:most])) + (", ..." if len(ranks) > most else "")
