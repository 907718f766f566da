"""Pipeline schedules: in which order a stage runs its forward and backward passes.

With ``p`` equal stages, ``m`` micro-batches, passes of ``t_f`` and ``t_b`` and free communication an iteration
takes ``m (t_f + t_b)`` and a bubble:

========== ==================================== ======================================================
schedule   bubble                               source
========== ==================================== ======================================================
GPipe      ``(p - 1) (t_f + t_b)``              Huang et al., arXiv 1811.06965
1F1B       ``(p - 1) (t_f + t_b)``              Narayanan et al., arXiv 2104.04473, section 2.2.1
interleaved ``(p - 1) (t_f + t_b) / v``         the same, section 2.2.2, with ``v`` chunks per rank
ZB-H1      ``(p - 1) (t_f + t_b - 2 t_w)``      Qi et al., arXiv 2401.10241, table 2
========== ==================================== ======================================================

In the last row ``t_w`` is the part of ``t_b`` that the gradient of the weights takes. That formula holds for
``m >= p`` and where a weight pass is no longer than a forward pass and no longer than the gradient of the
input, ``t_w <= min(t_f, t_b - t_w)``; with fewer micro-batches the bubble is ``(p - 1) (t_f + t_b - t_w) -
(m - 1) t_w``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from fabricsim.errors import SimulationError

Direction = Literal["forward", "backward", "weight"]
Phase = Literal["warm-up", "steady", "cool-down"]
Name = Literal["1f1b", "gpipe", "zb-h1"]


class Step(NamedTuple):
    """One pass of one micro-batch through the layers of one chunk on a stage.

    `direction`: a ``"weight"`` pass computes the gradient of the weights; the backward pass of a schedule that has such
        passes computes that of the input only.
    `micro_batch`: its number.
    `chunk`: chunk ``c`` of stage ``i`` of ``p`` is virtual stage ``c p + i``.
    `phase`: the part of the schedule that it belongs to.
    """

    direction: Direction
    micro_batch: int
    chunk: int
    phase: Phase


def gpipe(micro_batches: int) -> list[Step]:
    """GPipe: all forward passes, then all backward passes from the last micro-batch to the first.

    Every stage has the same order.
    """
    forward = [Step("forward", batch, 0, "warm-up") for batch in range(micro_batches)]
    return forward + [Step("backward", batch, 0, "cool-down") for batch in reversed(range(micro_batches))]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Step]:
    """1F1B (PipeDream-flush) as Megatron-LM runs it, interleaved where a rank has several chunks.

    A stage begins with `warm_up` forward passes, alternates while there are forward passes left, and ends
    with the backward passes it still owes. Interleaved, ``p`` micro-batches go through one chunk, then
    the same ones through the next chunk, and so on; backward from the last chunk to the first.
    """
    total = micro_batches * chunks
    first = warm_up(stage, stages, micro_batches, chunks)
    steady = total - first
    forward = [_pass(number, stages, chunks) for number in range(total)]
    backward = [(batch, chunks - chunk - 1) for batch, chunk in forward]
    steps = [Step("forward", *forward[number], "warm-up") for number in range(first)]
    for number in range(steady):
        steps.append(Step("forward", *forward[first + number], "steady"))
        steps.append(Step("backward", *backward[number], "steady"))
    return steps + [Step("backward", *backward[number], "cool-down") for number in range(steady, total)]


def warm_up(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> int:
    """Forward passes of a stage before its first backward pass follows one, in 1F1B.

    ``p - i - 1`` on stage ``i`` of ``p``; interleaved ``2 (p - i - 1) + (v - 1) p``, so that ``p``
    micro-batches have reached the last chunk (Megatron-LM, megatron/core/pipeline_parallel/schedules.py,
    `get_pp_rank_microbatches`).
    """
    later = stages - stage - 1
    wanted = later if chunks == 1 else 2 * later + (chunks - 1) * stages
    return min(wanted, micro_batches * chunks)


def _pass(number: int, stages: int, chunks: int) -> tuple[int, int]:
    """Micro-batch and chunk of a forward pass by its place in the order."""
    if chunks == 1:
        return number, 0
    group, place = divmod(number, stages * chunks)
    return group * stages + place % stages, place // stages


def zero_bubble_h1(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """ZB-H1: 1F1B whose stage ``i`` lets the weight gradients lag ``i`` micro-batches behind.

    The input gradient goes on to the stage before at once, and the weight gradients left over fill what
    would be the bubble at the end. Forward and backward passes stand in the order of 1F1B, and every stage
    holds ``p`` micro-batches whose weight gradient is not done.
    """
    lag = min(stage, micro_batches)
    steps: list[Step] = []
    for step in one_forward_one_backward(stage, stages, micro_batches):
        steps.append(step)
        if step.direction == "backward" and step.micro_batch >= lag:
            steps.append(Step("weight", step.micro_batch - lag, 0, step.phase))
    return steps + [Step("weight", batch, 0, "cool-down") for batch in range(micro_batches - lag, micro_batches)]


def schedule(name: Name, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Step]:
    """Order the steps of one stage by the named schedule.

    `name`: ``"1f1b"`` is interleaved where `chunks` is above 1; the others have one chunk per stage.
    `stage`, `stages`: which stage of how many.
    `micro_batches`: that go through the pipeline in one iteration.
    `chunks`: virtual stages per rank.
    Raises SimulationError if the schedule does not exist for these numbers (see `problem`).
    """
    if found := problem(name, stages, micro_batches, chunks):
        raise SimulationError(found)
    if name == "gpipe":
        return gpipe(micro_batches)
    if name == "zb-h1":
        return zero_bubble_h1(stage, stages, micro_batches)
    return one_forward_one_backward(stage, stages, micro_batches, chunks)


def problem(name: Name, stages: int, micro_batches: int, chunks: int) -> str | None:
    """Say why a schedule does not exist for these numbers; ``None`` if it does."""
    if chunks == 1:
        return None
    if name != "1f1b":
        return f"{chunks} chunks per stage need the schedule 1f1b, not {name}"
    if stages == 1:
        return f"{chunks} chunks per stage need a pipeline of 2 stages or more"
    if micro_batches % stages:
        return f"{micro_batches} micro-batches are no multiple of the {stages} stages that interleave {chunks} chunks"
    return None


def in_flight(name: Name, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> int:
    """Most activations that a stage stores at once, in micro-batches of one chunk.

    Those of a forward pass are stored until the last pass that needs them: the backward pass, or the weight
    pass of ZB-H1. All micro-batches in GPipe, ``p - i`` in 1F1B on stage ``i``, one more than the warm-up
    when interleaved, and ``p`` in ZB-H1 on every stage: ``i`` of them have only their weight pass
    left, which needs less (Qi et al., section 2.3: ``(p - i) M_B + i M_W``).
    """
    if name == "gpipe":
        return micro_batches
    if name == "zb-h1":
        return min(stages, micro_batches)
    return min(warm_up(stage, stages, micro_batches, chunks) + 1, micro_batches * chunks)
