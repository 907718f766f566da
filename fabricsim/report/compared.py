"""Runs side by side: what is a row, and how much faster each is."""

from collections.abc import Sequence
from typing import NamedTuple

from fabricsim.results.jobs import of_job
from fabricsim.results.result import RunRecord
from fabricsim.results.speed_up import speed_ups
from fabricsim.results.summary import Summary, summarise, summarise_job


class SideBySide(NamedTuple):
    """A row of a comparison.

    `name`: what it is called.
    `result`, `summary`: the run, or one of its jobs.
    `speed`: against the slowest, if that can be said.
    """

    name: str
    result: RunRecord
    summary: Summary
    speed: float | None


def compared(results: Sequence[RunRecord], names: Sequence[str]) -> list[list[SideBySide]]:
    """Put runs side by side; if jobs begin later than the run, each job by itself, from its own start.

    `names`: of the runs.
    Returns: rows that are compared with one another: all, or those of each job.
    """
    if not any(job.start for result in results for job in result.jobs):
        speeds = speed_ups(results)
        return [[SideBySide(*row) for row in zip(names, results, map(summarise, results), speeds, strict=True)]]
    groups = []
    for name in dict.fromkeys(job.name for result in results for job in result.jobs):
        some = [
            (f"{label}, {name}", of_job(result, job))
            for label, result in zip(names, results, strict=True)
            for job in result.jobs
            if job.name == name
        ]
        speeds = speed_ups([own for _, own in some], name)
        groups.append(
            [
                SideBySide(label, own, summarise_job(own), speed)
                for (label, own), speed in zip(some, speeds, strict=True)
            ]
        )
    alone = [(label, result) for label, result in zip(names, results, strict=True) if not result.jobs]
    groups += compared([result for _, result in alone], [label for label, _ in alone]) if alone else []
    others = len(groups) > 1
    return [[group[0]._replace(speed=None)] if others and len(group) == 1 else group for group in groups]
