"""Several jobs on one cluster: which ranks each has, and when it begins."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from fabricsim.scenario.job import Job
from fabricsim.scenario.quantity import Duration
from fabricsim.scenario.variation import Numbers, stream


class PlacedJob(Job):
    """One of several jobs, laid over ``job`` of its scenario.

    ``ranks`` of the cluster are its ranks 0, 1, ...; without them ``placement`` chooses among those that are free, job
    by job: the first (``"packed"``), ones at equal distances (``"spread"``) or any (``"random"``). Jobs that fill whole
    hosts get whole hosts.
    """

    ranks: Numbers | None = None
    placement: Literal["packed", "spread", "random"] = "packed"
    start: Duration = 0


def placed(jobs: Mapping[str, PlacedJob], hosts: int, gpus_per_host: int, seed: int) -> dict[str, tuple[int, ...]]:
    """Give each job its ranks of the cluster, those with given ranks first.

    `jobs`: by name; together they have no more ranks than there are.
    `seed`: of random placements.
    """
    found = {name: given(job) for name, job in jobs.items() if job.ranks is not None}
    taken = {rank for ranks in found.values() for rank in ranks}
    free = [rank for rank in range(hosts * gpus_per_host) if rank not in taken]
    for name, job in jobs.items():
        if job.ranks is None:
            found[name] = _chosen(name, job, free, gpus_per_host, seed)
            taken = set(found[name])
            free = [rank for rank in free if rank not in taken]
    return {name: found[name] for name in jobs}


def given(job: PlacedJob) -> tuple[int, ...]:
    """List the ranks of a job that are given."""
    return tuple(rank for place in job.ranks or () for rank in place.numbers)


def _chosen(name: str, job: PlacedJob, free: list[int], per_host: int, seed: int) -> tuple[int, ...]:
    """Choose among the free ranks: hosts all of whose GPUs are free if the job fills such, else GPUs."""
    wanted = job.parallelism.ranks
    whole = [rank for rank in free if rank % per_host == 0 and set(range(rank, rank + per_host)) <= set(free)]
    if wanted % per_host == 0 and len(whole) * per_host >= wanted:
        units, width = whole, per_host
    else:
        units, width = free, 1
    count = wanted // width
    if job.placement == "random":
        order = np.argsort(stream(seed, f"placement of {name}").random(len(units)), kind="stable")[:count]
        places: list[int] = order.tolist()
    else:
        step = len(units) if job.placement == "spread" else count
        places = [place * step // max(count, 1) for place in range(count)]
    return tuple(units[place] + gpu for place in places for gpu in range(width))
