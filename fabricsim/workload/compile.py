"""A training job compiled to the program of one iteration.

Rank ``stage * data + index`` is replica ``index`` of a stage: data-parallel groups are contiguous
and pipelines span the job, as Megatron-LM lays them out. Timers carry Megatron-LM's names.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fabricsim.errors import InputError, ScenarioError
from fabricsim.spec.job_checks import job_problems, peak_problems
from fabricsim.tables import OVERLAPPED_STREAM
from fabricsim.units import PS_PER_S, human_bytes, human_seconds, seconds
from fabricsim.workload.data_parallel import gradient_buckets
from fabricsim.workload.operations import gradient_bytes
from fabricsim.workload.pipeline_parallel import Pipeline, run_stage
from fabricsim.workload.program import Call, Program, ProgramBuilder
from fabricsim.workload.schedules import schedule
from fabricsim.workload.shapes import embedding_stages
from fabricsim.workload.stages import plan_stages

if TYPE_CHECKING:
    from fabricsim.spec.cluster import Gpu
    from fabricsim.spec.job import Job
    from fabricsim.workload.data_parallel import Bucket
    from fabricsim.workload.schedules import Step
    from fabricsim.workload.stages import Stage

TIMERS = (
    "forward-compute",
    "forward-recv",
    "forward-send",
    "backward-compute",
    "backward-recv",
    "backward-send",
    "forward-send-backward-recv",
    "backward-send-forward-recv",
    "params-all-reduce",
    "embedding-all-reduce",
    "optimizer",
)
"""Names under which time is booked."""

LONGEST = 10**6 * PS_PER_S
"""Time that an iteration may compute for, ps: 12 days, a tenth of what 64 bits hold."""

LARGEST = 2**50
"""Bytes of one message or buffer."""


def compile_job(job: Job, gpu: Gpu) -> Program:
    """Compile one iteration of a training job.

    Parameters
    ----------
    job
        The job.
    gpu
        The GPU type that all its ranks have.

    Returns
    -------
    Program
        Over ranks ``0 .. data * pipeline - 1``. Calls have dimension ``"data"``, ``"pipeline"`` or
        ``"embedding"``; groups of one rank communicate nothing.

    Raises
    ------
    ScenarioError
        Where the job does not fit together (one in a `Scenario` does): all mistakes at once.
    InputError
        Where its times or sizes are out of all proportion.
    """
    if mistakes := [*job_problems(job), *peak_problems(job, gpu)]:
        raise ScenarioError(mistakes)
    return _Compiler(job, gpu).program()


class _Compiler:
    """Adds the ops of one iteration to a builder, stage by stage and replica by replica."""

    def __init__(self, job: Job, gpu: Gpu) -> None:
        self.job = job
        self.data, self.stages = job.parallelism.data, plan_stages(job, gpu)
        self.micro_batches = job.global_batch // (job.micro_batch * self.data)
        self.refuse_what_no_engine_holds(gpu)
        self.builder = ProgramBuilder(TIMERS)
        # The last bucket of each rank; what touches its gradients next has to wait for it.
        self.pending: dict[int, tuple[int, ...]] = {}

    def refuse_what_no_engine_holds(self, gpu: Gpu) -> None:
        """Refuse times and sizes that 64-bit integers could not hold once they add up."""
        model = self.job.model.name
        passes = sum(stage.forward + stage.backward for stage in self.stages)
        computing = self.micro_batches * passes + max(stage.optimizer for stage in self.stages)
        if computing > LONGEST:
            span, limit = human_seconds(seconds(computing)), human_seconds(seconds(LONGEST))
            msg = f"an iteration of {model} would compute for {span} on {gpu.name}, more than {limit}"
            msg += "; look for a slip in job and cluster.gpu"
            raise InputError(msg)
        size = max(max(stage.gradient_bytes, stage.message) for stage in self.stages)
        if size > LARGEST:
            msg = f"a stage of {model} would send {human_bytes(size)} at once, more than {human_bytes(LARGEST)}"
            msg += "; look for a slip in job"
            raise InputError(msg)

    def program(self) -> Program:
        """Compile."""
        sizes = [stage.message for stage in self.stages]
        pipelines = [Pipeline(self.builder, self.ranks_of(index), sizes) for index in range(self.data)]
        for number in range(len(self.stages)):
            self.passes(number, pipelines)
            self.reduce_after_backward(number)
        self.reduce_embeddings()
        for number, stage in enumerate(self.stages):
            for rank in self.group(number):
                self.builder.compute(rank, stage.optimizer, "optimizer", after=self.pending.get(rank, ()))
        return self.builder.build()

    def group(self, stage: int) -> tuple[int, ...]:
        """Return the ranks of a stage, one per replica."""
        return tuple(range(stage * self.data, (stage + 1) * self.data))

    def ranks_of(self, index: int) -> tuple[int, ...]:
        """Return the ranks of a replica, one per stage."""
        return tuple(range(index, len(self.stages) * self.data, self.data))

    def passes(self, number: int, pipelines: list[Pipeline]) -> None:
        """Add all forward and backward passes of a stage."""
        stage = self.stages[number]
        steps = schedule(self.job.schedule, number, len(self.stages), self.micro_batches)
        buckets = [(bucket, self.all_reduce(number, bucket.size)) for bucket in self.buckets(stage)]
        for rank, pipeline in zip(self.group(number), pipelines, strict=True):
            compute = partial(self.compute, rank, stage)
            last = partial(self.overlapped_backward, rank, stage, buckets) if buckets else compute
            run_stage(self.builder, pipeline, number, steps, [compute] * (len(steps) - 1) + [last])

    def compute(self, rank: int, stage: Stage, step: Step) -> None:
        """Add a whole pass."""
        duration = stage.forward if step.direction == "forward" else stage.backward
        self.builder.compute(rank, duration, f"{step.direction}-compute")

    def buckets(self, stage: Stage) -> list[Bucket]:
        """Return the buckets to all-reduce during the last backward pass; none where it does not overlap."""
        if self.job.overlap == "none" or self.data == 1:
            return []
        return gradient_buckets(stage.gradients, self.job.first_bucket, self.job.bucket)

    def overlapped_backward(self, rank: int, stage: Stage, buckets: list[tuple[Bucket, int]], step: Step) -> None:
        """Add the last backward pass block by block, and each bucket beside it once it is full.

        Sends behind it go ahead: gradients are waited for after the schedule, as in Megatron Core.
        """
        done = {}
        for block in reversed(range(len(stage.times))):
            done[block] = self.builder.compute(rank, stage.times[block].backward, f"{step.direction}-compute")
        for bucket, call in buckets:
            after = (done[bucket.block], *self.pending.get(rank, ()))
            op = self.builder.join(call, rank, "params-all-reduce", stream=OVERLAPPED_STREAM, after=after)
            self.pending[rank] = (op,)

    def reduce_after_backward(self, number: int) -> None:
        """All-reduce all gradients of a stage in one piece, unless buckets did."""
        if self.job.overlap == "ddp" or self.data == 1:
            return
        call = self.all_reduce(number, self.stages[number].gradient_bytes)
        for rank in self.group(number):
            self.builder.join(call, rank, "params-all-reduce")

    def reduce_embeddings(self) -> None:
        """All-reduce the word embedding's gradient over the stages that hold a copy of it."""
        holders = embedding_stages(self.job.model, len(self.stages))
        if len(holders) == 1:
            return
        size = self.job.model.vocabulary * self.job.model.hidden * gradient_bytes(self.job)
        for index in range(self.data):
            ranks = tuple(stage * self.data + index for stage in holders)
            call = self.builder.call(Call("all_reduce", ranks, size, "embedding"))
            for rank in ranks:
                self.builder.join(call, rank, "embedding-all-reduce", after=self.pending.get(rank, ()))

    def all_reduce(self, stage: int, size: int) -> int:
        """Register an all-reduce over the replicas of a stage."""
        return self.builder.call(Call("all_reduce", self.group(stage), size, "data"))
