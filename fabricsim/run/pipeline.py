"""The whole way, one arrow a line.

::

    scenario.toml ── load ──► Scenario ──┬─ plan_job ────► Program ─┐
                                         └─ Fabric ─────────────────┼─ fold, replay ─► Result
    trace files ─── read ───► Trace ─────── rebuild ──────► Program ─┘

Each arrow makes a new type, so that a half-built thing cannot be simulated.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import simpy

from fabricsim import extensions, provenance
from fabricsim.collectives.nccl.plan import chooser
from fabricsim.collectives.pairs import plan_pairs
from fabricsim.engine.carried import carried
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.folding.prepared import prepared, survey, uncrossed
from fabricsim.engine.outcome import call_records, counters, link_records, rate_series
from fabricsim.errors import InputError, SimulationError
from fabricsim.records.program import COLLECTIVE, COMPUTE, NONE
from fabricsim.results.throughput import IterationWork
from fabricsim.run.bill import said_of
from fabricsim.run.result import Result
from fabricsim.run.together import Placed, Stream, crossed_by, crossing, joined, run, sent_over, streams
from fabricsim.scenario import given, library
from fabricsim.scenario.defaults import left_to_defaults
from fabricsim.scenario.jobs import placed
from fabricsim.scenario.load import LoadedScenario, Overrides, from_tables, machine
from fabricsim.scenario.load import load as load  # noqa: PLC0414  the first arrow of the way, for others to take
from fabricsim.scenario.named_files import named_files
from fabricsim.scenario.remarks import remarks
from fabricsim.scenario.source import exists
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.scenario.toml_text import texts
from fabricsim.topology.inventory import first_apart
from fabricsim.topology.tiers import describe
from fabricsim.traces.form import FORMS
from fabricsim.traces.rebuild.agreement import agreement
from fabricsim.workload.fit import check_fit, memory_text
from fabricsim.workload.flops import hardware_flops, model_flops, tokens
from fabricsim.workload.links import Links
from fabricsim.workload.machines import Machines
from fabricsim.workload.mixed import plan_job

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.engine.packet.recorder import Watch
    from fabricsim.results import result as record
    from fabricsim.results.pairs import Pairs
    from fabricsim.results.traffic import TrafficRecord
    from fabricsim.scenario.job import Job
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.topology.wires import Wires
    from fabricsim.traces.rebuild.programs import Rebuilt
    from fabricsim.workload.compile import JobPlan
    from fabricsim.workload.program import Program

_WITHIN_A_HOST = "rdma-100g"
"""Transport of a fabric of one host, between whose GPUs nothing comes to the network."""
_LARGE = 2**29
"""Bytes of a fabric's tables above which they are let go of at once."""
_TICKING = (
    "messages of large direct collectives are merged, and begin and leave at ticks of at most 1/16 of their time: "
    "an all-to-all takes up to 0.3 % longer"
)


def reload(result: record.RunRecord | TrafficRecord) -> LoadedScenario:
    """Take the scenario of an earlier result; raises ScenarioError if this version no longer accepts it."""
    scenario, files = from_tables(result.resolved), tuple(named_files(result.resolved))
    return LoadedScenario(scenario, result.source, result.resolved, Path(result.name), files=files, asked=result.asked)


def load_fabric(
    name: str | Path, ranks: int, transport: str | None = None, overrides: Overrides = ()
) -> LoadedScenario:
    """Load what a captured job of some ranks is to be replayed on.

    `name`: a scenario file or shipped scenario, whose job is left aside; or a cluster of the library, of which as many
        hosts are taken as the ranks need, behind one switch.
    `transport`: in place of the scenario's; needed for a cluster, but if all ranks are on one host.
    Raises InputError if there is nothing of that name, or it is not said which transport; ScenarioError if the scenario
        has mistakes, of which it lists all.
    """
    given.require(name, (str, Path), "fabric", "a scenario file, or the name of a scenario or cluster")
    given.require(transport, (str, NoneType), "transport", "a name or file")
    laid = texts(overrides)
    if any(text.lstrip().startswith("job") for text in laid):
        msg = "job: the job is that of the trace; say what is to be otherwise by gpu_speed or scale_to "
        msg += "(--gpu-speed, --scale-to)"
        raise InputError(msg)
    clusters, scenarios = library.names("clusters"), library.names("scenarios")
    if str(name) not in {*clusters, *scenarios} and not exists(Path(name)):
        otherwise = "`fabricsim list clusters` and `fabricsim list scenarios` name those that ship"
        hint = did_you_mean(str(name), [*clusters, *scenarios], otherwise)
        raise InputError(f"{name}: there is no such file, shipped scenario or cluster; {hint}")
    if str(name) not in clusters or str(name) in scenarios or Path(name).is_file():
        chosen = [] if transport is None else [f"transport={transport}"]
        return load(name, [*chosen, *laid], with_job=False)
    one = machine(str(name), transport or _WITHIN_A_HOST, 1, laid).scenario.cluster
    hosts = -(-ranks // one.gpus_per_host)
    set_by_hand = any(text.lstrip().startswith("transport") for text in laid)
    if transport is None and hosts > 1 and not set_by_hand:
        msg = f"{name} is a cluster without a transport, and {ranks} ranks take {hosts} of its hosts"
        msg += "; name a transport, such as rdma-100g (fabricsim list transports)"
        raise InputError(msg)
    return machine(str(name), transport or _WITHIN_A_HOST, hosts, laid)


def program(scenario: LoadedScenario | str | Path | Mapping[str, Any], overrides: Overrides = ()) -> Program:
    """Write out the iteration of a scenario's job, for `fabricsim.Fabric.replay`.

    Parameters
    ----------
    scenario
        What `load` gave, or a name, path or dict for it.
    overrides
        As of `load`.

    Raises
    ------
    InputError
        If the scenario has no job, or it does not fit into the memory of its GPUs.
    """
    loaded = load_any(scenario, overrides)
    plan = build_plan(loaded)
    _check_fit(plan.job, loaded)
    return plan.program(None)


def load_any(
    scenario: LoadedScenario | str | Path | Mapping[str, Any], overrides: Overrides, *, with_job: bool = True
) -> LoadedScenario:
    """Load what is a name, path or dict; raises InputError for what is no scenario at all."""
    if isinstance(scenario, (str, Path, Mapping)):
        return load(scenario, overrides, with_job=with_job)
    if not isinstance(scenario, LoadedScenario):
        what = type(scenario).__name__
        msg = f'what is simulated is what load gives or a name for it, not of type {what}: write load("gpt2-medium-dp")'
        raise InputError(msg)
    if overrides:
        raise InputError("a loaded scenario is settled: give overrides to load, or the name, file or dict here")
    extensions.recall(scenario.resolved.get("extensions", {}))
    return scenario


def build_plan(loaded: LoadedScenario) -> JobPlan:
    """Plan a scenario's job; its ``program`` writes it out. Raises InputError if the scenario has no job."""
    return _plan(one_job(loaded), loaded.scenario)


def _plan(job: Job, scenario: Scenario) -> JobPlan:
    return plan_job(job, machines_of(scenario, range(job.parallelism.ranks)), Links.of(scenario))


def one_job(loaded: LoadedScenario) -> Job:
    """Take the one job of a scenario. Raises InputError if it has none, or several."""
    job = loaded.scenario.job
    if loaded.scenario.jobs:
        msg = f"{loaded.path}: jobs are under [jobs], and one [job] is wanted: take them out, or name another scenario"
        raise InputError(msg)
    if job is None:
        raise InputError(f"{loaded.path}: there is no [job] to run; add one, or use the fabric from a SimPy process")
    return job


def _check_fit(job: Job, loaded: LoadedScenario) -> None:
    """Refuse a job that does not fit into the GPUs of one kind of hosts."""
    for variant in loaded.scenario.cluster.variants:
        check_fit(job, variant.gpu)


def machines_of(scenario: Scenario, ranks: Sequence[int]) -> Machines:
    """Take what some ranks of a scenario's cluster run on."""
    return Machines.of(scenario.cluster, scenario.seed, ranks)


def counted_plan(loaded: LoadedScenario) -> JobPlan:
    """Plan a scenario's job to count what it sends, with as many tokens for each expert.

    In a run all ranks send as many tokens to experts as the busiest receives, since all wait for it; but imbalance
    moves tokens from rank to rank and makes none. Errors as of `build_plan`.
    """
    return _plan(one_job(loaded).model_copy(update={"expert_imbalance": 1.0}), loaded.scenario)


def pairs_of(loaded: LoadedScenario) -> Pairs:
    """Count the bytes that each rank of a scenario's job sends to each other one, and simulate nothing.

    Raises InputError if the scenario has no job.
    """
    cluster = loaded.scenario.cluster
    return plan_pairs(counted_plan(loaded), chooser(loaded.scenario), cluster.gpus_per_host, cluster.gpus_per_host)


def check(loaded: LoadedScenario) -> list[str]:
    """Build all that a run of a scenario builds but its program; raises FabricsimError if a run would be refused.

    Returns: the fabric, tier by tier; if there is a job, which switches it does not need, and what it takes of the
        memory of a GPU.
    """
    job = loaded.scenario.job
    fabric = Fabric(simpy.Environment(), loaded.scenario)
    wires, down = fabric.platform.wires, [*fabric.failures.lasting()]
    standing = wires.lacking(down) if down else wires
    said = [f"fabric: {describe(standing, fabric.platform.nics)}{f'; {said_of(down)}' if down else ''}"]
    streams(loaded.scenario)
    if loaded.scenario.jobs:
        jobs = several(loaded)
        for plan, ranks in jobs.values():
            survey(fabric, plan, ranks)
        said += [f"{name}: ranks {_listed(ranks)}" for name, (_, ranks) in jobs.items()]
        return [*said, *remarks(loaded.scenario, loaded.asked, sum(len(ranks) for _, ranks in jobs.values()))]
    if job is None:
        _require_joined(fabric)
        if down and (apart := _apart(fabric, standing)) != NONE:
            said.append(f"no cable that is not down leads from host0 to host{apart}")
        return [*said, *remarks(loaded.scenario, loaded.asked)]
    gpu = loaded.scenario.cluster.gpu
    _check_fit(job, loaded)
    plan = build_plan(loaded)
    crossing = survey(fabric, plan)
    noted = remarks(loaded.scenario, loaded.asked, plan.ranks)
    return [*said, *([crossing] if crossing else []), memory_text(job, gpu), *noted]


def _require_joined(fabric: Fabric) -> None:
    """Refuse a fabric in parts, as traffic over it would be refused; a job is held against what it sends."""
    made, apart = fabric.scenario.fabric, _apart(fabric, fabric.platform.wires)
    if apart != NONE:
        file = getattr(made, "links", None) or made.topology
        msg = f"fabric: no cable leads from host0 to host{apart} ({file}), not even over other NICs of hosts; join "
        raise SimulationError(msg + "their switches")


def _apart(fabric: Fabric, wires: Wires) -> int:
    """Find the first host that some wires of a fabric do not join to host 0; NONE if there is none."""
    cluster = fabric.scenario.cluster
    return first_apart(wires, cluster.hosts, cluster.nics_per_host)


def _listed(ranks: Sequence[int]) -> str:
    """List ranks in the form in which a scenario has them."""
    breaks = [0, *(place for place in range(1, len(ranks)) if ranks[place] != ranks[place - 1] + 1), len(ranks)]
    ends = [(ranks[first], ranks[beyond - 1]) for first, beyond in itertools.pairwise(breaks)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def simulate(
    scenario: LoadedScenario | str | Path | Mapping[str, Any],
    *,
    overrides: Overrides = (),
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run one training iteration of a scenario.

    Parameters
    ----------
    scenario
        What `load` gave, or a name, path or dict for it.
    overrides
        As of `load`.
    watch
        What a packet run is to record besides its totals.
    progress
        Called now and then with the share of the program that is done, 0 to 1.

    Returns
    -------
    Result
        Spans of all operations, collectives, links and rates.

    Raises
    ------
    SimulationError
        If the program cannot run on this cluster, or nothing was delivered.
    InputError
        If the scenario has no job, its job does not fit into the memory of its GPUs, or `watch` names what is
        not there.
    """
    loaded = load_any(scenario, overrides)
    if loaded.scenario.jobs:
        return _run(loaded, lambda fabric: _several(loaded, fabric), watch, progress)
    plan = build_plan(loaded)
    _check_fit(plan.job, loaded)
    result = _run(loaded, lambda fabric: _alone(loaded, fabric, plan), watch, progress)
    machines = machines_of(loaded.scenario, range(plan.ranks))
    notes = *left_to_defaults(plan.job), *machines.notes(), *result.notes
    return replace(result, notes=notes, work=_work(plan.job, machines))


class _Ready(NamedTuple):
    """What is to be run on a fabric: jobs, what a reader has to know of them, and whether they have names."""

    jobs: tuple[Placed, ...]
    notes: tuple[str, ...]
    named: bool = False

    @property
    def ranks(self) -> int:
        """Count the ranks of all jobs."""
        return sum(job.program.ranks for job in self.jobs)


def _alone(loaded: LoadedScenario, fabric: Fabric, plan: JobPlan) -> _Ready:
    if loaded.scenario.traffic:  # which tells ranks apart
        return _one(plan.program(None))
    return _one(*prepared(fabric, plan))


def _one(program: Program, notes: tuple[str, ...] = ()) -> _Ready:
    return _Ready((Placed("", program, None, 0),), notes)


def _several(loaded: LoadedScenario, fabric: Fabric) -> _Ready:
    """Plan several jobs, and write them out."""
    said: list[str] = []
    jobs = []
    for name, (plan, ranks) in several(loaded).items():
        machines = machines_of(loaded.scenario, ranks)
        said += [f"{name}: {note}" for note in (*left_to_defaults(plan.job), *machines.notes())]
        program = plan.program(None)
        fabric.require_ranks(max(ranks) + 1)
        jobs.append(Placed(name, program, ranks, loaded.scenario.jobs[name].start))
    return _Ready(tuple(jobs), tuple(said), named=True)


def several(loaded: LoadedScenario) -> dict[str, tuple[JobPlan, tuple[int, ...]]]:
    """Plan each of several jobs, and give it its ranks; raises ScenarioError if one does not fit into its GPUs."""
    scenario = loaded.scenario
    cluster = scenario.cluster
    found = {}
    for name, ranks in placed(scenario.jobs, cluster.hosts, cluster.gpus_per_host, scenario.seed).items():
        _check_fit(scenario.jobs[name], loaded)
        found[name] = plan_job(scenario.jobs[name], machines_of(scenario, ranks), Links.of(scenario)), ranks
    return found


def _work(job: Job, machines: Machines) -> IterationWork:
    return IterationWork(tokens(job), model_flops(job), hardware_flops(job), machines.peak(job.precision))


def _copies(program: Program, calls: record.CallRecords, rank_of: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Say how many calls each of a folded run stands for: those that the ranks which take part in it stand for make.

    `rank_of`: the rank that stands for each.
    """
    ops = program.ops[program.ops["kind"] == COLLECTIVE]
    alike = np.bincount(rank_of)[ops["rank"]]
    members = np.bincount(ops["call"], alike, minlength=len(calls))
    copies = np.rint(members / calls.column("ranks")).astype(np.int64)
    return copies if (copies != 1).any() else None


def replay(
    loaded: LoadedScenario,
    rebuilt: Rebuilt,
    form: str,
    *,
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Replay a captured job on the fabric of a scenario, whose own job is left aside.

    `rebuilt`: what `fabricsim.traces.rebuild.programs.rebuild` made of the trace.
    `watch`, `progress`: as of `simulate`.
    Returns: what was captured is in its `capture`.
    Raises SimulationError if the cluster has too few ranks, or nothing was delivered; TraceError if ranks of the trace
        wait for one another.
    """
    timed = rebuilt.program.ops["duration"][rebuilt.program.ops["kind"] == COMPUTE].any()
    notes = () if timed else ("the trace holds no times of kernels: compute is unknown, and taken as none",)
    machines = machines_of(loaded.scenario, range(min(rebuilt.program.ranks, loaded.scenario.cluster.ranks)))
    program = rebuilt.program
    if not machines.alike and len(machines.rank) == program.ranks:
        program, notes = replace(program, ops=machines.scaled(program.ops)), (*notes, *machines.notes())
    if (digest := FORMS.digest(form)) is not None:
        made_with = {**loaded.resolved.get("extensions", {}), form: digest}
        loaded = replace(loaded, resolved={**loaded.resolved, "extensions": made_with})
    try:
        result = _run(loaded, lambda _: _one(program, notes), watch, progress)
    except SimulationError:
        rebuilt.refuse_circle()
        raise
    known = timed and rebuilt.flops_per_rank > 0
    work = IterationWork(None, None, rebuilt.flops_per_rank * rebuilt.program.ranks, None) if known else None
    return replace(result, capture=agreement(rebuilt, form, result.spans), work=work)


def _run(
    loaded: LoadedScenario,
    prepare: Callable[[Fabric], _Ready],
    watch: Watch | None,
    progress: Callable[[float], None] | None,
) -> Result:
    scenario = loaded.scenario
    ready: _Ready
    report = (
        None if progress is None else (lambda done: progress(done / sum(len(job.program.ops) for job in ready.jobs)))
    )
    env = simpy.Environment()
    fabric = Fabric(env, scenario, taps=True, watch=watch, progress=report)
    began = time.perf_counter()
    ready, beside = prepare(fabric), streams(scenario)
    replays = run(env, fabric, ready.jobs, beside)
    wall = time.perf_counter() - began
    program, replayed, records = joined(ready.jobs, replays)
    if replayed.end <= replayed.start:
        msg = f"{scenario.name}: the iteration took no time: nothing was simulated; give a job that computes or sends"
        raise SimulationError(msg)
    others = crossing(fabric, beside)
    calls = call_records(fabric, program, replayed, sent_over(others, replayed.end))
    some, counted = program.representatives, counters(fabric, "dag_nodes")
    if some is not None and fabric.wiring.folding is not None:
        counted["folded_ranks"] = program.ranks - len(some)
        calls = replace(calls, copies=_copies(program, calls, fabric.wiring.folding.rank_of))
    result = Result(
        name=scenario.name,
        source=loaded.source,
        resolved=loaded.resolved,
        transport=scenario.transport.name,
        engine=scenario.engine,
        seed=scenario.seed,
        version=provenance.version(),
        ops=program.ops,
        spans=replayed.spans,
        timers=program.timers,
        calls=calls,
        links=link_records(fabric, program, replayed.end, crossed_by(others)),
        series=rate_series(fabric, replayed.end),
        slowdowns=fabric.world.slowdowns.copy(),
        counters=counted,
        ranks=None if some is None else program.ranks,
        iteration=replayed.end - replayed.start,
        wall_seconds=wall,
        packets=None if fabric.recorder is None else fabric.recorder.packets(),
        notes=(*ready.notes, *remarks(scenario, loaded.asked, ready.ranks), *_notes(fabric, beside, replayed.end)),
        jobs=records if ready.named else (),
        failures=fabric.failures.records(replayed.end),
        asked=loaded.asked,
    )
    large = sum(getattr(table, "nbytes", 0) for table in vars(fabric.world).values()) > _LARGE
    del env, fabric
    if large:  # the parts of a fabric refer to one another: Python would keep its tables for some runs more
        gc.collect()
    return result


def _notes(fabric: Fabric, beside: Sequence[Stream], end: int) -> list[str]:
    """Say of a run until `end`, ps, what became of traffic, what is left out, what was idle, and what failures did."""
    traffic = [stream.note(end) for stream in beside]
    ticking = [_TICKING] if fabric.world.communicators["ticking"].any() else []
    idle = uncrossed(fabric, np.flatnonzero(carried(fabric.parts)[0][: len(fabric.platform.wires.names)]))
    return [*traffic, *ticking, *([idle] if idle else ()), *fabric.failures.notes(end)]
