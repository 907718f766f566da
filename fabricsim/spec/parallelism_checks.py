"""Checks of a job's degrees of parallelism against its model, its batch and one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import Mistake
from fabricsim.spec.job import DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabricsim.spec.job import Job

_KEY = "job.parallelism"


def _divides(degree: str, divisor: int, name: str, value: int) -> Iterator[Mistake]:
    if value % divisor:
        problem = f"{divisor} does not divide {name} {value}"
        yield Mistake(f"{_KEY}.{degree}", problem, f"choose a divisor of {value}")


def _order(job: Job) -> Iterator[Mistake]:
    order = job.parallelism.order
    if sorted(order.split("-")) != sorted(DIMENSIONS):
        problem = f"{order!r} does not name each dimension once"
        yield Mistake(f"{_KEY}.order", problem, f"such as {'-'.join(DIMENSIONS)!r}, the innermost first")


def _tensor(job: Job) -> Iterator[Mistake]:
    degree, model = job.parallelism.tensor, job.model
    yield from _divides("tensor", degree, "job.model.heads", model.heads)
    if model.kv_heads is not None:
        yield from _divides("tensor", degree, "job.model.kv_heads", model.kv_heads)
    inner = model.feed_forward if model.feed_forward is not None else 4 * model.hidden
    yield from _divides("tensor", degree, "the feed-forward width", inner)
    if model.vocabulary % degree:
        padded = -(-model.vocabulary // (128 * degree)) * 128 * degree
        problem = f"{model.vocabulary} words cannot be shared by {degree} tensor-parallel ranks"
        yield Mistake("job.model.vocabulary", problem, f"pad it to {padded}, as Megatron-LM does")


def _sequence(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    if degrees.sequence_parallel and degrees.tensor == 1:
        yield Mistake(f"{_KEY}.sequence_parallel", "has no effect with tensor = 1", "take it out, or raise tensor")
    parts = degrees.context * (degrees.tensor if degrees.sequence_parallel else 1)
    for key in ("sequence", "decoder_sequence"):
        tokens = getattr(job, key)
        if tokens is not None and tokens % parts:
            problem = f"{tokens} tokens cannot be split into {parts} equal parts (context, and tensor with"
            yield Mistake(f"job.{key}", f"{problem} sequence_parallel)", f"such as {-(-tokens // parts) * parts}")


def _context(job: Job) -> Iterator[Mistake]:
    degrees, model = job.parallelism, job.model
    if degrees.context == 1:
        if "context_method" in degrees.model_fields_set:
            yield Mistake(f"{_KEY}.context_method", "has no effect with context = 1", "take it out, or raise context")
        return
    if model.family not in {"gpt", "llama"}:
        problem = f"is for causal models: a {model.family} cannot split its sequences"
        yield Mistake(f"{_KEY}.context", problem, "set it to 1, or use tensor")
    elif degrees.context_method == "ulysses" and model.heads // degrees.tensor % degrees.context:
        problem = f"Ulysses cannot share {model.heads // degrees.tensor} heads among {degrees.context} ranks"
        yield Mistake(f"{_KEY}.context", problem, 'lower it, or set context_method = "ring"')


def _expert(job: Job) -> Iterator[Mistake]:
    degrees, experts = job.parallelism, job.model.experts
    if experts is not None:
        yield from _divides("expert", degrees.expert, "job.model.experts.count", experts.count)
        yield from _divides("expert", degrees.expert, "job.parallelism.data", degrees.data)
        return
    if degrees.expert > 1:
        problem = f"the model {job.model.name!r} has no experts to spread"
        yield Mistake(f"{_KEY}.expert", problem, "set it to 1, or add job.model.experts")
    for key in ("capacity_factor", "expert_imbalance"):
        if key in job.model_fields_set:
            yield Mistake(f"job.{key}", "has no effect: the model has no experts", "take it out")


def _virtual(job: Job) -> Iterator[Mistake]:
    degrees = job.parallelism
    if degrees.virtual_stages == 1:
        return
    if degrees.pipeline == 1:
        yield Mistake(f"{_KEY}.virtual_stages", "has no effect with pipeline = 1", "take it out, or raise pipeline")
        return
    if job.schedule != "1f1b":
        problem = f"a schedule of {job.schedule!r} is not interleaved"
        yield Mistake(f"{_KEY}.virtual_stages", problem, 'set it to 1, or schedule = "1f1b"')
    batches = job.global_batch // (job.micro_batch * degrees.data)
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
    if degrees.zero and degrees.data * degrees.context == 1:
        yield Mistake(f"{_KEY}.zero", "has no effect with data = 1: there is nobody to share with", "take it out")
    if "prefetch" in written and degrees.zero != 3:  # noqa: PLR2004  its usual name
        yield Mistake("job.prefetch", "has no effect unless zero = 3", "take it out")
    if degrees.zero == 3:  # noqa: PLR2004
        problem = "has no effect with zero = 3, which gathers and reduces block by block"
        for key in ("overlap", "bucket", "first_bucket"):
            if key in written:
                yield Mistake(f"job.{key}", problem, "take it out")


PARALLELISM_CHECKS: tuple[Callable[[Job], Iterator[Mistake]], ...] = (
    _order,
    _tensor,
    _sequence,
    _context,
    _expert,
    _virtual,
    _scatter_gather,
    _zero,
)
"""Each finds what keeps a job from being compiled, or has no effect."""
