"""Which ranks are in the groups of rank 0, in the order of ranks that Megatron-LM has by default."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """Ways in which a job is parallel.

    Attributes
    ----------
    tensor, expert, data, pipeline
        Ranks of each kind of group; `expert` divides `data`.
    """

    tensor: int
    expert: int
    data: int
    pipeline: int


def groups_of_rank_0(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Give the groups TP, EP, DP, DP_EP, PP and all of rank 0.

    Tensor-parallel ranks are next to each other, then come expert, data and pipeline parallel ones: the order
    ``tp-cp-ep-dp-pp`` of ``megatron/core/parallel_state.py`` and of AICB's ``workload_applyer.py``.

    Returns
    -------
    dict of str to tuple of int
        Global ranks; DP_EP are those that have the same experts.
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
    return {name: tuple(range(0, stride * size, stride)) for name, (stride, size) in strides.items()}
