"""Pipeline parallelism: passes of a stage, and the sends and receives between them.

The order and the timers are those of Megatron-LM's schedules. Without interleaving a stage receives,
computes and sends in the warm-up and cool-down phases, each blocking; between two passes of the steady phase
it sends the one result and receives the next input in one group, to and from the same neighbour. Interleaved,
each group sends what has been computed since the one before and receives all inputs up to the next one: of one
pass, or in the steady phase of a forward and a backward pass.

Overlapped, the group behind a pass sends its result and receives the input of the next pass in the same direction
while others run, and that next pass waits for it (``overlap_p2p_comm`` of Megatron-LM, ``job.pipeline_overlap``). So
are the messages of schedules with weight passes (Qi et al., arXiv 2401.10241): blocking ones would hold up the pass
that is to fill a bubble.

A receive that waits holds processors (`held_by_receives`).
"""

from collections.abc import Callable, Sequence

from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.scenario.job import Job
from fabricsim.scenario.schedule import Direction, Step
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.placement import Placement
from fabricsim.workload.program import Call

_Pass = tuple[Step, Callable[[Step], None]]  # and what adds its compute ops

TIMERS = (
    "forward-recv",
    "forward-send",
    "backward-recv",
    "backward-send",
    "forward-send-forward-recv",
    "forward-send-backward-recv",
    "backward-send-forward-recv",
    "backward-send-backward-recv",
    "forward-backward-send-forward-backward-recv",
)
"""Names under which `run_stage` books time."""

CHANNELS = {"network": 2, "nvlink": 16}
"""Channels of NCCL that a receive takes between two ranks, each a block of threads on a processor of its own.

Over a network two for each peer, over NVLink twice as many as a GPU has links, a power of two of 32 at most, of which a
communicator of two ranks takes half (``ncclTopoGetNchannels`` and ``scheduleP2pTasksToPlan`` of NCCL 2.19 to 2.27,
src/graph/paths.cc and src/enqueue.cc). PyTorch has a communicator for each pair.
"""

_EXCHANGE = {direction: f"{direction}-send-{direction}-recv" for direction in ("forward", "backward")}
_BOTH_WAYS = TIMERS[-1]


def held_by_receives(job: Job, placement: Placement) -> int:
    """Count the processors that a receive holds beside passes.

    A stage that overlaps messages posts each receive a pass ahead. While it computes one way, that of the other way
    waits, and NCCL's kernel spins until the sender comes: half of the time for either neighbour. The stage with most
    neighbours in its host sets the pace.
    """
    if not job.pipeline_overlap:
        return 0
    ranks, hosts = placement.pipelines[0].tolist(), placement.hosts
    near = [bool(hosts) and hosts[rank] == hosts[ranks[place - 1]] for place, rank in enumerate(ranks)]
    taken = [CHANNELS["nvlink" if each else "network"] for each in near]
    return max(before + behind for before, behind in zip(taken, taken[1:] + taken[:1], strict=True)) // 2


class Pipeline:
    """One chain of virtual stages over ranks that take turns, and the messages between neighbours.

    `builder`: takes the calls.
    `ranks`: the rank of each stage, ``p`` of them. Virtual stage ``k`` is on stage ``k % p``.
    `sizes`: bytes of one micro-batch from each virtual stage to the next, and back: ``p`` of them for each chunk per
        rank; the last one is not used.
    `overlap`: whether messages go beside other passes.
    """

    def __init__(
        self, builder: ProgramBuilder, ranks: Sequence[int], sizes: Sequence[int], *, overlap: bool = False
    ) -> None:
        self.ranks = tuple(ranks)
        self.overlap = overlap
        self.interleaved = len(sizes) > len(self.ranks)
        self._builder = builder
        self._sizes = tuple(sizes[:-1])
        ends = [(self.ranks[k % len(ranks)], self.ranks[(k + 1) % len(ranks)]) for k in range(len(self._sizes))]
        self._ends = {"forward": ends, "backward": [(behind, before) for before, behind in ends]}
        # By direction and virtual stage, the call of each micro-batch.
        self._calls: dict[str, list[dict[int, int]]] = {way: [{} for _ in ends] for way in self._ends}

    def incoming(self, stage: int, step: Step) -> list[int]:
        """Return the calls that bring the input of a pass: one, or none if it needs none."""
        virtual = step.chunk * len(self.ranks) + stage
        return self._message(virtual - 1 if step.direction == "forward" else virtual, step)

    def outgoing(self, stage: int, step: Step) -> list[int]:
        """Return the calls that take the result of a pass away: one, or none if nobody needs it."""
        virtual = step.chunk * len(self.ranks) + stage
        return self._message(virtual if step.direction == "forward" else virtual - 1, step)

    def _message(self, virtual: int, step: Step) -> list[int]:
        """Return the call between a virtual stage and the next, in the direction of the pass."""
        direction, micro_batch, *_ = step
        if not 0 <= virtual < len(self._sizes) or direction == "weight":
            return []
        calls = self._calls[direction][virtual]
        if micro_batch not in calls:
            ends = self._ends[direction][virtual]
            calls[micro_batch] = self._builder.call(Call("send_recv", ends, self._sizes[virtual], "pipeline"))
        return [calls[micro_batch]]


def run_stage(
    builder: ProgramBuilder,
    pipeline: Pipeline,
    stage: int,
    steps: Sequence[Step],
    compute: Sequence[Callable[[Step], None]],
) -> None:
    """Add all passes of one stage with their sends and receives.

    `builder`: takes the ops.
    `pipeline`: the chain that the stage is part of.
    `stage`: its place in the chain.
    `steps`: its schedule, ``n`` passes.
    `compute`: what adds the compute ops of each pass, ``n`` of them.
    """
    passes = list(zip(steps, compute, strict=True))
    if pipeline.overlap or any(step.direction == "weight" for step in steps):
        _overlapped(builder, pipeline, stage, passes)
    else:
        (_grouped if pipeline.interleaved else _blocking)(builder, pipeline, stage, passes)


def _blocking(builder: ProgramBuilder, pipeline: Pipeline, stage: int, passes: Sequence[_Pass]) -> None:
    """One message at a time, two to and from the same neighbour in the steady phase."""
    rank = pipeline.ranks[stage]
    received = False
    for (step, run), following in zip(passes, [*(step for step, _ in passes[1:]), None], strict=True):
        if not received:
            builder.join_all(pipeline.incoming(stage, step), rank, f"{step.direction}-recv")
        run(step)
        received = following is not None and step.phase == following.phase == "steady"
        if following is not None and received:
            both = pipeline.outgoing(stage, step) + pipeline.incoming(stage, following)
            builder.join_all(both, rank, f"{step.direction}-send-{following.direction}-recv")
        else:
            builder.join_all(pipeline.outgoing(stage, step), rank, f"{step.direction}-send")


def _grouped(builder: ProgramBuilder, pipeline: Pipeline, stage: int, passes: Sequence[_Pass]) -> None:
    """All results since the last group and all inputs until the next one at once."""
    rank, steps = pipeline.ranks[stage], [step for step, _ in passes]
    builder.join_all(pipeline.incoming(stage, steps[0]), rank, f"{steps[0].direction}-recv")
    calls: list[int] = []
    for index, (step, run) in enumerate(passes):
        run(step)
        calls += pipeline.outgoing(stage, step)
        if step.direction == "forward" and step.phase == "steady":
            continue
        following = _until_next_group(steps, index)
        steady = "steady" in {step.phase, *(each.phase for each in following)}
        inputs = [call for each in following for call in pipeline.incoming(stage, each)]
        if step.phase == "warm-up" and following[0].phase == "cool-down":
            builder.join_all(calls, rank, _EXCHANGE["forward"])
            builder.join_all(inputs, rank, "backward-recv")
        else:
            builder.join_all(calls + inputs, rank, _BOTH_WAYS if steady else _EXCHANGE[step.direction])
        calls = []


def _until_next_group(steps: Sequence[Step], index: int) -> Sequence[Step]:
    """Return the passes behind one that has a group: the next, or the next two in the steady phase."""
    following = steps[index + 1 : index + 3]
    return following if following and following[0].phase == "steady" else following[:1]


def _overlapped(builder: ProgramBuilder, pipeline: Pipeline, stage: int, passes: Sequence[_Pass]) -> None:
    """Send behind each pass and receive for the next one in the same direction, beside all others."""
    rank, steps = pipeline.ranks[stage], [step for step, _ in passes]
    builder.join_all(pipeline.incoming(stage, steps[0]), rank, f"{steps[0].direction}-recv")
    back = next(step for step in steps if step.direction == "backward")
    begun = next(index for index, step in enumerate(steps) if step.phase != "warm-up")
    under_way: dict[Direction, list[int]] = {}
    for index, ((step, run), following) in enumerate(zip(passes, _next_alike(steps), strict=True)):
        if index == begun:
            calls = pipeline.incoming(stage, back)
            under_way["backward"] = _post(builder, calls, rank, _EXCHANGE["backward"])
        builder.wait(rank, under_way.pop(step.direction, ()))
        run(step)
        if step.direction != "weight":
            calls = pipeline.outgoing(stage, step)
            if following is not None:
                calls += pipeline.incoming(stage, following)
            under_way[step.direction] = _post(builder, calls, rank, _EXCHANGE[step.direction])
    for ops in under_way.values():
        builder.wait(rank, ops)


def _post(builder: ProgramBuilder, calls: Sequence[int], rank: int, timer: str) -> list[int]:
    """Join calls beside whatever the rank does next."""
    after = builder.last(rank)
    return [builder.join(call, rank, timer, stream=OVERLAPPED_STREAM, after=after) for call in calls]


def _next_alike(steps: Sequence[Step]) -> list[Step | None]:
    """Return the next pass in the same direction behind each pass."""
    found: list[Step | None] = []
    later: dict[Direction, Step] = {}
    for step in reversed(steps):
        found.append(later.get(step.direction))
        later[step.direction] = step
    return found[::-1]
