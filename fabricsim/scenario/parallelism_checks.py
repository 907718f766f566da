"""Checks of the settings of a job's parallelism against its batch and one another."""

from collections.abc import Callable, Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.job import DIMENSIONS, SHARDED_DEGREES, SHARDED_KEYS, UNSHARDED_KEYS, Job, micro_batches
from fabricsim.scenario.schedule import SCHEDULES

_KEY = "job.parallelism"


def _order(job: Job) -> Iterator[Mistake]:
    order = job.parallelism.order
    if sorted(order.split("-")) != sorted(DIMENSIONS):
        problem = f"{order!r} does not name each dimension once"
        yield Mistake(f"{_KEY}.order", problem, f"such as {'-'.join(DIMENSIONS)!r}, the innermost first")


def _context_method(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    if degrees.context == 1 and "context_method" in degrees.model_fields_set:
        yield Mistake(f"{_KEY}.context_method", "has no effect with context = 1", "take it out, or raise context")


def _virtual(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    if degrees.virtual_stages == 1:
        if job.pipeline_overlap:
            problem = "is for the interleaved schedule: with virtual_stages = 1 it has no effect"
            yield Mistake("job.pipeline_overlap", problem, "take it out, or raise virtual_stages")
        return
    if degrees.pipeline == 1:
        yield Mistake(f"{_KEY}.virtual_stages", "has no effect with pipeline = 1", "take it out, or raise pipeline")
        return
    schedule = SCHEDULES.find(job.schedule)
    if schedule is not None and not schedule.interleaves:
        problem = f"a schedule of {job.schedule!r} is not interleaved"
        yield Mistake(f"{_KEY}.virtual_stages", problem, 'set it to 1, or schedule = "1f1b"')
    batches = micro_batches(job)
    if batches % degrees.pipeline:
        problem = f"{batches} micro-batches per replica are no multiple of the {degrees.pipeline} stages"
        yield Mistake(f"{_KEY}.virtual_stages", problem, "change job.global_batch: the interleaved schedule needs it")


def _scatter_gather(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    if not degrees.scatter_gather:
        return
    if degrees.sequence_parallel:
        problem = "has no effect: with sequence_parallel each rank sends its part anyway"
        yield Mistake(f"{_KEY}.scatter_gather", problem, "take it out")
    elif min(degrees.tensor, degrees.pipeline) == 1:
        yield Mistake(f"{_KEY}.scatter_gather", "has no effect without tensor and pipeline ranks", "take it out")


def _zero(job: Job) -> Iterator[Mistake]:
    degrees, written = job.parallelism, job.model_fields_set
    if degrees.zero and not degrees.reduces:
        yield Mistake(f"{_KEY}.zero", "has no effect with data = 1: there is nobody to share with", "take it out")
    if not degrees.fully_sharded:
        for key in SHARDED_KEYS:
            if key in written:
                yield Mistake(f"job.{key}", "has no effect unless zero = 3", "take it out")
        for key in SHARDED_DEGREES:
            if key in degrees.model_fields_set:
                yield Mistake(f"{_KEY}.{key}", "has no effect unless zero = 3", "take it out")
    else:
        problem = "has no effect with zero = 3, which gathers and reduces block by block"
        for key in UNSHARDED_KEYS:
            if key in written:
                yield Mistake(f"job.{key}", problem, "take it out")


def _replicate(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    ranks = degrees.data * degrees.context
    if degrees.replicate > 1 and (ranks % degrees.replicate or ranks == degrees.replicate):
        problem = f"{degrees.replicate} groups cannot share out parameters among {ranks} data-parallel ranks"
        fitting = [str(degree) for degree in range(1, ranks) if ranks % degree == 0]
        yield Mistake(f"{_KEY}.replicate", problem, f"one of {', '.join(fitting) or '1'}")
    elif degrees.replicate > 1 and degrees.expert > 1:
        yield Mistake(f"{_KEY}.replicate", "is not modelled with experts over several ranks", "set one of both to 1")


PARALLELISM_CHECKS: tuple[Callable[[Job], Iterator[Mistake]], ...] = (
    _order,
    _context_method,
    _virtual,
    _scatter_gather,
    _zero,
    _replicate,
)
"""Each finds what keeps a job from being compiled, or has no effect."""
