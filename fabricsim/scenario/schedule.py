"""What a pipeline schedule is, and which there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fabricsim.extensions import Registry, require_functions

Direction = Literal["forward", "backward", "weight"]
Phase = Literal["warm-up", "steady", "cool-down"]


class Step(NamedTuple):
    """One pass of one micro-batch through the layers of one chunk on a stage.

    `direction`: a ``"weight"`` pass computes the gradient of the weights; the backward pass of a schedule that has such
        passes computes that of the input only.
    `micro_batch`: its number.
    `chunk`: chunk ``c`` of stage ``i`` of ``p`` is virtual stage ``c p + i``.
    `phase`: the part of the schedule that it belongs to. In the steady one the message behind a pass and that of the
        next are one group; else each message is waited for by itself.
    """

    direction: Direction
    micro_batch: int
    chunk: int = 0
    phase: Phase = "cool-down"


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule.

    `name`: as ``job.schedule`` has it; that of a user's file is its path.
    `steps`: called with a stage, the number of stages and that of micro-batches, and with that of chunks per stage if
        `interleaves`; gives the stage's passes in order.
    `interleaves`: whether a stage may have several chunks; the micro-batches are then a multiple of the stages.
    """

    name: str
    steps: Callable[..., Sequence[Step]]
    interleaves: bool = False

    def __post_init__(self) -> None:
        """Refuse passes that no function gives."""
        require_functions(f"schedule {self.name!r}", steps=self.steps)


SCHEDULES: Registry[Schedule] = Registry("schedules", "fabricsim.workload.schedules", "SCHEDULE", Schedule)
"""All schedules."""
