"""Layouts on their way through a search: what is out, what it takes at least, and what a run of it would be given."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from fabricsim.errors import FabricsimError, InputError, ScenarioError
from fabricsim.run.bill import COST, POWER, per_gpu
from fabricsim.run.pipeline import build_plan
from fabricsim.run.search.bound import NOT_IN_KERNELS, HostRates, KernelBound, LeastTimes, brief
from fabricsim.run.search.layouts import Layout, job_tables
from fabricsim.scenario.explain import explain
from fabricsim.scenario.job import Job
from fabricsim.scenario.job_checks import job_problems
from fabricsim.scenario.load import LoadedScenario, load
from fabricsim.scenario.prices import read_prices
from fabricsim.scenario.suggest import show
from fabricsim.scenario.toml_text import SET
from fabricsim.units import human_bytes
from fabricsim.workload.fit import fullest, usable_memory
from fabricsim.workload.flops import tokens

_BOUNDS = 3
_UNSAID = {"job.parallelism.zero": 0, "job.recompute": "none", "job.schedule": "1f1b"}


class Budget(NamedTuple):
    """What networks cost and draw per GPU by a list of `prices`, and at most; US dollars and watts."""

    prices: str
    cost: float = float("inf")
    power: float = float("inf")


@dataclass(frozen=True)
class _Network:
    """The scenario without what layouts have of its job, what its network costs, and what bounds jobs in it.

    `unpriced`: why it has no price, if one is asked for.
    """

    base: LoadedScenario
    costs: dict[str, float]
    unpriced: str
    kernels: KernelBound
    hosts: HostRates


@dataclass
class Candidate:
    """A layout of a search.

    `layout`: values of its keys. `tables`: its scenario as resolved. `network`: the scenario without its job.
    `costs`: of the network; empty if nothing is priced. `reason`: why it is out, if it is. `job`: its job, if that fits
    together. `bounds`: no simulation of it takes less, seconds: by its kernels alone, by all that a rank does, and by
    the order of its passes; the last two are found as it is weighed. `own`: whether it is that of the scenario itself.
    `tokens`: of an iteration; `work`: the same over those of the scenario, by which times are divided to be compared.
    """

    layout: Layout
    tables: dict[str, Any]
    network: _Network
    reason: str = ""
    job: Job | None = None
    bounds: tuple[float, ...] = (0.0,)
    own: bool = False
    tokens: int = 0
    work: float = 1.0

    @property
    def costs(self) -> dict[str, float]:
        """Of the network."""
        return self.network.costs

    @property
    def cost(self) -> float:
        """Of the network; 0 if nothing is priced."""
        return self.costs.get(COST, 0.0)

    @property
    def bound(self) -> float:
        """The highest of its bounds."""
        return self.bounds[-1]

    @property
    def least(self) -> float:
        """The highest of its bounds, for the work of the scenario's iteration."""
        return self.per_work(self.bound)

    def per_work(self, time: float) -> float:
        """Scale a time of its iteration to the work of the scenario's."""
        return time / self.work

    @property
    def weighed(self) -> bool:
        """Whether there is nothing more to find out but by simulating it."""
        return len(self.bounds) == _BOUNDS or bool(self.reason) or self.job is None

    def weigh(self) -> None:
        """Find the next bound, if it fits into memory: with few micro-batches first, which is soon known."""
        if self.weighed or self.job is None:
            return
        job, first = self.job, len(self.bounds) == 1
        looked, found = brief(job) if first else job, self.bound
        try:
            if not self._lacks_memory(looked):
                least = self._least(looked)
                found = least.filled(job) if first else least.scheduled(job)
        except FabricsimError as error:
            self.reason = "" if first else str(error)  # a schedule may be none for few micro-batches
        self.bounds = (*self.bounds, max(self.bound, found))

    def _lacks_memory(self, job: Job) -> bool:
        (stage, need), has = fullest(job), usable_memory(self.network.base.scenario.cluster.gpu)
        if need.total > has:
            self.reason = f"needs {human_bytes(need.total)} on each GPU of stage {stage}, has {human_bytes(has)}"
        return need.total > has

    def _least(self, job: Job) -> LeastTimes:
        scenario = self.network.base.scenario.model_copy(update={"job": job})
        plan = build_plan(LoadedScenario(scenario, "", {}, self.network.base.path))
        return LeastTimes(plan, scenario, self.network.hosts)


class Candidates:
    """Make candidates of layouts; what they have of keys that are no part of the job is made once.

    `given`: keys that the user gave values of, each of which must be one of a job.
    """

    def __init__(self, loaded: LoadedScenario, budget: Budget | None, given: Collection[str] = ()) -> None:
        self._loaded, self._budget, self._given = loaded, budget, given
        self._prices = None if budget is None else read_prices(budget.prices)
        self._made: dict[str, _Network] = {}

    def of(self, layout: Layout) -> Candidate:
        """Say of a layout why it is out before its memory is looked at, or what its kernels take at least.

        Raises ScenarioError if a given key is none of a job, or cannot have a value.
        """
        network = self._network({key: value for key, value in layout.items() if not key.startswith("job.")})
        one = Candidate(layout, _tables(network.base, job_tables(network.base.resolved["job"], layout)), network)
        if reason := self._too_dear(network):
            one.reason = reason
            return one
        try:
            job = Job.model_validate(one.tables["job"])
        except ValidationError as error:
            mistakes = [replace(each, key=f"job.{each.key}") for each in explain(error, Job)]
            if wrong := [replace(each, where=SET) for each in mistakes if each.key in self._given]:
                raise ScenarioError(wrong) from error
            one.reason = str(mistakes[0])
            return one
        if mistakes := job_problems(job):
            one.reason = str(mistakes[0])
            return one
        self._take_job(one, job)
        one.bounds = (network.kernels.least(job, _kernels(layout)),)
        return one

    def mark(self, found: list[Candidate], own: LoadedScenario, keys: Sequence[str]) -> None:
        """Mark the layout that is to be tried in any case; it is added to others if none is the same.

        `own`: a scenario that has it, the searched one or that on GPUs with more memory.
        Raises InputError if none of their networks has a price, and one is asked for.
        """
        if not found:
            return
        if all(one.network.unpriced for one in found):
            none = f"none of {len(found):,} layouts can be priced"
            raise InputError(f"{self._loaded.path}: {none}; the first of them {found[0].reason}")
        job, same = own.scenario.job, self._loaded.scenario
        alike = (one for one in found if one.job == job and one.network.base.scenario == same)
        marked = next(alike, None)
        if marked is None:
            found.append(self.own(own, keys))
            return
        _take_as_own(marked, own)

    def own(self, own: LoadedScenario, keys: Sequence[str]) -> Candidate:
        """Make a candidate of a scenario that has its layout already; see `mark`."""
        made = Candidate({key: _value(own.resolved, key) for key in keys}, {}, self._network({}))
        if own.scenario.job is not None:
            self._take_job(made, own.scenario.job)
        made.reason = self._too_dear(made.network)
        _take_as_own(made, own)
        return made

    def _take_job(self, one: Candidate, job: Job) -> None:
        searched = self._loaded.scenario.job
        one.job, one.tokens = job, tokens(job)
        one.work = 1.0 if searched is None else one.tokens / tokens(searched)

    def _too_dear(self, network: _Network) -> str:
        if (budget := self._budget) is None or network.unpriced:
            return network.unpriced
        cost, power = network.costs[COST], network.costs[POWER]
        told = f"costs US$ {cost:,.0f} and draws {power:.4g} W per GPU, over what it may"
        return told if cost > budget.cost or power > budget.power else ""

    def _network(self, others: Layout) -> _Network:
        """Lay the keys of a layout that are no part of the job over the scenario."""
        if (key := repr(others)) not in self._made:
            base = self._loaded
            if others:
                base = load({name: table for name, table in base.resolved.items() if name != "extensions"}, others)
            kernels, hosts = KernelBound(base.scenario), HostRates.of(base.scenario)
            self._made[key] = _Network(base, *self._priced(base, others), kernels, hosts)
        return self._made[key]

    def _priced(self, base: LoadedScenario, others: Layout) -> tuple[dict[str, float], str]:
        """Price the network that keys which are no part of the job give; gives costs, or why there are none."""
        if self._prices is None:
            return {}, ""
        try:
            return per_gpu(base.scenario, self._prices), ""
        except InputError as error:
            chosen = " and ".join(f"{key} = {show(value)}" for key, value in others.items())
            return {}, f"has no price{' with ' * bool(chosen)}{chosen}: {error}"


def _take_as_own(one: Candidate, own: LoadedScenario) -> None:
    one.own, one.network, one.tables = True, replace(one.network, base=own), _tables(own, own.resolved["job"])


def _kernels(layout: Layout) -> str:
    return repr([value for key, value in layout.items() if key not in NOT_IN_KERNELS])


def _tables(base: LoadedScenario, job: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a job over the tables of a scenario; code of users is loaded already."""
    return {**{key: table for key, table in base.resolved.items() if key != "extensions"}, "job": job}


def _value(tables: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  as of TOML
    """Find the value of a key that a scenario has; the name of a table, and the default of what it does not write."""
    found: Any = tables
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return found.get("name", "own")
    return _UNSAID.get(key, 1) if found is None and key.startswith("job.") else found
