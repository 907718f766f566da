"""The search: branch and bound over all layouts, each simulated unless it cannot be the best.

::

    layouts ── fit together? ── fit into memory? ── bound ──► in order of the bound, simulate ──► ranked index

Once every layout whose bound is below the best time is simulated, no other one can be better: what comes out is what
simulating all of them would give, the same whatever the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fabricsim.errors import FabricsimError, InputError
from fabricsim.run.pipeline import build_plan
from fabricsim.run.search.bound import least_time
from fabricsim.run.search.layouts import choices, job_tables, layouts
from fabricsim.run.sweeps import index
from fabricsim.run.sweeps.runs import SweptRun, Task, carry_out, crashed
from fabricsim.run.sweeps.workers import results
from fabricsim.run.warm import compile_kernels
from fabricsim.scenario.job import Job
from fabricsim.scenario.job_checks import job_problems
from fabricsim.scenario.load import LoadedScenario, load
from fabricsim.units import human_bytes
from fabricsim.workload.fit import fullest, usable_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fabricsim.run.search.layouts import Layout

OUT = "out"
"""Status of a layout that is not simulated."""


@dataclass(frozen=True)
class Found:
    """What came of a search.

    `rows`: of the index: layouts that were simulated, the quickest first, then those that are out, with the reason.
    `layouts`, `simulated`: how many. `keys`: that layouts differ in. `files`: of the index.
    """

    rows: list[dict[str, Any]]
    layouts: int
    simulated: int
    keys: list[str]
    files: list[Path]


@dataclass
class _Candidate:
    layout: Layout
    tables: dict[str, Any]
    bound: float = 0.0
    reason: str = ""


def search(  # noqa: PLR0913  the rest are rarely given, and by name only
    loaded: LoadedScenario,
    output: Path,
    *,
    given: Mapping[str, Sequence[Any]] | None = None,
    exhaustive: bool = False,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """Find the quickest layout of a scenario's job on all GPUs of its cluster.

    `output`: folder of the index and of the files of runs; runs that are there are not made again.
    `given`: values of keys in place of the usual ones (`fabricsim.run.search.layouts.choices`).
    `exhaustive`: whether to simulate also what the bound rules out.
    `workers`, `scheduler`: as of `fabricsim.run.sweeps.workers.results`; what comes out does not depend on them.
    Raises InputError if there is no job, or no layout fits.
    """
    job = loaded.scenario.job
    if job is None or loaded.scenario.jobs:
        msg = f"{loaded.path}: a search is for a scenario of one [job]"
        raise InputError(msg)
    keys = choices(loaded.scenario, job, given or {})
    found = [_candidate(layout, loaded) for layout in layouts(loaded.scenario.cluster.ranks, keys)]
    fitting = sorted((number for number, one in enumerate(found) if not one.reason), key=lambda n: (found[n].bound, n))
    if not fitting:
        msg = f"{loaded.path}: none of {len(found):,} layouts fits"
        reasons = sorted((one.reason for one in found), key=lambda reason: not reason.startswith("needs"))
        msg += f"; such as: {reasons[0]}" if found else "; give other values with --set key=a,b"
        raise InputError(msg)
    compile_kernels(loaded.scenario.engine)
    folder = output / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [Task(number, "job", found[number].tables, {}, {}, folder) for number in fitting]
    outcomes = _simulated(tasks, found, results(carry_out, tasks, workers, scheduler), exhaustive, progress)
    varied = [key for key in found[0].layout if len({str(one.layout[key]) for one in found}) > 1]
    rows = _rows(found, outcomes, varied)
    return Found(rows, len(found), len(outcomes), varied, index.write(rows, output))


def _candidate(layout: Layout, loaded: LoadedScenario) -> _Candidate:
    """Say why a layout is out before anything is simulated, or what it takes at least."""
    scenario, others = loaded.scenario, {key: value for key, value in layout.items() if not key.startswith("job.")}
    base = _with(loaded, tuple(others.items())) if others else loaded
    tables = {**base.resolved, "job": job_tables(base.resolved["job"], layout)}
    tables.pop("extensions", None)
    one = _Candidate(layout, tables)
    try:
        job = Job.model_validate(tables["job"])
    except ValidationError as error:
        one.reason = str(error.errors()[0]["msg"])
        return one
    if mistakes := job_problems(job):
        one.reason = str(mistakes[0])
        return one
    gpu = base.scenario.cluster.gpu
    stage, need = fullest(job)
    if need.total > usable_memory(gpu):
        one.reason = (
            f"needs {human_bytes(need.total)} on each GPU of stage {stage}, has {human_bytes(usable_memory(gpu))}"
        )
        return one
    scenario = base.scenario.model_copy(update={"job": job})
    try:
        plan = build_plan(LoadedScenario(scenario, "", {}, loaded.path))
    except FabricsimError as error:
        one.reason = str(error)
        return one
    one.bound = least_time(plan, scenario)
    return one


@lru_cache(maxsize=64)
def _laid(source: str, path: Path, settings: tuple[tuple[str, Any], ...]) -> LoadedScenario:
    del source
    return load(path, dict(settings))


def _with(loaded: LoadedScenario, settings: tuple[tuple[str, Any], ...]) -> LoadedScenario:
    """Lay settings that are no part of the job over a scenario."""
    return _laid(loaded.source, loaded.path, settings)


def _simulated(
    tasks: Sequence[Task],
    found: Sequence[_Candidate],
    coming: Iterator[tuple[Task, Any, BaseException | None]],
    exhaustive: bool,  # noqa: FBT001  as of `search`
    progress: Callable[[float], None] | None,
) -> dict[int, SweptRun]:
    """Take what comes until no layout that is left can be better; what its bound rules out by then is given up."""
    outcomes: dict[int, SweptRun] = {}
    best, place = float("inf"), 0
    for task, run, error in coming:
        outcome: SweptRun = crashed(task, error) if error is not None else run[0]
        outcomes[task.number] = outcome
        if outcome["status"] == "done":
            best = min(best, float(outcome["results"]["iteration_time_s"] or best))
        while place < len(tasks) and tasks[place].number in outcomes:
            place += 1
        if progress is not None:
            below = sum(found[one.number].bound <= best for one in tasks)
            progress(len(outcomes) / (len(tasks) if exhaustive else max(below, len(outcomes))))
        if not exhaustive and (place == len(tasks) or found[tasks[place].number].bound > best):
            break
    return {n: run for n, run in outcomes.items() if exhaustive or found[n].bound <= best}


def _rows(found: Sequence[_Candidate], outcomes: Mapping[int, SweptRun], varied: Sequence[str]) -> list[dict[str, Any]]:
    best = min(
        (float(one["results"]["iteration_time_s"] or 0) for one in outcomes.values() if one["results"]), default=0
    )
    every: dict[int, SweptRun] = {}
    for number, one in enumerate(found):
        reason = one.reason or f"takes {one.bound:.6g} s at least, and the best one {best:.6g} s"
        every[number] = outcomes.get(number, {"run": "", "status": OUT, "results": {}, "error": reason})
    points = [{**{key: one.layout[key] for key in varied}, "bound_s": one.bound or None} for one in found]
    rows = index.rows(points, every)

    def rank(row: Mapping[str, Any]) -> tuple[bool, float, float]:
        took = row.get("iteration_time_s")
        return took is None, took or 0.0, row["bound_s"] or float("inf")

    return sorted(rows, key=rank)
