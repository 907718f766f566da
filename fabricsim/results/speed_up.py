"""How much faster runs are than the slowest of them, for the work that they do."""

from collections.abc import Mapping, Sequence
from typing import Any

from fabricsim.results.breakdown import iteration_parts
from fabricsim.results.result import RunRecord

_BATCH = ("global_batch", "sequence", "decoder_sequence")
"""Keys of a job that say how many tokens an iteration has."""


def speed_ups(results: Sequence[RunRecord], job: str = "") -> list[float | None]:
    """Divide the rate of each run by that of the slowest.

    The rate is tokens per second if iterations differ in their tokens, else iterations per second.

    `results`: at least one.
    `job`: name of the job that they are of, if each is one of several.
    Returns: None for all if they cannot be compared: their models differ, or it is not known how many tokens they have.
    """
    work = _relative_work(results, job)
    if work is None:
        return [None] * len(results)
    times = [iteration_parts(result).iteration / each for result, each in zip(results, work, strict=True)]
    slowest = max(times)
    return [slowest / time for time in times]


def _relative_work(results: Sequence[RunRecord], name: str) -> list[float] | None:
    """Say how many times as much each run does as the first; None if that is not known."""
    if all(result.capture is not None for result in results):
        return [1.0] * len(results)  # a trace on several fabrics
    if any(result.capture is not None for result in results):
        return None
    jobs = [_jobs(result.resolved, name) for result in results]
    if any([job.get("model") for job in each] != [job.get("model") for job in jobs[0]] for each in jobs):
        return None
    if all([_batch(job) for job in each] == [_batch(job) for job in jobs[0]] for each in jobs):
        return [1.0] * len(results)
    tokens = [None if result.work is None else result.work.tokens for result in results]
    known = [count for count in tokens if count]
    return [count / known[0] for count in known] if len(known) == len(tokens) else None


def _jobs(resolved: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Give the tables of the jobs that ran, or of that of a name."""
    several = resolved.get("jobs") or {"": resolved.get("job", {})}
    return [several[name]] if name in several else [*several.values()]


def _batch(job: Mapping[str, Any]) -> list[object]:
    return [job.get(key) for key in _BATCH]
