"""The search: branch and bound over all layouts, each simulated unless it cannot be the best.

::

    layouts ── fit together? ── fit into memory? ── bound ──► in order of the bound, simulate ──► ranked index

Once every layout whose bound is below the best time is simulated, no other one can be better: what comes out is what
simulating all of them would give, the same whatever the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from fabricsim.errors import FabricsimError, InputError
from fabricsim.run.bill import COST, POWER, per_gpu
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
from fabricsim.scenario.prices import read_prices
from fabricsim.units import human_bytes
from fabricsim.workload.fit import fullest, usable_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fabricsim.run.search.layouts import Layout
    from fabricsim.scenario.scenario import Scenario

_UNSAID = {"job.parallelism.zero": 0, "job.recompute": "none", "job.schedule": "1f1b"}
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


class Budget(NamedTuple):
    """What networks cost and draw per GPU by a list of `prices`, and at most; US dollars and watts."""

    prices: str
    cost: float = float("inf")
    power: float = float("inf")


class _Networks:
    """Scenarios with what layouts have of keys that are no part of the job, and their costs, each made once."""

    def __init__(self, loaded: LoadedScenario, budget: Budget | None) -> None:
        self._loaded, self.prices = loaded, None if budget is None else read_prices(budget.prices)
        self._made: dict[str, tuple[LoadedScenario, dict[str, float]]] = {}

    def of(self, layout: Layout) -> tuple[LoadedScenario, dict[str, float]]:
        """Lay the keys of a layout over the scenario."""
        others = {key: value for key, value in layout.items() if not key.startswith("job.")}
        if (key := repr(others)) not in self._made:
            base = self._loaded
            if others:
                base = load({name: table for name, table in base.resolved.items() if name != "extensions"}, others)
            costs = {} if self.prices is None else per_gpu(base.scenario, self.prices)
            self._made[key] = base, costs
        return self._made[key]


@dataclass
class _Candidate:
    layout: Layout
    tables: dict[str, Any]
    costs: dict[str, float]
    bound: float = 0.0
    reason: str = ""
    scenario: Scenario | None = None
    own: bool = False

    @property
    def cost(self) -> float:
        """Of the network; 0 if nothing is priced."""
        return self.costs.get(COST, 0.0)


def search(  # noqa: PLR0913  the rest are rarely given, and by name only
    loaded: LoadedScenario,
    output: Path,
    *,
    given: Mapping[str, Sequence[Any]] | None = None,
    budget: Budget | None = None,
    exhaustive: bool = False,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """Find the quickest layout of a scenario's job on all GPUs of its cluster; if networks are priced, at each cost.

    `output`: folder of the index and of the files of runs; runs that are there are not made again.
    `given`: values of keys in place of the usual ones (`fabricsim.run.search.layouts.choices`).
    `budget`: prices of networks, and what they may cost and draw.
    `exhaustive`: whether to simulate also what the bound rules out.
    `workers`, `scheduler`: as of `fabricsim.run.sweeps.workers.results`; what comes out does not depend on them.
    Raises InputError if there is no job, or no layout fits.
    """
    job = loaded.scenario.job
    if job is None or loaded.scenario.jobs:
        msg = f"{loaded.path}: a search is for a scenario of one [job]"
        raise InputError(msg)
    keys = choices(loaded.scenario, job, given or {})
    networks = _Networks(loaded, budget)
    found = [_candidate(layout, networks, budget) for layout in layouts(loaded.scenario.cluster.ranks, keys)]
    _mark_own(found, loaded, networks, [*keys, "job.parallelism.data"], budget)
    places = (number for number, one in enumerate(found) if not one.reason)
    fitting = sorted(places, key=lambda place: (not found[place].own, found[place].bound, place))
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


def _candidate(layout: Layout, networks: _Networks, budget: Budget | None) -> _Candidate:
    """Say why a layout is out before anything is simulated, or what it takes at least."""
    base, costs = networks.of(layout)
    one = _Candidate(layout, _tables(base, job_tables(base.resolved["job"], layout)), costs)
    _weigh(one, base, budget)
    return one


def _tables(base: LoadedScenario, job: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a job over the tables of a scenario; code of users is loaded already."""
    return {**{key: table for key, table in base.resolved.items() if key != "extensions"}, "job": job}


def _mark_own(
    found: list[_Candidate], loaded: LoadedScenario, networks: _Networks, keys: Sequence[str], budget: Budget | None
) -> None:
    """Mark the layout that the scenario has itself, which is simulated in any case; it is added if none is the same."""
    same = next((one for one in found if one.scenario == loaded.scenario), None)
    if same is None and found:
        told = {key: _value(loaded.resolved, key) for key in keys}
        same = _Candidate(told, _tables(loaded, loaded.resolved["job"]), networks.of({})[1])
        _weigh(same, loaded, budget)
        found.append(same)
    if same is not None:
        same.own = True


def _value(tables: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  as of TOML
    """Find the value of a key that a scenario has; the name of a table, and the default of what it does not write."""
    found: Any = tables
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return found.get("name", "own")
    return _UNSAID.get(key, 1) if found is None and key.startswith("job.") else found


def _weigh(one: _Candidate, base: LoadedScenario, budget: Budget | None) -> None:
    """Work out what a layout takes at least, or why it is out."""
    _reject(one, base, budget)
    if one.reason or one.scenario is None:
        return
    try:
        plan = build_plan(LoadedScenario(one.scenario, "", {}, base.path))
    except FabricsimError as error:
        one.reason = str(error)
        return
    one.bound = least_time(plan, one.scenario)


def _reject(one: _Candidate, base: LoadedScenario, budget: Budget | None) -> None:
    """Say what about a layout does not go together, fit or may not be; else make its scenario."""
    if budget is not None and (one.cost > budget.cost or one.costs[POWER] > budget.power):
        one.reason = f"costs US$ {one.cost:,.0f} and draws {one.costs[POWER]:.4g} W per GPU, over what it may"
        return
    try:
        job = Job.model_validate(one.tables["job"])
    except ValidationError as error:
        one.reason = str(error.errors()[0]["msg"])
        return
    if mistakes := job_problems(job):
        one.reason = str(mistakes[0])
        return
    (stage, need), has = fullest(job), usable_memory(base.scenario.cluster.gpu)
    if need.total > has:
        one.reason = f"needs {human_bytes(need.total)} on each GPU of stage {stage}, has {human_bytes(has)}"
        return
    one.scenario = base.scenario.model_copy(update={"job": job})


def _simulated(
    tasks: Sequence[Task],
    found: Sequence[_Candidate],
    coming: Iterator[tuple[Task, Any, BaseException | None]],
    exhaustive: bool,  # noqa: FBT001  as of `search`
    progress: Callable[[float], None] | None,
) -> dict[int, SweptRun]:
    """Take what comes until no layout that is left can be better; what its bound rules out by then is given up."""
    outcomes: dict[int, SweptRun] = {}
    best: dict[float, float] = {}  # time by cost of the network
    place = 0

    def beaten(number: int) -> bool:
        return not found[number].own and found[number].bound > _best(best, found[number].cost)

    for task, run, error in coming:
        outcome: SweptRun = crashed(task, error) if error is not None else run[0]
        outcomes[task.number] = outcome
        if outcome["status"] == "done":
            cost = found[task.number].cost
            best[cost] = min(
                best.get(cost, float("inf")), float(outcome["results"]["iteration_time_s"] or float("inf"))
            )
        while place < len(tasks) and (
            tasks[place].number in outcomes or (not exhaustive and beaten(tasks[place].number))
        ):
            place += 1
        if progress is not None:
            below = len(tasks) if exhaustive else sum(not beaten(one.number) for one in tasks)
            progress(len(outcomes) / max(below, len(outcomes)))
        if place == len(tasks):
            break
    return {number: run for number, run in outcomes.items() if exhaustive or not beaten(number)}


def _best(times: Mapping[float, float], cost: float) -> float:
    """Find the best time on networks that cost no more."""
    return min((time for other, time in times.items() if other <= cost), default=float("inf"))


def _rows(found: Sequence[_Candidate], outcomes: Mapping[int, SweptRun], varied: Sequence[str]) -> list[dict[str, Any]]:
    times: dict[float, float] = {}
    for number, run in outcomes.items():
        if run["results"]:
            cost, took = found[number].cost, float(run["results"]["iteration_time_s"] or 0)
            times[cost] = min(times.get(cost, took), took)
    every: dict[int, SweptRun] = {}
    for number, one in enumerate(found):
        best = _best(times, one.cost)
        reason = one.reason or f"takes {one.bound:.6g} s at least, and the best one {best:.6g} s"
        every[number] = outcomes.get(number, {"run": "", "status": OUT, "results": {}, "error": reason})
    points = [
        {**{key: one.layout[key] for key in varied}, **one.costs, "bound_s": one.bound or None, "own": one.own or None}
        for one in found
    ]
    rows = index.rows(points, every)

    def rank(row: Mapping[str, Any]) -> tuple[bool, float, float]:
        took = row.get("iteration_time_s")
        return took is None, took or 0.0, row["bound_s"] or float("inf")

    return sorted(rows, key=rank)
