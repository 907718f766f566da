"""A time that no simulation of a job is below.

The ops of a rank's main stream run one after the other, each once what it waits for on others is done. So a pass takes
at least what it would if each op took its least time. Kernels take what the program says, slowed beside collectives or
not, and the host what it takes to issue them. Of a collective of ``n`` ranks of one host and ``S`` bytes,
``(n - 1) / n S`` go over the NVLink of each rank, out of it or into it, by whatever algorithm, also if switches reduce;
that takes as long as the link does. Of an all-to-all of ``n`` ranks, ``h`` of which share a host, ``(h - 1) / n S`` do,
and ``h (n - h) / n S`` bytes leave the host, by all of its cables at best. If each message goes from its sender to its
receiver, the ``(n - h) / n S`` that a rank sends to other hosts leave by its own NIC, or with PXN those to each rail by
the NIC of that rail. Others take no time here.

A rank does its passes one after the other, in the order of the schedule. A forward pass of a virtual stage begins once
the one before has passed its micro-batch forward, and a backward pass once the one behind has passed it back. If each
takes its least time, and so does what a rank does after its last pass, up to the step of the optimizer, then the
iteration is as long as the longest chain of passes that wait for one another. Messages between stages take no time.

A part of each such chain is known without the order. Let ``F_k`` and ``B_k`` be the least times of a forward and a
backward pass of virtual stage ``k``, ``E_s`` that of what a rank of stage ``s`` does after its last pass, ``m`` the
micro-batches and ``p`` the stages of ranks. Then ::

    T >= sum_{k<s} F_k + m sum_{k = s, s+p, ...} (F_k + B_k) + sum_{k<s} B_k + E_0    for each s

The first pass on a rank of ``s`` is a forward pass, before which its micro-batch has gone through all stages before;
the last one is a backward pass, after which the gradient goes through them. Schedules that put the gradients of weights
last lack the last sum, and end with ``E_s``.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fabricsim.errors import FabricsimError
from fabricsim.records.program import MAIN_STREAM
from fabricsim.run.bill import wired
from fabricsim.run.pipeline import machines_of
from fabricsim.scenario.cluster import Gpu
from fabricsim.scenario.job import Job, micro_batches
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.schedule import Direction, Step
from fabricsim.topology.host import nic_of
from fabricsim.units import PS_PER_S, seconds
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.compile import TIMERS, JobPlan, RankCompiler
from fabricsim.workload.issue import Span, row
from fabricsim.workload.lane import RankOps
from fabricsim.workload.links import Beside
from fabricsim.workload.machines import Machines, at_speed
from fabricsim.workload.passes import has_weight_passes, ordered
from fabricsim.workload.pipeline_parallel import Pipeline
from fabricsim.workload.program import Call
from fabricsim.workload.shapes import Block, stage_blocks
from fabricsim.workload.stages import pass_kernels

NOT_IN_KERNELS = ("job.schedule", *(f"job.parallelism.{key}" for key in ("pipeline", "virtual_stages", "data", "zero")))
"""Keys that do not change how long a pass of a block computes."""
_COUNTED = {"all_reduce", "all_gather", "reduce_scatter"}
_FEW = 2


class HostRates(NamedTuple):
    """What bounds all-to-alls from below.

    `gpus`, `nics`: of a host.
    `rate`, `nic_rate`: bytes/s that a host and a NIC send at most; infinite if cables change during a run.
    `pxn`: whether a message leaves by the NIC of its receiver's rail in place of its sender's.
    `direct`: whether each message goes from its sender to its receiver.
    """

    gpus: int
    nics: int = 1
    rate: float = math.inf
    nic_rate: float = math.inf
    pxn: bool = False
    direct: bool = False

    @classmethod
    def of(cls, scenario: Scenario) -> HostRates:
        """Find the rates of cables, and how all-to-alls go by them."""
        cluster = scenario.cluster
        if scenario.fabric.failures or scenario.fabric.topology == "optical-circuits":
            return cls(cluster.gpus_per_host)
        wires, nics = wired(scenario)[1], cluster.nics_per_host
        sent = wires.source < cluster.hosts * nics
        of_nics = np.bincount(wires.source[sent], wires.rate[sent], cluster.hosts * nics)
        most, most_of_nic = float(of_nics.reshape(-1, nics).sum(axis=1).max()), float(of_nics.max())
        direct = scenario.collectives.algorithm_of("all_to_all") == "direct"
        return cls(cluster.gpus_per_host, nics, most, most_of_nic, cluster.pxn, direct)

    def all_to_all(self, rank: int, near: int, away: Sequence[int]) -> float:
        """Bound how long messages to other hosts take in an all-to-all of a byte for each pair, seconds.

        `near`: how many ranks are on the host of `rank`, itself included. `away`: the others.
        """
        least = near * len(away) / self.rate
        if not (away and self.direct):
            return least
        leaves = (other if self.pxn else rank for other in away)
        by_nic = Counter(nic_of(each % self.gpus, self.gpus, self.nics) for each in leaves)
        return max(least, max(by_nic.values()) / self.nic_rate)


def brief(job: Job) -> Job:
    """Shorten a job to so many micro-batches that its passes take as long.

    It stores no more activations than all of the job, and with 1F1B as many.
    """
    degrees = job.parallelism
    few = 2 * degrees.pipeline * job.micro_batch * degrees.data
    return job.model_copy(update={"global_batch": min(few, job.global_batch)})


class LeastTimes:
    """Bounds an iteration from below by the pipeline of its slowest GPU; 0 if times have jitter.

    `plan`: of the job, or of what is `brief` of it. `hosts`: of the scenario.
    """

    def __init__(self, plan: JobPlan, scenario: Scenario, hosts: HostRates) -> None:
        machines = machines_of(scenario, range(plan.job.parallelism.ranks))
        chain = () if machines.jitters else plan.placement.group("pipelines", int(machines.gpu.argmin()))
        self._ranks = [_Rank(plan, chain, stage, hosts) for stage in range(len(chain))]
        for before, rank in pairwise(self._ranks):
            if rank.alike == before.alike:
                rank.passes, rank.end = before.passes, before.end

    def filled(self, job: Job) -> float:
        """Bound it by the filling of the pipeline, the passes of a rank, and the draining, seconds.

        `job`: the whole one, also if the plan is of what is brief.
        """
        before, after, most, batches = 0, 0, 0, micro_batches(job)
        for rank in self._ranks:
            own = sum((batches - 1) * each + last for way in rank.passes.values() for each, last in way)
            most = max(most, before + own + (rank.end if "weight" in rank.passes else after + self._ranks[0].end))
            before += min(rank.passes["forward"][0])
            after += min(rank.passes["backward"][0])
        return seconds(most)

    def scheduled(self, job: Job) -> float:
        """Bound it by the passes of the whole `job` in the order of its schedule, seconds: no less than `filled`."""
        through = _through([deque(rank.timed(job)) for rank in self._ranks])
        return seconds(max((end + rank.end for end, rank in zip(through, self._ranks, strict=True)), default=0))


def _through(left: Sequence[deque[_Timed]]) -> list[int]:
    """Say when each rank of a pipeline is through with its passes, each of which begins once its input is there; ps."""
    done: dict[_Pass | None, int] = {None: 0}
    now, moved = [0] * len(left), True
    while moved:
        moved = False
        for stage, passes in enumerate(left):
            while passes and passes[0].after in done:
                each, after, took = passes.popleft()
                now[stage] = done[each] = max(now[stage], done[after]) + took
                moved = True
    return now


class KernelBound:
    """Bounds the jobs of a scenario's cluster from below by kernels alone, those of each kind of block timed once.

    That is the bound above without ``E``, with all GPUs and hosts as fast as the fastest: less than that of
    `LeastTimes`, in a hundredth of its time. A pass takes as long as the GPU runs its kernels, and as long as the host
    issues them: it begins with those of a pass once all before is done. How one waits for the other within it does not
    add up block by block, as the host may be ahead at the end of one.
    """

    def __init__(self, scenario: Scenario) -> None:
        machines = Machines.of(scenario.cluster, scenario.seed)
        alike = not machines.jitters and not machines.kind.any()
        self._gpu = at_speed(machines.gpus[0], float(machines.gpu.max())) if alike else None
        self._host = float(machines.host.max())
        self._blocks: dict[str, dict[Block, tuple[Span, Span]]] = {}
        self._stages: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def least(self, job: Job, kernels: str) -> float:
        """Give the bound of a job, seconds; 0 if GPUs are not of one kind, or times have jitter.

        `job`: one that fits together. `kernels`: the same for jobs that differ in `NOT_IN_KERNELS` at most.
        """
        if self._gpu is None:
            return 0.0
        degrees = job.parallelism
        stages = self._times(job, self._gpu, kernels)
        batches, split = micro_batches(job), _splits(job.schedule)
        around = most = 0
        for stage in range(degrees.pipeline):
            most = max(most, around + batches * sum(map(sum, stages[stage :: degrees.pipeline])))
            around += stages[stage][0] if split else sum(stages[stage])
        return seconds(most)

    def _times(self, job: Job, gpu: Gpu, kernels: str) -> list[tuple[int, int]]:
        """Time a forward and a backward pass of each virtual stage, ps."""
        count = job.parallelism.pipeline * job.parallelism.virtual_stages
        if (kernels, count) not in self._stages:
            blocks = stage_blocks(job.model, count, job.parallelism)
            known = self._blocks.setdefault(kernels, {})
            known |= {block: pass_kernels(block, job, gpu) for stage in blocks for block in {*stage} - known.keys()}
            self._stages[kernels, count] = [
                (self._of_pass(known[block][0] for block in stage), self._of_pass(known[block][1] for block in stage))
                for stage in blocks
            ]
        return self._stages[kernels, count]

    def _of_pass(self, blocks: Iterable[Span]) -> int:
        """Least time of a pass through some blocks, ps."""
        total = row(blocks)
        return max(total.run, int(total.issue / self._host))


@cache
def _splits(schedule: str) -> bool:
    """Whether gradients of weights are passes of their own, or that is not known."""
    try:
        return has_weight_passes(ordered(schedule, 0, _FEW, 2 * _FEW))
    except FabricsimError:  # a schedule of a user, which is not for these numbers
        return True


class _Pass(NamedTuple):
    """A pass of a micro-batch through a virtual stage."""

    way: Direction
    stage: int
    batch: int


class _Timed(NamedTuple):
    """A pass, the one on another rank that it waits for, if there is one, and its least time, ps."""

    each: _Pass
    after: _Pass | None
    took: int


class _Rank:
    """The rank of a stage in a pipeline, `chain`, whose ops take their least times.

    `alike`: what decides those.
    """

    def __init__(self, job: JobPlan, chain: tuple[int, ...], stage: int, hosts: HostRates) -> None:
        number = chain[stage]
        plan = job.on(number)
        self._stage, self._stages, self._chunks = stage, len(chain), plan.chunks(stage)
        self.alike = [(chunk.blocks, chunk.tensors, chunk.experts) for chunk in self._chunks], plan.gpu, plan.job
        self._clock = _Clock(plan, hosts)
        beside = Beside(plan.gpu.overlap_slowdown, plan.links, plan.job.product_overlap)
        lane = RankOps(self._clock, plan.placement, number, beside, plan.job.kernel_launch)
        self._compiler = RankCompiler(plan, lane, Pipeline(self._clock, chain, [0] * len(plan.stages)))

    def timed(self, job: Job) -> Iterator[_Timed]:
        """Give its passes of all micro-batches of a job in order."""
        steps = ordered(job.schedule, self._stage, self._stages, micro_batches(job), len(self._chunks))
        last = {(step.direction, step.chunk): number for number, step in enumerate(steps)}
        ends = {"forward": (0, -1), "backward": (self._stages * len(self._chunks) - 1, 1)}
        for number, (way, batch, chunk, _) in enumerate(steps):
            virtual = chunk * self._stages + self._stage
            end, before = ends.get(way, (virtual, 0))
            after = None if virtual == end else _Pass(way, virtual + before, batch)
            yield _Timed(_Pass(way, virtual, batch), after, self.passes[way][chunk][last[way, chunk] == number])

    @cached_property
    def passes(self) -> dict[Direction, list[tuple[int, int]]]:
        """Least time of a pass of each chunk, and of the last one, by direction; ps."""
        ways = dict.fromkeys(step.direction for step in self._compiler.steps)
        return {way: [self._least(way, chunk) for chunk in range(len(self._chunks))] for way in ways}

    @cached_property
    def end(self) -> int:
        """Least time of what comes after the last pass, ps."""
        self._clock.begin()
        self._compiler.finish()
        return self._clock.now

    def _least(self, way: Direction, chunk: int) -> tuple[int, int]:
        each = self._pass(way, chunk, final=False)
        return each, each if way == "forward" else self._pass(way, chunk, final=True)

    def _pass(self, way: Direction, chunk: int, *, final: bool) -> int:
        self._clock.begin()
        self._compiler.blocks(Step(way, 0, chunk), final=final)
        return self._clock.now


class _Clock(ProgramBuilder):
    """Takes ops of one rank and keeps the time at which the main stream is through with them at the earliest.

    `now`: ps since the host was level with the GPU.
    """

    def __init__(self, plan: JobPlan, hosts: HostRates) -> None:
        super().__init__(TIMERS)
        self.now = 0
        self._links, self._hosts = plan.links, hosts
        self._called: list[Call] = []
        self._known: dict[Call, int] = {}  # least times
        self._ends: list[int] = []  # when each op is done at the earliest
        self._first = 0  # op since `now` was 0

    def begin(self) -> None:
        """Set the clock to 0; what was there before is not waited for."""
        self.now, self._first = 0, len(self._ends)

    def last(self, rank: int) -> tuple[int, ...]:  # noqa: ARG002
        """Give an op that is done when the main stream is."""
        return (self._op(self.now),)

    def wait(self, rank: int, ops: Iterable[int]) -> None:  # noqa: ARG002
        """Let the main stream wait for ops."""
        self.now = max(self.now, self._end(ops))

    def compute(self, rank: int, duration: int, timer: str, *, after: Iterable[int] = ()) -> int:  # noqa: ARG002
        """Let time pass."""
        self.now += duration
        return self._op(self.now)

    def issue(self, rank: int, duration: int, timer: str, *, after: Iterable[int]) -> int:  # noqa: ARG002
        """Let the host issue kernels from `after` on, for which the next op waits."""
        return self._op(self._end(after) + duration)

    def next_call(self, rank: int, call: Call) -> int:  # noqa: ARG002
        """Take a call down."""
        self._called.append(call)
        return len(self._called) - 1

    def join(self, call: int, rank: int, timer: str, *, stream: int = MAIN_STREAM, after: Iterable[int] = ()) -> int:
        """Let what a call takes at least pass, on the main stream or beside it."""
        if stream == MAIN_STREAM:
            return self.join_all([call], rank, timer, after=after)[0]
        return self._op(self._end(after) + self._time(call, rank))

    def join_all(self, calls: Sequence[int], rank: int, timer: str, *, after: Iterable[int] = ()) -> list[int]:  # noqa: ARG002
        """Let what the longest of several calls takes at least pass."""
        self.now = max(self.now, self._end(after)) + max((self._time(call, rank) for call in calls), default=0)
        return [self._op(self.now) for _ in calls]

    def _time(self, call: int, rank: int) -> int:
        made = self._called[call]
        return self._known[made] if made in self._known else self._known.setdefault(made, self._least(made, rank))

    def _op(self, end: int) -> int:
        self._ends.append(end)
        return len(self._ends) - 1

    def _end(self, ops: Iterable[int]) -> int:
        return max((self._ends[op] for op in ops if op >= self._first), default=0)

    def _least(self, call: Call, rank: int) -> int:
        members, per_host = len(call.ranks), self._hosts.gpus
        away = [other for other in call.ranks if other // per_host != rank // per_host]
        near = members - len(away)
        everyone = call.collective == "all_to_all"
        least = self._hosts.all_to_all(rank, near, away) if everyone else 0.0
        inside = None if self._links is None else self._links.inside
        if inside is not None and (everyone or (call.collective in _COUNTED and near == members)):
            least = max(least, (near - 1) / inside)
        return int(PS_PER_S * call.size / members * least)
