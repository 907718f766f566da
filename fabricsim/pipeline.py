"""The whole way, one arrow a line.

::

    scenario.toml ── load ──► Scenario ──┬─ compile_job ─► Program ─┐
                                         └─ Fabric ─────────────────┴─ fold, replay ─► Result

Each arrow makes a new type, so that a half-built thing cannot be simulated.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import simpy

from fabricsim import provenance
from fabricsim.engine.fabric import Fabric
from fabricsim.engine.folding import fold
from fabricsim.engine.records import call_records, counters, link_records, rate_series
from fabricsim.errors import InputError, SimulationError
from fabricsim.results.result import Result
from fabricsim.spec.load import LoadedScenario, from_tables, load
from fabricsim.workload.compile import JobPlan
from fabricsim.workload.fit import check_fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.engine.completions import Replay
    from fabricsim.engine.recorder import Watch
    from fabricsim.workload.program import Plan, Program

__all__ = ["LoadedScenario", "build_plan", "load", "reload", "simulate"]

_FEWEST = 128
"""Ranks of the smallest program that is folded unasked: smaller ones are quick, and show each rank."""


def reload(result: Result) -> LoadedScenario:
    """Take the scenario of an earlier result, to simulate it again.

    Raises
    ------
    ScenarioError
        Where this version of fabricsim no longer accepts it.
    """
    return LoadedScenario(from_tables(result.resolved), result.source, result.resolved, Path(result.name))


def build_plan(loaded: LoadedScenario) -> JobPlan:
    """Plan a scenario's job; its ``program`` writes it out.

    Raises
    ------
    InputError
        Where the scenario has no job.
    """
    job = loaded.scenario.job
    if job is None:
        msg = f"{loaded.path}: there is no [job] to run; add one, or use the fabric from a SimPy process"
        raise InputError(msg)
    return JobPlan(job, loaded.scenario.cluster.gpu)


def _prepared(fabric: Fabric, plan: Plan) -> Program:
    """Write out what is to be replayed: where the scenario has it so, of one rank for all that are alike."""
    scenario = fabric.scenario
    wanted = scenario.folding in {"on", "close"} or (scenario.folding == "auto" and plan.ranks >= _FEWEST)
    closely = scenario.folding == "close"
    folded = fold(fabric, plan, closely=closely) if wanted and scenario.engine == "flow" else None
    if folded is None:
        return plan.program(None)
    program, folding = folded
    fabric.fold(folding)
    return program


def _folded_ranks(program: Program) -> dict[str, int]:
    """Count the ranks that others stand for, where any do."""
    some = program.representatives
    return {} if some is None else {"folded_ranks": program.ranks - len(some)}


def simulate(
    loaded: LoadedScenario, *, watch: Watch | None = None, progress: Callable[[float], None] | None = None
) -> Result:
    """Run one training iteration of a scenario.

    Parameters
    ----------
    loaded
        What `load` gave.
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
        Where the program cannot run on this cluster, or nothing was delivered.
    InputError
        Where the scenario has no job, its job does not fit into the memory of its GPUs, or `watch` names what is
        not there.
    """
    scenario = loaded.scenario
    plan = build_plan(loaded)
    check_fit(plan.job, scenario.cluster.gpu)
    program: Program
    report = None if progress is None else (lambda done: progress(done / len(program.ops)))
    env = simpy.Environment()
    fabric = Fabric(env, scenario, taps=True, watch=watch, progress=report)
    began = time.perf_counter()
    program = _prepared(fabric, plan)
    done = fabric.replay(program)
    if fabric.recorder is not None:
        fabric.recorder.tap_flows()
    replay = cast("Replay", env.run(done))
    wall = time.perf_counter() - began
    if replay.end <= replay.start:
        msg = f"{scenario.name}: the iteration took no time: nothing was simulated"
        raise SimulationError(msg)
    calls = call_records(fabric, program, replay)
    return Result(
        name=scenario.name,
        source=loaded.source,
        resolved=loaded.resolved,
        transport=scenario.transport.name,
        engine=scenario.engine,
        seed=scenario.seed,
        version=provenance.version(),
        ops=program.ops,
        spans=replay.spans,
        timers=program.timers,
        calls=calls,
        links=link_records(fabric, program),
        series=rate_series(fabric, replay.end),
        slowdowns=fabric.world.slowdowns.copy(),
        counters={**counters(fabric, "dag_nodes"), **_folded_ranks(program)},
        ranks=None if program.representatives is None else program.ranks,
        iteration=replay.end - replay.start,
        wall_seconds=wall,
        packets=None if fabric.recorder is None else fabric.recorder.packets(),
    )
