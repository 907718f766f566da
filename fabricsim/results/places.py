"""The place of each rank in the parallel dimensions of its job."""

from collections.abc import Iterable

from fabricsim.results.breakdown import rank_count
from fabricsim.results.result import RunRecord

_SHORT = {"tensor": "TP", "context": "CP", "data": "DP", "pipeline": "PP"}
_MOST_DEGREE = 2**20


def places(result: RunRecord) -> list[tuple[str, int, int]]:
    """Give the dimensions that a job has: short name, degree, and how many ranks lie between two neighbours.

    Rank ``r`` is at ``r // between % degree``, counted with the innermost dimension first. Empty of a trace, of several
    jobs, and if the degrees do not make up the ranks.
    """
    job = result.resolved.get("job")
    parallelism = job.get("parallelism") if isinstance(job, dict) and result.capture is None else None
    if not isinstance(parallelism, dict) or result.jobs:
        return []
    order = parallelism.get("order", "-".join(_SHORT))
    names = order.split("-") if isinstance(order, str) else []
    found, between = [], 1
    for name in names:
        degree = parallelism.get(name, 1)
        if name not in _SHORT or type(degree) is not int or not 0 < degree <= _MOST_DEGREE:
            return []
        if degree > 1:
            found.append((_SHORT[name], degree, between))
        between *= degree
    return found if between == rank_count(result) else []


def place_of(found: list[tuple[str, int, int]], rank: int) -> str:
    """Say where a rank is, such as ``TP 0, DP 3, PP 1``; empty if that is not known."""
    return ", ".join(f"{name} {rank // between % degree}" for name, degree, between in found)


def jobs_of_ranks(result: RunRecord) -> dict[int, str]:
    """Name the job of each rank, if there are several."""
    job_of: dict[int, str] = {}
    for job in result.jobs if len(result.jobs) > 1 else ():
        job_of |= dict.fromkeys(result.ops["rank"][job.first_op : job.first_op + job.ops].tolist(), job.name)
    return job_of


def short_names(result: RunRecord, ranks: Iterable[int]) -> list[str]:
    """Name ranks with their places in few letters, such as ``5 TP1 DP0 PP1``; of several jobs with their own."""
    found, job_of = places(result), jobs_of_ranks(result)
    names = []
    for rank in ranks:
        parts = [f"{name}{rank // between % degree}" for name, degree, between in found]
        names.append(" ".join([str(rank), *parts, job_of.get(rank, "")]).strip())
    return names
