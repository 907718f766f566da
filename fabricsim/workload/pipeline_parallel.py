"""Pipeline parallelism: passes of a stage, and the sends and receives between them.

The order and the timers are those of Megatron-LM's schedules: in the warm-up and cool-down phases a
stage receives, computes and sends, each blocking; between two passes of the steady phase it sends
the one result and receives the next input in one group, to and from the same neighbour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.workload.program import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabricsim.workload.program import ProgramBuilder
    from fabricsim.workload.schedules import Direction, Step


class Pipeline:
    """One chain of ranks, a stage each, and the messages between neighbours.

    Parameters
    ----------
    builder
        Takes the calls.
    ranks
        The rank of each stage.
    sizes
        Bytes of one micro-batch from each stage to the next, and back; the last one is not used.
    """

    def __init__(self, builder: ProgramBuilder, ranks: Sequence[int], sizes: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self._builder = builder
        self._sizes = tuple(sizes)
        self._calls: dict[tuple[Direction, int, int], int] = {}

    def incoming(self, stage: int, step: Step) -> list[int]:
        """Return the calls that bring the input of a pass: one, or none at the end of the chain."""
        return self._message(stage - 1 if step.direction == "forward" else stage + 1, stage, step)

    def outgoing(self, stage: int, step: Step) -> list[int]:
        """Return the calls that take the result of a pass away: one, or none at the end of the chain."""
        return self._message(stage, stage + 1 if step.direction == "forward" else stage - 1, step)

    def _message(self, sender: int, receiver: int, step: Step) -> list[int]:
        if min(sender, receiver) < 0 or max(sender, receiver) >= len(self.ranks):
            return []
        key = (step.direction, sender, step.micro_batch)
        if key not in self._calls:
            ranks = (self.ranks[sender], self.ranks[receiver])
            size = self._sizes[min(sender, receiver)]
            self._calls[key] = self._builder.call(Call("send_recv", ranks, size, "pipeline"))
        return [self._calls[key]]


def run_stage(
    builder: ProgramBuilder,
    pipeline: Pipeline,
    stage: int,
    steps: Sequence[Step],
    compute: Sequence[Callable[[Step], None]],
) -> None:
    """Add all passes of one stage with their sends and receives.

    Parameters
    ----------
    builder
        Takes the ops.
    pipeline
        The chain that the stage is part of.
    stage
        Its place in the chain.
    steps
        Its schedule, ``n`` passes.
    compute
        What adds the compute ops of each pass, ``n`` of them.
    """
    rank = pipeline.ranks[stage]
    received = False
    for step, following, run in zip(steps, [*steps[1:], None], compute, strict=True):
        if not received:
            builder.join_all(pipeline.incoming(stage, step), rank, f"{step.direction}-recv")
        run(step)
        received = following is not None and step.phase == following.phase == "steady"
        if following is not None and received:
            both = pipeline.outgoing(stage, step) + pipeline.incoming(stage, following)
            builder.join_all(both, rank, f"{step.direction}-send-{following.direction}-recv")
        else:
            builder.join_all(pipeline.outgoing(stage, step), rank, f"{step.direction}-send")
