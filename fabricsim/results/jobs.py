"""Several jobs of one run: which part of the result is whose, and what became of each."""

from dataclasses import replace
from typing import TypedDict

import numpy as np

from fabricsim.records.program import NONE
from fabricsim.results.breakdown import critical_rank, iteration_parts
from fabricsim.results.causes import Cause, causes
from fabricsim.results.result import CallRecords, JobRecord, Limits, RunRecord
from fabricsim.units import seconds

FIRST = 3
"""Causes of a job in a summary; `of_job` gives the rest."""


class JobSummary(TypedDict):
    """One of several jobs of a run.

    ``ranks`` are how many it has, ``start_s`` when it began; of its own iteration the time, where that of its critical
    rank goes, and the first causes along its critical path.
    """

    name: str
    ranks: int
    start_s: float
    iteration_time_s: float
    critical_rank: int
    compute_s: float
    exposed_communication_s: float
    bubble_s: float
    causes: list[Cause]


def of_job(result: RunRecord, job: JobRecord) -> RunRecord:
    """Take one job out of a run: its ops and calls, with times since it began; links are those of the whole run."""
    ops = result.ops[job.first_op : job.first_op + job.ops].copy()
    ops["call"] = np.where(ops["call"] == NONE, NONE, ops["call"] - job.first_call)
    spans = result.spans[job.first_op : job.first_op + job.ops].copy()
    for side in ("start", "end"):
        spans[side] -= job.start
    some = slice(job.first_call, job.first_call + job.calls)
    of = result.calls
    limits = Limits._make(column[some] for column in of.limits)
    copies = None if of.copies is None else of.copies[some]
    calls = CallRecords(of.kinds, of.kind[some], of.start[some] - job.start, of.end[some] - job.start, limits, copies)
    failures = result.failures.copy()
    for side in ("start", "end"):
        failures[side] -= job.start
    return replace(result, ops=ops, spans=spans, calls=calls, iteration=job.end - job.start, failures=failures)


def of_longest(result: RunRecord) -> RunRecord:
    """Take the job out of a run that takes longest from its own start; the run itself if all begin with it."""
    if not any(job.start for job in result.jobs):
        return result
    return of_job(result, max(result.jobs, key=lambda job: job.end - job.start))


def of_ranks(result: RunRecord) -> dict[int, RunRecord]:
    """Give by rank its job, from its own start; empty if all jobs begin with the run."""
    if not any(job.start for job in result.jobs):
        return {}
    jobs = [of_job(result, job) for job in result.jobs]
    return {rank: own for own in jobs for rank in np.unique(own.ops["rank"]).tolist()}


def summarise_jobs(result: RunRecord) -> list[JobSummary]:
    """Summarise each job of a run by itself, in the order of the scenario."""
    summaries: list[JobSummary] = []
    for job in result.jobs:
        own = of_job(result, job)
        parts = iteration_parts(own)
        summaries.append(
            {
                "name": job.name,
                "ranks": len(np.unique(own.ops["rank"])),
                "start_s": seconds(job.start),
                "iteration_time_s": seconds(own.iteration),
                "critical_rank": critical_rank(own),
                "compute_s": seconds(parts.compute),
                "exposed_communication_s": seconds(parts.exposed_communication),
                "bubble_s": seconds(parts.bubble),
                "causes": causes(own)[:FIRST],
            }
        )
    return summaries
