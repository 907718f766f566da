"""The iteration of a dense job in closed form: a second model beside the simulation, with the same kernel times.

A pipeline under 1F1B takes ``m`` micro-batches of its slowest stage, and one pass through the others::

    T = m (P_z + G_z) + (sum_s P_s - P_z) / v + 2 sum_k c_k - c + sum_k h_k + T_data + T_optimizer

``P_s`` is what stage ``s`` computes for a micro-batch, both passes and all ``v`` chunks, with the tensor-parallel
collectives between; ``c_k`` is the time of the activations from virtual stage ``k`` to the next, ``G_s`` their sum over
both ends of its stages, and ``z`` the slowest. The third sum is over the first ``p - 1``. A ring of ``n`` ranks takes
``k (n - 1) (a + S / n / B)``, ``k`` = 2 for an all-reduce; ``B`` is the least rate along it and ``a`` the mean latency.
Sources, and what is derived here: explanation/rail-only of the documentation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import simpy

from fabricsim.collectives.choice import Choice
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.ways import Stripes, Ways
from fabricsim.errors import InputError
from fabricsim.run.pipeline import build_plan
from fabricsim.scenario.load import LoadedScenario
from fabricsim.units import PS_PER_S, seconds
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.fit import check_fit
from fabricsim.workload.issue import EMPTY, Span
from fabricsim.workload.links import TURNS
from fabricsim.workload.stages import Stage, Timed
from fabricsim.workload.tape import gradient_bytes
from fabricsim.workload.work import Exchange, Wait


@dataclass(frozen=True)
class Iteration:
    """The parts of an iteration in closed form, seconds; ``steady`` and ``fill`` hold passes and their messages."""

    steady: float
    fill: float
    data: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.steady + self.fill + self.data + self.optimizer


class IdleFabric:
    """Rates and latencies of an idle fabric that does not block. `loaded`: the scenario."""

    def __init__(self, loaded: LoadedScenario) -> None:
        self._fabric = Fabric(simpy.Environment(), loaded.scenario)
        self._cluster = loaded.scenario.cluster
        self._ways = Ways(self._fabric.platform, self._fabric.wiring.switches)
        self.edge = cache(self._edge)

    def _edge(self, source: int, target: int, parts: Stripes = ()) -> tuple[float, float, bool]:
        """Bytes/s and latency in seconds from one rank to another, and whether it leaves the host."""
        platform = self._fabric.platform
        path = self._ways.path(source, target, 0, parts)
        rate = min(platform.resources.capacities[resource] / cost for resource, cost in path.hops)
        software = self._fabric.model.latency + self._fabric.model.overhead if path.network else 0
        return rate, seconds(path.latency + software), path.network

    def leaves(self, ranks: Sequence[int]) -> bool:
        """Whether a ring of ranks goes by the network."""
        return any(self.edge(here, there)[2] for here, there in pairwise([*ranks, ranks[0]]) if here != there)

    def message(self, source: int, target: int, size: int) -> float:
        """Time of a message, seconds."""
        rate, latency, _ = self.edge(source, target)
        return latency + size / rate

    def collective(self, name: str, ranks: Sequence[int], size: int) -> float:
        """Time of a collective by rings, or of a hierarchical all-reduce if the scenario has that, seconds."""
        if len(ranks) == 1:
            return 0.0
        choice = self._fabric.wiring.choose(name, tuple(ranks), size)
        if choice.algorithm == "hierarchical":
            return self._hierarchical(ranks, size, choice)
        return self.ring(ranks, size, TURNS[name], choice)

    def _hierarchical(self, ranks: Sequence[int], size: int, choice: Choice) -> float:
        domain = self._cluster.gpus_per_host
        hosts: dict[int, list[int]] = {}
        for rank in ranks:
            hosts.setdefault(rank // domain, []).append(rank)
        inside, across = next(iter(hosts.values())), [members[0] for members in hosts.values()]
        return self.ring(inside, size, 2, choice) + self.ring(across, size // len(inside), 2, choice)

    def ring(self, ranks: Sequence[int], size: int, turns: int, choice: Choice) -> float:
        """Time of so many turns of a ring, seconds."""
        if len(ranks) == 1:
            return 0.0
        edges = [self.edge(*pair, self._parts(*pair, ranks, choice)) for pair in pairwise([*ranks, ranks[0]])]
        rate = min(rate * (choice.stripes if network else 1) for rate, _, network in edges)
        latency = sum(latency for _, latency, _ in edges) / len(edges)
        return turns * (len(ranks) - 1) * (latency + size / len(ranks) / rate)

    def _parts(self, here: int, there: int, ranks: Sequence[int], choice: Choice) -> Stripes:
        """Give the ways of a ring's message inside a host; between hosts there are none but its own."""
        platform = self._fabric.platform
        inside = platform.host_of(here) == platform.host_of(there)
        return self._ways.stripes(here, there, tuple(ranks), choice, 0) if inside else ()


def iteration(loaded: LoadedScenario) -> Iteration:
    """Work out the iteration of a scenario's job.

    Raises InputError if the job is none of those that the formulas are for: dense, 1F1B, gradients reduced after the
        last pass; ScenarioError if it does not fit into the memory of its GPUs.
    """
    plan = build_plan(loaded)
    _require_dense(plan)
    check_fit(plan.job, loaded.scenario.cluster.gpu)
    return _Model(plan, IdleFabric(loaded)).iteration()


def _require_dense(plan: JobPlan) -> None:
    job = plan.job
    reasons = {
        "experts": job.model.experts is not None,
        f"schedule {job.schedule}": job.schedule != "1f1b",
        f"overlap {job.overlap}": job.overlap != "none" and job.parallelism.data > 1,
        "context parallelism": job.parallelism.context > 1,
        "zero above 1": job.parallelism.zero > 1,
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        msg = f"the closed form is for dense jobs under 1F1B whose gradients are reduced at the end; not for {found[0]}"
        raise InputError(msg)


class _Model:
    def __init__(self, plan: JobPlan, fabric: IdleFabric) -> None:
        self._plan, self._fabric = plan, fabric
        self._first = plan.placement.grid[:, 0, 0, 0].tolist()

    def iteration(self) -> Iteration:
        degrees, plan = self._plan.job.parallelism, self._plan
        stages = range(degrees.pipeline)
        passes = [sum(self._passes(stage, chunk) for chunk in plan.chunks(stage)) for stage in stages]
        across = self._across()
        slots = [both + self._group(stage, across) for stage, both in zip(stages, passes, strict=True)]
        slowest = max(stages, key=slots.__getitem__)
        fill = (sum(passes) - passes[slowest]) / degrees.virtual_stages + 2 * sum(across[: degrees.pipeline - 1])
        fill -= max(across, default=0.0)  # which the slowest stage has counted among its own
        data = [self._data(stage) for stage in stages]
        fill += sum(self._held_up(stage, across[stage - 1], data[stage]) for stage in stages[1:])
        reduction = max(data) + self._embedding()
        return Iteration(plan.micro_batches * slots[slowest], fill, reduction, seconds(max(plan.optimizer)))

    def _passes(self, stage: int, chunk: Stage) -> float:
        """Both passes of a chunk for one micro-batch, collectives included."""
        batch = seconds(self._plan.job.batch_time)
        forward = [item for block in chunk.blocks for item in block.forward]
        backward = [item for block in reversed(chunk.blocks) for item in block.backward]
        return batch + self._pass(stage, forward) + self._pass(stage, backward)

    def _pass(self, stage: int, items: list[Timed]) -> float:
        """One pass: what is exchanged beside kernels costs what these do not hide."""
        span, exposed = EMPTY, 0.0
        hidden: dict[str, float] = {}  # exchanges under way, by dimension, and what runs beside them
        beside: dict[str, Span] = {}
        for item in items:
            if isinstance(item, Span):
                kernels = item.slowed(self._plan.gpu.overlap_slowdown) if hidden else item
                span, beside = span.then(kernels), {key: each.then(kernels) for key, each in beside.items()}
            elif isinstance(item, Exchange) and item.asynchronous:
                hidden[item.dimension] = hidden.get(item.dimension, 0.0) + self._exchange(stage, item)
                beside[item.dimension] = EMPTY
            elif isinstance(item, Exchange):
                exposed += self._exchange(stage, item)
            elif isinstance(item, Wait):
                ran = seconds(beside.pop(item.dimension, EMPTY).alone)
                exposed += max(0.0, hidden.pop(item.dimension, 0.0) - ran)
            else:
                exposed, span = exposed + seconds(span.alone), EMPTY
        return seconds(span.alone) + exposed

    def _exchange(self, stage: int, item: Exchange) -> float:
        calls = self._plan.placement.calls(item, self._first[stage])
        return max((self._fabric.collective(call.collective, call.ranks, call.size) for call in calls), default=0.0)

    def _across(self) -> list[float]:
        """Time of one micro-batch's activations, or of their gradients, from each virtual stage to the next."""
        ranks = self._first
        ends = ((ranks[k % len(ranks)], ranks[(k + 1) % len(ranks)]) for k in range(len(self._plan.stages) - 1))
        return [
            self._fabric.message(*pair, stage.message) for pair, stage in zip(ends, self._plan.stages, strict=False)
        ]

    def _held_up(self, stage: int, message: float, reduction: float) -> float:
        """By how much longer a stage's last gradients take: they share its adapter with the reduction of its own."""
        group = self._plan.placement.group("data", self._first[stage])
        both = [self._first[stage], self._first[stage - 1]]
        shared = all(self._fabric.leaves(ranks) for ranks in (group, both))
        return min(message, reduction) if shared else 0.0

    def _group(self, stage: int, across: list[float]) -> float:
        """Add up what a stage exchanges for a micro-batch, with the stages before and behind each of its own."""
        own = range(stage, len(self._plan.stages), len(self._first))
        return sum(sum(across[max(0, k - 1) : k + 1]) for k in own)

    def _data(self, stage: int) -> float:
        """Reduction of the gradients of a stage, with their copies."""
        plan = self._plan
        group = plan.placement.group("data", self._first[stage])
        elements = sum(chunk.parameters for chunk in plan.chunks(stage))
        width = gradient_bytes(plan.job)
        copies = sum(plan.gradient_copies[stage]) / PS_PER_S
        if plan.job.parallelism.zero:
            both = ("reduce_scatter", "all_gather")
            return copies + sum(self._fabric.collective(name, group, elements * width) for name in both)
        return copies + self._fabric.collective("all_reduce", group, elements * width)

    def _embedding(self) -> float:
        """All-reduce of the word embedding's gradient between the first and the last stage."""
        plan, holders = self._plan, self._plan.embedding
        if len(holders) == 1:
            return 0.0
        job = plan.job
        size = job.model.vocabulary // job.parallelism.tensor * job.model.hidden * gradient_bytes(job)
        return self._fabric.collective("all_reduce", [self._first[stage] for stage in holders], size)
