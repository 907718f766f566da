"""Pipeline schedules: in which order a stage runs its forward and backward passes.

With ``p`` equal stages, ``m`` micro-batches and free communication both take
``(m + p - 1) (t_f + t_b)``: a bubble of ``(p - 1) (t_f + t_b)`` over the ideal (Huang et al., arXiv
1811.06965; Narayanan et al., arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Direction = Literal["forward", "backward"]
Phase = Literal["warm-up", "steady", "cool-down"]


class Step(NamedTuple):
    """One pass of one micro-batch through a stage, and the phase of the schedule it belongs to."""

    direction: Direction
    micro_batch: int
    phase: Phase


def gpipe(micro_batches: int) -> list[Step]:
    """GPipe: all forward passes, then all backward passes from the last micro-batch to the first.

    Every stage has the same order.
    """
    forward = [Step("forward", batch, "warm-up") for batch in range(micro_batches)]
    return forward + [Step("backward", batch, "cool-down") for batch in reversed(range(micro_batches))]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """1F1B without interleaving (PipeDream-flush), as Megatron-LM runs it.

    Stage ``i`` begins with ``min(p - i - 1, m)`` forward passes, alternates while there are
    micro-batches left, and ends with the backward passes it still owes.
    """
    warm_up = min(stages - stage - 1, micro_batches)
    steady = micro_batches - warm_up
    steps = [Step("forward", batch, "warm-up") for batch in range(warm_up)]
    for batch in range(steady):
        steps.append(Step("forward", warm_up + batch, "steady"))
        steps.append(Step("backward", batch, "steady"))
    return steps + [Step("backward", batch, "cool-down") for batch in range(steady, micro_batches)]


def schedule(name: Literal["1f1b", "gpipe"], stage: int, stages: int, micro_batches: int) -> list[Step]:
    """Order the steps of one stage by the named schedule."""
    if name == "gpipe":
        return gpipe(micro_batches)
    return one_forward_one_backward(stage, stages, micro_batches)
