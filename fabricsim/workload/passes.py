"""The passes of a pipeline's stages, in the order of a schedule."""

from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import get_args

from fabricsim.errors import SimulationError
from fabricsim.extensions import answers, place_of
from fabricsim.scenario.schedule import SCHEDULES, Phase, Schedule, Step

_WAYS = {"forward": (), "backward": ("forward",), "weight": ("forward", "backward")}
"""Passes of a micro-batch that come before each."""


def ordered(name: str, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> tuple[Step, ...]:
    """Order the passes of one stage by the named schedule.

    `stage`, `stages`: which stage of how many.
    `micro_batches`: that go through the pipeline in one iteration.
    `chunks`: virtual stages per rank.
    Raises SimulationError if the schedule does not exist for these numbers, or does not pass each micro-batch forward
        and back once.
    """
    schedule = SCHEDULES.find(name)
    found = f"there is no schedule {name!r}" if schedule is None else _problem(schedule, stages, micro_batches, chunks)
    if schedule is None or found:
        raise SimulationError(found)
    return _ordered(schedule, stage, stages, micro_batches, chunks)


@lru_cache(maxsize=64)
def _ordered(schedule: Schedule, stage: int, stages: int, micro_batches: int, chunks: int) -> tuple[Step, ...]:
    sizes = (stage, stages, micro_batches, *((chunks,) if schedule.interleaves else ()))
    wanted = {(batch, chunk) for batch in range(micro_batches) for chunk in range(chunks)}
    # One more than can be right: a function that never ends repeats itself by then.
    steps = tuple(islice(answers(schedule.steps, Step, *sizes), len(_WAYS) * len(wanted) + 1))
    _check(steps, f"{place_of(schedule.steps)}schedule {schedule.name}{sizes}", wanted)
    return steps


def named(step: Step) -> str:
    """Name a pass in messages."""
    return f"{step.direction} pass of micro-batch {step.micro_batch}, chunk {step.chunk}"


def _problem(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> str:
    """Say why a schedule does not exist for these numbers."""
    if chunks == 1:
        return ""
    if not schedule.interleaves:
        return f"{chunks} chunks per stage need the schedule 1f1b, not {schedule.name}"
    if stages == 1:
        return f"{chunks} chunks per stage need a pipeline of 2 stages or more"
    if micro_batches % stages:
        return f"{micro_batches} micro-batches are no multiple of the {stages} stages that interleave {chunks} chunks"
    return ""


def _check(steps: tuple[Step, ...], title: str, wanted: set[tuple[int, int]]) -> None:
    split = has_weight_passes(steps)
    done: set[tuple[str, int, int]] = set()
    for step in steps:
        way, batch, chunk, phase = step
        for word, known, what in ((way, (*_WAYS,), "pass"), (phase, get_args(Phase), "phase")):
            if word not in known:
                raise SimulationError(f"{title}: has a {word!r} {what}; a {what} is {', '.join(known)}")
        if not isinstance(batch, int) or not isinstance(chunk, int):
            msg = f"{title}: has a {way} pass of micro-batch {batch!r}, chunk {chunk!r}; write whole numbers"
            raise SimulationError(msg)
        early = [before for before in _WAYS[way] if (before, batch, chunk) not in done]
        if early or (way, batch, chunk) in done or (batch, chunk) not in wanted:
            what = f"before its {early[0]} pass" if early else "twice, or there is no such micro-batch"
            raise SimulationError(f"{title}: the {named(step)}, comes {what}")
        done.add((way, batch, chunk))
    if len(done) != len(wanted) * (2 + split):
        count = dict(Counter(step.direction for step in steps))
        raise SimulationError(f"{title}: has {count} passes, but each kind takes {len(wanted)}")


def has_weight_passes(steps: tuple[Step, ...]) -> bool:
    """Whether gradients of weights are passes of their own."""
    return any(step.direction == "weight" for step in steps)


def without_other_direction(steps: tuple[Step, ...]) -> frozenset[Step]:
    """Give the passes of a stage that no pass of the other direction can run beside.

    Those are forward passes before the first backward pass, and backward passes behind the last forward pass. Megatron-
    LM warms up with one more forward pass than 1F1B if all-to-alls are to overlap, and pairs forward and backward
    passes from then on (``get_pp_rank_microbatches`` and ``combined_1f1b_schedule_for_no_pipelining`` of
    NVIDIA/Megatron-LM, megatron/core/pipeline_parallel).
    """
    ways = [step.direction for step in steps]
    first, last = ways.index("backward"), len(ways) - ways[::-1].index("forward")
    return frozenset(steps[:first] + steps[last:])


def in_flight(steps: tuple[Step, ...]) -> int:
    """Most activations that a stage stores at once, in micro-batches of one chunk.

    Those of a forward pass are stored until the last pass that needs them: the backward pass, or the weight pass if
    there are such.
    """
    last = "weight" if has_weight_passes(steps) else "backward"
    stored = most = 0
    for step in steps:
        stored += (step.direction == "forward") - (step.direction == last)
        most = max(most, stored)
    return most
