"""Checks of a job by itself and against a GPU type: what keeps it from being compiled.

As in `fabricsim.spec.checks`, asking a job with other mistakes for a value that is not settled ends
the check that asked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fabricsim.errors import Mistake
from fabricsim.spec.parallelism_checks import PARALLELISM_CHECKS
from fabricsim.spec.partial import settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job

MOST_MICRO_BATCHES = 1_000_000
"""Micro-batches of all ranks together in one iteration; each becomes several operations of some 500 bytes."""

MOST_LAYERS = 100_000
"""Layers of a model, encoder and decoder together."""


def job_problems(job: Job) -> list[Mistake]:
    """Find what does not fit together in a job.

    Parameters
    ----------
    job
        A job, or a `Partial` that stands in for one with other mistakes.

    Returns
    -------
    list of Mistake
        Without places; empty where all fits.
    """
    return settled(partial(check, job) for check in _CHECKS)


def peak_problems(job: Job, gpu: Gpu) -> list[Mistake]:
    """Find out whether a GPU can compute in the job's precision.

    Parameters
    ----------
    job, gpu
        Or a `Partial` that stands in for either.

    Returns
    -------
    list of Mistake
        Empty, or one.

    Raises
    ------
    Unsettled
        Where `job` or `gpu` has a mistake in what decides this.
    """
    if job.precision in gpu.peak:
        return []
    known = ", ".join(gpu.peak) or "none"
    problem = f"the GPU {gpu.name!r} has no peak for {job.precision!r} (it has {known})"
    return [Mistake("job.precision", problem, "choose one of those, or add it to cluster.gpu.peak")]


def _batch(job: Job) -> Iterator[Mistake]:
    step = job.micro_batch * job.parallelism.data
    if job.global_batch % step:
        problem = f"{job.global_batch} is no multiple of micro_batch {job.micro_batch} x data {job.parallelism.data}"
        nearest = max(1, round(job.global_batch / step)) * step
        yield Mistake("job.global_batch", problem, f"such as {nearest}")
    elif job.global_batch // job.micro_batch * job.parallelism.pipeline > MOST_MICRO_BATCHES:
        problem = f"{job.global_batch} makes more than {MOST_MICRO_BATCHES} micro-batches over all ranks"
        yield Mistake("job.global_batch", problem, "lower it, or raise job.micro_batch")


def _stages(job: Job) -> Iterator[Mistake]:
    model, stages = job.model, job.parallelism.pipeline * job.parallelism.virtual_stages
    layers, what = model.layers, f"{model.layers} layers"
    if model.family == "t5":
        layers += model.decoder_layers or 0
        what = f"{model.layers} encoder and {model.decoder_layers} decoder layers"
    if layers > MOST_LAYERS:
        yield Mistake("job.model.layers", f"{what} are too many", f"at most {MOST_LAYERS}")
    elif layers % stages and (model.family == "t5" or (layers + 2) % stages or layers + 2 < 2 * stages):
        fitting = [str(degree) for degree in range(1, layers + 1) if layers % degree == 0]
        problem = f"{what} cannot be shared evenly by {stages} stages"
        yield Mistake("job.parallelism.pipeline", problem, f"one of {', '.join(fitting)}")


def _decoder(job: Job) -> Iterator[Mistake]:
    family = job.model.family
    for table, key in (("job.model", "decoder_layers"), ("job", "decoder_sequence")):
        value = getattr(job if table == "job" else job.model, key)
        if family == "t5" and value is None:
            yield Mistake(f"{table}.{key}", "is missing: a t5 has a decoder", "add it")
        if family != "t5" and value is not None:
            yield Mistake(f"{table}.{key}", f"has no effect: a {family} has no separate decoder", "take it out")


def _positions(job: Job) -> Iterator[Mistake]:
    limit = job.model.positions
    for key in ("sequence", "decoder_sequence"):
        value = getattr(job, key)
        if value is not None and value > limit:
            problem = f"{value} is longer than the {limit} positions of the model {job.model.name!r}"
            yield Mistake(f"job.{key}", problem, f"at most {limit}, or raise job.model.positions")


def _heads(job: Job) -> Iterator[Mistake]:
    model = job.model
    if model.head_width is None and model.hidden % model.heads:
        problem = f"hidden {model.hidden} is no multiple of {model.heads} heads"
        yield Mistake("job.model.heads", problem, "or set job.model.head_width")


_CHECKS: tuple[Callable[[Job], Iterator[Mistake]], ...] = (
    _batch,
    _stages,
    _decoder,
    _positions,
    _heads,
    *PARALLELISM_CHECKS,
)
