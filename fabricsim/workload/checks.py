"""What a job must fulfil beyond its types before it can be compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import Mistake
from fabricsim.workload.shapes import decoder_layers

if TYPE_CHECKING:
    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job


def job_mistakes(job: Job, gpu: Gpu) -> list[Mistake]:
    """Find everything that keeps a job from being compiled for a GPU type.

    Parameters
    ----------
    job, gpu
        Valid each for itself.

    Returns
    -------
    list of Mistake
        Empty where all is well.
    """
    found = [_batch(job), _stages(job), _heads(job), _positions(job), _peak(job, gpu), _buckets(job)]
    return [mistake for mistake in found if mistake is not None]


def _batch(job: Job) -> Mistake | None:
    at_once = job.micro_batch * job.parallelism.data
    if job.global_batch % at_once == 0:
        return None
    problem = f"{job.global_batch} sequences are not a multiple of micro_batch * data = {at_once}"
    lower = job.global_batch // at_once * at_once
    way_out = f"write {lower} or {lower + at_once}" if lower else f"write {at_once}"
    return Mistake("job.global_batch", problem, way_out)


def _stages(job: Job) -> Mistake | None:
    layers = job.model.layers + decoder_layers(job.model)
    if job.parallelism.pipeline <= layers:
        return None
    problem = f"{job.parallelism.pipeline} stages, but {job.model.name} has only {layers} layers"
    return Mistake("job.parallelism.pipeline", problem, f"write at most {layers}")


def _heads(job: Job) -> Mistake | None:
    model = job.model
    if model.head_width is not None or model.hidden % model.heads == 0:
        return None
    problem = f"{model.heads} heads do not divide hidden = {model.hidden}"
    return Mistake("job.model.heads", problem, "choose a divisor, or give head_width")


def _positions(job: Job) -> Mistake | None:
    # T5 tells positions apart by distance only, so it has no longest sequence.
    if job.model.family == "t5" or job.sequence <= job.model.positions:
        return None
    problem = f"{job.sequence} tokens, but {job.model.name} has only {job.model.positions} positions"
    return Mistake("job.sequence", problem, f"write at most {job.model.positions} or add positions")


def _peak(job: Job, gpu: Gpu) -> Mistake | None:
    if gpu.peak.get(job.precision, 0) > 0:
        return None
    known = ", ".join(sorted(name for name, rate in gpu.peak.items() if rate > 0)) or "none"
    problem = f"{gpu.name} has no peak for {job.precision}; it has {known}"
    return Mistake("job.precision", problem, f"choose one, or give cluster.gpu.peak.{job.precision}")


def _buckets(job: Job) -> Mistake | None:
    if job.overlap == "none" or min(job.bucket, job.first_bucket) > 0:
        return None
    key = "job.bucket" if job.bucket == 0 else "job.first_bucket"
    return Mistake(key, "a bucket of 0 bytes holds nothing", 'write a size such as "25MiB"')
