"""A job whose ranks do not all run on the same: each takes the time of its own GPU and host."""

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabricsim.scenario.job import Job
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.links import Links
from fabricsim.workload.machines import Machines, at_speed, on_host
from fabricsim.workload.program import Program


class MixedPlan(JobPlan):
    """A job before its ops are written out.

    `job`: the job.
    `machines`: what each of its ranks runs on.
    `links`: as of `fabricsim.workload.compile.JobPlan`.
    """

    def __init__(self, job: Job, machines: Machines, links: Links | None = None) -> None:
        speeds, self._class = machines.classes()
        self._variants = [
            JobPlan(on_host(job, speed.host), at_speed(machines.gpus[speed.kind], speed.gpu), links) for speed in speeds
        ]
        super().__init__(job, machines.gpus[0], links)
        self.machines = machines

    def on(self, rank: int) -> JobPlan:
        """Return the plan of a job all ranks of which run on what this one has."""
        return self._variants[int(self._class[rank])]

    @property
    def alike(self) -> bool:
        """Ranks of a stage differ."""
        return False

    @cached_property
    def colours(self) -> NDArray[np.int32]:
        """Pipeline stage, and what a rank runs on; with jitter all differ. Shape ``(ranks,)``."""
        if self.machines.jitters:
            return np.arange(self.ranks, dtype=np.int32)
        both = self.placement.stages.astype(np.int64) * len(self._variants) + self._class
        return both.astype(np.int32)

    def program(self, ranks: Collection[int] | None = None) -> Program:
        """Write out the ops of some ranks, or of all."""
        program = super().program(ranks)
        return replace(program, ops=self.machines.jittered(program.ops))


def plan_job(job: Job, machines: Machines, links: Links | None = None) -> JobPlan:
    """Plan a job on what its ranks run on; errors as of `fabricsim.workload.compile.JobPlan`.

    `links`: as of `fabricsim.workload.compile.JobPlan`.
    """
    if links is not None:
        links = links._replace(hosts=tuple(machines.host_of.tolist()))
    return JobPlan(job, machines.gpus[0], links) if machines.alike else MixedPlan(job, machines, links)
