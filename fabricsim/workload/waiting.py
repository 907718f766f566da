"""Whether the stages of a user's schedule wait for each other for ever."""

from contextlib import suppress
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from fabricsim.errors import SimulationError
from fabricsim.extensions import is_ours, place_of
from fabricsim.records.program import NONE
from fabricsim.scenario.schedule import SCHEDULES, Schedule, Step
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.passes import named, ordered
from fabricsim.workload.pipeline_parallel import TIMERS, Pipeline, run_stage

_MOST_SAID = 3


def require_end(name: str, stages: int, micro_batches: int, chunks: int, *, overlap: bool) -> None:
    """Refuse a user's schedule whose stages wait for each other for ever.

    Arguments are those of `fabricsim.workload.passes.ordered`, and whether messages go beside other passes.
    Raises SimulationError as that does, and if stages wait for ever.
    """
    schedule = SCHEDULES.find(name)
    if schedule is not None and not is_ours(schedule.steps):
        _require_end(schedule, (name, stages, micro_batches, chunks), overlap=overlap)


@lru_cache(maxsize=64)
def _require_end(schedule: Schedule, sizes: tuple[str, int, int, int], *, overlap: bool) -> None:
    """Write out the passes and messages of one pipeline, and look for a circle among them."""
    name, stages, micro_batches, chunks = sizes
    builder = ProgramBuilder([*TIMERS, "pass"])
    pipeline = Pipeline(builder, range(stages), [1] * (stages * chunks), overlap=overlap)
    passes: dict[int, tuple[int, Step]] = {}
    for stage in range(stages):

        def compute(step: Step, stage: int = stage) -> None:
            passes[builder.compute(stage, 1, "pass")] = stage, step

        steps = ordered(name, stage, stages, micro_batches, chunks)
        run_stage(builder, pipeline, stage, steps, [compute] * len(steps))
    program = builder.build()
    both_ends = {op: ~call for op, call in enumerate(program.ops["call"].tolist()) if call != NONE}  # of one message
    order: TopologicalSorter[int] = TopologicalSorter()
    for op, (first, count) in enumerate(program.ops[["first_successor", "successors"]].tolist()):
        order.add(both_ends.get(op, op))
        for successor in program.successors[first : first + count].tolist():
            order.add(both_ends.get(successor, successor), both_ends.get(op, op))
    with suppress(CycleError):  # what is not in a circle, or behind one, comes all the same
        order.prepare()
    done: set[int] = set()
    while ready := order.get_ready():
        done.update(ready)
        order.done(*ready)
    held: dict[int, str] = {}
    for op, (stage, step) in passes.items():
        if op not in done:
            held.setdefault(stage, f"stage {stage} comes no further than the {named(step)}")
    if held:
        title = f"schedule {schedule.name} of {stages} stages and {micro_batches} micro-batches"
        stuck = ", ".join([*held.values()][:_MOST_SAID])
        msg = f"{place_of(schedule.steps)}{title}: stages wait for each other for ever: {stuck}; order passes as the "
        msg += "messages that they need come, or give those between which a stage sends and receives at once the phase "
        msg += "'steady'"
        raise SimulationError(msg)
