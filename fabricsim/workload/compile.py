"""A training job compiled to the program of one iteration. Timers carry Megatron-LM's names."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import InputError, ScenarioError
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job, micro_batches
from fabricsim.scenario.job_checks import job_problems, peak_problems
from fabricsim.scenario.schedule import Direction, Step
from fabricsim.units import human_bytes, human_seconds, seconds
from fabricsim.workload import data_parallel, pipeline_parallel
from fabricsim.workload.builder import ProgramBuilder, RankPattern, RepeatedOps
from fabricsim.workload.data_parallel import Reducer, make_reducer
from fabricsim.workload.lane import RankOps
from fabricsim.workload.links import Beside, Links
from fabricsim.workload.machines import LONGEST
from fabricsim.workload.optimizer import gradient_copies, optimizer_operations, parts_of_tensors
from fabricsim.workload.passes import has_weight_passes, ordered, without_other_direction
from fabricsim.workload.pipeline_parallel import Pipeline, held_by_receives, run_stage
from fabricsim.workload.placement import Placement
from fabricsim.workload.program import Call, GroupSet, Program
from fabricsim.workload.roofline import operations_time, rows_time
from fabricsim.workload.shapes import embedding_stages
from fabricsim.workload.stages import Stage, plan_stages
from fabricsim.workload.tape import gradient_bytes
from fabricsim.workload.waiting import require_end
from fabricsim.workload.work import Exchange

TIMERS = (
    "forward-compute",
    "backward-compute",
    "weight-compute",
    *pipeline_parallel.TIMERS,
    *data_parallel.TIMERS.values(),
    "embedding-all-reduce",
    "optimizer",
)
"""Names under which time is booked; exchanges within a layer count as computing, as in Megatron-LM."""

LARGEST = 2**50
"""Bytes of one message or buffer."""


class JobPlan:
    """A job before its ops are written out, a `fabricsim.workload.program.Plan`.

    Its calls have dimension ``"tensor"``, ``"context"``, ``"expert"``, ``"data"``, ``"pipeline"`` or ``"embedding"``;
    groups of one rank communicate nothing.

    `gpu`: the GPU type that all its ranks have.
    `links`: what its collectives run over, as of `fabricsim.workload.links.Beside`.
    Raises ScenarioError if the job does not fit together (one in a `Scenario` does): all mistakes at once; InputError
        if its times or sizes are out of all proportion; SimulationError if a user's schedule does not come to an end.
    """

    def __init__(self, job: Job, gpu: Gpu, links: Links | None = None) -> None:
        if mistakes := [*job_problems(job), *peak_problems(job, gpu)]:
            raise ScenarioError(mistakes)
        self.job = job
        self.gpu = gpu
        self.links = links
        self.placement = Placement(job.parallelism, () if links is None or links.inside is None else links.hosts)
        self.stages = plan_stages(job, gpu, held_by_receives(job, self.placement))
        self.micro_batches = micro_batches(job)
        degrees = job.parallelism
        sizes = degrees.pipeline, self.micro_batches, degrees.virtual_stages
        require_end(job.schedule, *sizes, overlap=job.pipeline_overlap)
        self._refuse_what_no_engine_holds()

    def _refuse_what_no_engine_holds(self) -> None:
        """Refuse times and sizes that 64-bit integers could not hold once they add up."""
        model = self.job.model.name
        computing = self.micro_batches * sum(stage.forward + stage.backward for stage in self.stages)
        computing += self.micro_batches * len(self.stages) * self.job.batch_time
        computing += max(self.optimizer) + max(sum(copies) for copies in self.gradient_copies)
        if computing > LONGEST:
            span, limit = human_seconds(seconds(computing)), human_seconds(seconds(LONGEST))
            msg = f"an iteration of {model} would compute for {span} on {self.gpu.name}, more than {limit}"
            msg += "; look for a slip in job and cluster.gpu"
            raise InputError(msg)
        width = gradient_bytes(self.job)
        size = max(max(stage.parameters * width, stage.message) for stage in self.stages)
        if size > LARGEST:
            msg = f"a stage of {model} would send {human_bytes(size)} at once, more than {human_bytes(LARGEST)}"
            msg += "; look for a slip in job"
            raise InputError(msg)

    def on(self, rank: int) -> JobPlan:
        """Return the plan of which a rank takes its times: this one, unless ranks differ."""
        del rank
        return self

    @property
    def alike(self) -> bool:
        """Whether all ranks of a stage take as long, whatever links their groups have."""
        return self.links is None or self.links.mesh is None

    def chunks(self, stage: int) -> tuple[Stage, ...]:
        """Return the virtual stages of the ranks of a pipeline stage, in the order of their chunks."""
        return self.stages[stage :: self.job.parallelism.pipeline]

    @cached_property
    def optimizer(self) -> tuple[int, ...]:
        """Time of the optimizer step of the ranks of each pipeline stage, ps."""
        degrees = self.job.parallelism
        times = []
        for stage in range(degrees.pipeline):
            tensors, experts = self._tensors(stage)
            held, parts = 0, self._parts(stage) if self.job.optimizer == "distributed" else 1
            if degrees.zero:
                held = sum(tensors) + sum(experts)
                own = -(-sum(tensors) // degrees.shards) + -(-sum(experts) // degrees.expert_shards)
                tensors, experts = [own], []
            items = optimizer_operations([*tensors, *experts], self.job, parts, held)
            times.append(rows_time(items, self.job, self.gpu))
        return tuple(times)

    def _parts(self, stage: int) -> int:
        """Count the tensors that a rank of a pipeline stage updates a part of."""
        degrees, experts = self.job.parallelism, self.job.model.experts
        shards, of_experts = (degrees.shards, degrees.expert_shards) if degrees.zero else (1, 1)
        own = experts.count // degrees.expert if experts else 1
        return sum(
            parts_of_tensors(chunk.tensors, shards, self.job)
            + parts_of_tensors(chunk.experts, of_experts, self.job, own)
            for chunk in self.chunks(stage)
        )

    def _tensors(self, stage: int) -> tuple[list[int], list[int]]:
        """Elements of each parameter tensor of the ranks of a pipeline stage, and of each of their experts'."""
        chunks = self.chunks(stage)
        return (
            [size for chunk in chunks for block in chunk.tensors for size in block],
            [size for chunk in chunks for block in chunk.experts for size in block],
        )

    @cached_property
    def gradient_copies(self) -> tuple[tuple[int, int], ...]:
        """Time of copying the gradients of each pipeline stage before and after their reduction, ps."""
        times = []
        for stage in range(self.job.parallelism.pipeline):
            tensors, experts = self._tensors(stage)
            before, after = gradient_copies([*tensors, *experts], self.job)
            times.append((operations_time(before, self.job, self.gpu), operations_time(after, self.job, self.gpu)))
        return tuple(times)

    @cached_property
    def embedding(self) -> tuple[int, ...]:
        """Pipeline stages that hold a copy of the word embedding, ascending."""
        degrees = self.job.parallelism
        holders = embedding_stages(self.job.model, len(self.stages))
        return tuple(sorted({stage % degrees.pipeline for stage in holders}))

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return self.job.parallelism.ranks

    @property
    def colours(self) -> NDArray[np.int32]:
        """Pipeline stage of each rank, shape ``(ranks,)``: all ranks of a stage do the same."""
        return self.placement.stages

    @cached_property
    def groups(self) -> tuple[GroupSet, ...]:
        """All groups that any call is over: those of one rank per stage, and their images."""
        first = self.placement.grid[:, 0, 0, 0].tolist()
        degrees = self.job.parallelism
        few = degrees.pipeline if degrees.virtual_stages > 1 else 1
        briefly = self.job.model_copy(update={"global_batch": few * self.job.micro_batch * degrees.data})
        program = JobPlan(briefly, self.gpu, self.links).program(first)
        calls = {(call.collective, call.dimension, call.ranks, call.size) for call in program.calls}
        sets: dict[bytes, GroupSet] = {}
        for collective, dimension, ranks, size in sorted(calls):
            members = self.placement.images(dimension, ranks)
            key = repr((collective, dimension, size)).encode() + members.tobytes()
            sets[key] = GroupSet(collective, dimension, members, size)
        return tuple(sets.values())

    def program(self, ranks: Collection[int] | None = None) -> Program:
        """Write out the ops of some ranks, or of all. `ranks`: those that stand for all others."""
        builder = ProgramBuilder(TIMERS, self.ranks, ranks)
        sizes = [stage.message for stage in self.stages]
        pipelines: dict[tuple[int, ...], Pipeline] = {}
        patterns: dict[int, RankPattern] = {}  # by stage
        # Of some ranks those of two stages need not be of one pipeline, whose messages they would have in common.
        whole = ranks is None or self.job.parallelism.pipeline == 1
        for rank in range(self.ranks) if ranks is None else ranks:
            stage = int(self.placement.stages[rank])
            if stage in patterns:
                builder.repeat_rank(rank, patterns[stage], partial(self.placement.image, rank=rank))
                continue
            chain = self.placement.group("pipelines", rank)
            if chain not in pipelines:
                pipelines[chain] = Pipeline(builder, chain, sizes, overlap=self.job.pipeline_overlap)
            plan = self.on(rank)
            beside = Beside(plan.gpu.overlap_slowdown, self.links, plan.job.product_overlap)
            lane = RankOps(builder, self.placement, rank, beside, plan.job.kernel_launch)
            add = RankCompiler(plan, lane, pipelines[chain]).add
            if whole and self.alike:
                patterns[stage] = builder.record_rank(add)
            else:
                add()
        return builder.build()


class RankCompiler:
    """Adds the ops of one rank to a builder."""

    def __init__(self, plan: JobPlan, lane: RankOps, pipeline: Pipeline) -> None:
        self.plan = plan
        self.lane = lane
        self.pipeline = pipeline
        self.stage = int(plan.placement.stages[lane.rank])
        self.chunks = plan.chunks(self.stage)
        degrees = plan.job.parallelism
        self.steps = ordered(
            plan.job.schedule, self.stage, degrees.pipeline, plan.micro_batches, degrees.virtual_stages
        )
        self.split = has_weight_passes(self.steps)
        self.alone = without_other_direction(self.steps) if plan.job.expert_overlap else frozenset()
        self.reducer: Reducer = make_reducer(plan.job, plan.gpu, lane, self.chunks)
        self.patterns: dict[tuple[Direction, int, bool], RepeatedOps] = {}

    def add(self) -> None:
        """Add the iteration."""
        steps = self.steps
        last = {(step.chunk, step.direction): index for index, step in enumerate(steps)}
        computes = [
            partial(self.compute, final=last[step.chunk, step.direction] == index) for index, step in enumerate(steps)
        ]
        self.reducer.begin()
        run_stage(self.lane.builder, self.pipeline, self.stage, steps, computes)
        self.finish()

    def finish(self) -> None:
        """Add what comes after the last pass."""
        plan = self.plan
        self.lane.begin()
        before, after = plan.gradient_copies[self.stage]
        self.lane.compute(before, data_parallel.TIMERS["all_reduce"])
        self.reducer.finish()
        self.lane.compute(after, data_parallel.TIMERS["all_reduce"])
        self.reduce_embedding()
        self.lane.wait(self.reducer.pending)
        self.lane.compute(plan.optimizer[self.stage], "optimizer")
        self.reducer.publish()
        self.lane.flush()

    def compute(self, step: Step, *, final: bool) -> None:
        """Add a pass; `final` is the last one of its chunk and direction."""
        builder, rank, alone = self.lane.builder, self.lane.rank, step in self.alone
        add = partial(self.blocks, step, final=final, alone=alone)
        kind, quiet = (step.direction, step.chunk, alone), self.reducer.quiet(step.direction, step.chunk, final=final)
        if kind in self.patterns and quiet:
            builder.repeat(rank, self.patterns[kind])
        elif builder.last(rank) and quiet:
            self.patterns[kind] = builder.record(rank, add)
        else:
            add()

    def blocks(self, step: Step, *, final: bool, alone: bool = False) -> None:
        """Add the blocks of a pass, one op after the other; `alone` if no other micro-batch is beside it."""
        self.lane.begin()
        self.add_blocks(step, final=final, alone=alone)
        self.lane.flush()

    def add_blocks(self, step: Step, *, final: bool, alone: bool) -> None:
        """Add the kernels and exchanges of a pass."""
        chunk = self.chunks[step.chunk]
        blocks = chunk.alone if alone else chunk.blocks
        timer = f"{step.direction}-compute"
        if step.direction != "weight":
            self.gather_input(step, timer)
        if step.direction == "forward":
            self.lane.compute(self.plan.job.batch_time, timer)
            for number, block in enumerate(blocks):
                self.reducer.before_forward(step.chunk, number)
                beside = self.reducer.beside_pass("forward", step.chunk, number, final=final)
                self.lane.add(block.forward, timer, slowed=beside)
            return
        for number in reversed(range(len(blocks))):
            block = blocks[number]
            if step.direction == "weight":
                self.lane.add(block.weights, timer)
            else:
                self.reducer.before_backward(step.chunk, number)
                beside = self.reducer.beside_pass("backward", step.chunk, number, final=final)
                self.lane.add(block.inputs if self.split else block.backward, timer, slowed=beside)
            if step.direction == "weight" or not self.split:
                self.reducer.after_backward(step.chunk, number, final=final)

    def gather_input(self, step: Step, timer: str) -> None:
        """Put together what tensor-parallel ranks have received in parts."""
        degrees = self.plan.job.parallelism
        number = step.chunk * degrees.pipeline + self.stage
        sender = number - 1 if step.direction == "forward" else number
        if degrees.scatter_gather and not degrees.sequence_parallel and 0 <= sender < len(self.plan.stages) - 1:
            size = self.plan.stages[sender].message * degrees.tensor
            self.lane.add((Exchange("all_gather", "tensor", size),), timer)

    def reduce_embedding(self) -> None:
        """All-reduce the word embedding's gradient over the stages that hold a copy of it."""
        holders, job = self.plan.embedding, self.plan.job
        if self.stage not in holders or len(holders) == 1 or job.adapters is not None:
            return
        size = job.model.vocabulary // job.parallelism.tensor * job.model.hidden * gradient_bytes(job)
        group = tuple(self.pipeline.ranks[stage] for stage in holders)
        call = Call("all_reduce", group, size, "embedding")
        self.lane.join(call, "embedding-all-reduce", after=self.reducer.pending)
