"""Many runs of one scenario with other values of the parameters that are not known exactly.

Each such parameter is log-normal around what its preset says, independent of the others, with the spread of its grade
(`SPREADS`). First each is alone one standard deviation larger, then smaller, which tells what it brings; then all are
drawn together. Both sides count, as a share cannot be above 1 and the slower of two rates matters alone.

What a model with the right parameters would be off besides is `fabricsim.run.model_error`'s.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from fabricsim.errors import InputError, ScenarioError
from fabricsim.results.uncertainty import Influence, Uncertainty
from fabricsim.run.model_error import interval, model_spread
from fabricsim.run.pipeline import simulate
from fabricsim.run.result import Result
from fabricsim.scenario.explain import spec_at
from fabricsim.scenario.load import LoadedScenario, from_tables
from fabricsim.scenario.scenario import Scenario
from fabricsim.units import PS_PER_S, seconds

SPREADS = {"T": log(1.05), "U": log(1.3)}
"""Standard deviation of the logarithm of a parameter's factor, by grade; what is exact is not varied.

Our choice, not measured: a typical figure within 5 % two times of three, an uncertain one within 30 %. How many
measured iterations lie inside the intervals that come of it is what ``fabricsim validate --uncertainty`` prints.
"""

RUNS, FEWEST = 100, 10
"""Runs that are drawn if nothing else is asked, and those that an interval needs at least."""

_LEAST = 1e-6  # relative change of the iteration below which a parameter brings nothing
_QUANTITY = re.compile(r"\s*([0-9][0-9_.]*(?:[eE][+-]?\d+)?)\s*(\D.*)")
_SIZE = re.compile(r"[kKMGTP]?i?B")
_LAUNCH = ("job", "kernel_launch")
_MODEL = "what no parameter stands for"


class UncertainParameter(NamedTuple):
    """A parameter that may be off: its path, what is written, its grade and its spread."""

    path: tuple[str, ...]
    value: str | float
    grade: str

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of its factor."""
        return SPREADS[self.grade]

    def times(self, factor: float) -> str | float:
        """Return the value times a factor, within what the scenario takes."""
        if isinstance(self.value, str):
            found = _QUANTITY.fullmatch(self.value)
            assert found is not None, self.value  # noqa: S101  `parameters` takes no others
            return f"{float(found[1].replace('_', '')) * factor:.9f}{found[2]}"
        least, most = _limits(self.path)
        return min(max(self.value * factor, least), most)


class Change(NamedTuple):
    """Relative change of the iteration if a parameter is one standard deviation larger, and smaller."""

    larger: float
    smaller: float

    @property
    def variance(self) -> float:
        """What it adds to the variance of the iteration: the mean of both squares."""
        return (self.larger**2 + self.smaller**2) / 2


def parameters(loaded: LoadedScenario) -> list[UncertainParameter]:
    """List the parameters of a scenario that are not exact: times, rates and shares that its presets give."""
    found = [
        UncertainParameter(path, value, grade)
        for path, grade in loaded.grades.items()
        if grade in SPREADS and (value := _variable(_at(loaded.resolved, path))) is not None
    ]
    job = loaded.scenario.job
    if job is not None and "kernel_launch" not in loaded.resolved["job"]:  # calibrated, see scenario/job.py
        found.append(UncertainParameter(_LAUNCH, f"{job.kernel_launch / PS_PER_S * 1e6:.9g}us", "T"))
    return found


def uncertainty(
    loaded: LoadedScenario, runs: int = RUNS, seed: int = 0, progress: Callable[[float], None] | None = None
) -> Uncertainty:
    """Simulate a scenario with drawn values of its uncertain parameters.

    `loaded`: with a job.
    `runs`, `seed`: how many to draw, at least 10, and from which seed.
    `progress`: called with the share that is done.
    Raises InputError if there are too few runs, or none of its parameters has a grade: all were written by the user;
        FabricsimError as of `fabricsim.simulate`.
    """
    if runs < FEWEST:
        raise InputError(f"--uncertainty {runs}: too few runs for an interval; take {FEWEST} or more")
    known = parameters(loaded)
    if not known:
        msg = f"{loaded.path}: none of its values is of a preset that says how certain it is; name presets in it"
        raise InputError(msg)
    total = 1 + 2 * len(known) + runs
    done = 0

    def iterations(factors: Mapping[UncertainParameter, float]) -> dict[str, float]:
        nonlocal done
        found = _iterations(simulate(varied(loaded, factors)))
        done += 1
        if progress is not None:
            progress(done / total)
        return found

    def longest(factors: Mapping[UncertainParameter, float]) -> float:
        return max(iterations(factors).values())

    middle = longest({})
    changes = {
        each: Change(*(longest({each: exp(side * each.spread)}) / middle - 1 for side in (1, -1))) for each in known
    }
    model = model_spread()
    drawn = [iterations(factors) for factors in _drawn(known, runs, seed)]
    low, high = interval([max(found.values()) for found in drawn], model)
    jobs = {name: interval([found[name] for found in drawn], model) for name in drawn[0] if name}
    return Uncertainty(low, high, runs, seed, _ranked(changes, model), jobs)


def drawn_iterations(loaded: LoadedScenario, runs: int) -> list[float]:
    """Simulate a scenario with all its parameters drawn, without asking what each of them brings; returns seconds."""
    drawn = _drawn(parameters(loaded), runs, seed=0)
    return [max(_iterations(simulate(varied(loaded, factors))).values()) for factors in drawn]


def _iterations(result: Result) -> dict[str, float]:
    """Give the time of each of several jobs from its own start, by name, or that of the only one, s.

    Neither parameters nor the model are off in what a scenario says of starts.
    """
    if not result.jobs:
        return {"": seconds(result.iteration)}
    return {job.name: seconds(job.end - job.start) for job in result.jobs}


def varied(loaded: LoadedScenario, factors: Mapping[UncertainParameter, float]) -> LoadedScenario:
    """Return a scenario with some of its parameters times a factor; one that does not fit the others stays as it is."""
    tables = copy.deepcopy(loaded.resolved)
    for each, factor in factors.items():
        _put(tables, each.path, each.times(factor))
    try:
        return replace(loaded, scenario=from_tables(tables), resolved=tables)
    except ScenarioError as error:
        wrong = {mistake.key for mistake in error.mistakes}
        fitting = {each: factor for each, factor in factors.items() if ".".join(each.path) not in wrong}
        if len(fitting) == len(factors):
            raise
        return varied(loaded, fitting)


def _drawn(chosen: Sequence[UncertainParameter], runs: int, seed: int) -> Iterator[dict[UncertainParameter, float]]:
    for row in np.random.default_rng(seed).standard_normal((runs, len(chosen))).tolist():
        yield {each: exp(each.spread * deviation) for each, deviation in zip(chosen, row, strict=True)}


def _ranked(changes: Mapping[UncertainParameter, Change], model: float) -> list[Influence]:
    """Order parameters that bring something, and the model itself, by what each brings alone."""
    felt = {each: change for each, change in changes.items() if max(map(abs, change)) > _LEAST}
    own = Change(exp(model) - 1, exp(-model) - 1)
    variance = sum(change.variance for change in felt.values()) + own.variance
    found = [
        Influence(".".join(each.path), str(each.value), each.grade, each.spread, *change, change.variance / variance)
        for each, change in felt.items()
    ]
    found.append(Influence(_MODEL, "", "", model, *own, own.variance / variance))
    return sorted(found, key=lambda each: (-each.share, each.key))


def _variable(value: object) -> str | float | None:
    """Return a value if it is a time, a rate or a share above 0."""
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value)
        varies = found is not None and float(found[1].replace("_", "")) > 0 and not _SIZE.fullmatch(found[2])
        return value if varies else None
    return value if isinstance(value, float) and value > 0 else None


def _at(tables: Mapping[str, Any], path: Sequence[str]) -> object:
    found: Any = tables
    for key in path:
        found = found[key]
    return found


def _put(tables: dict[str, Any], path: Sequence[str], value: object) -> None:
    for key in path[:-1]:
        tables = tables[key]
    tables[path[-1]] = value


def _limits(path: tuple[str, ...]) -> tuple[float, float]:
    """Give the least and the most that a key takes, as far as its type says."""
    model = spec_at(path[:-1], Scenario)
    info = model.model_fields.get(path[-1]) if model is not None else None
    marks = list(_marks(info.metadata)) if info is not None else []
    least = [getattr(mark, "ge", None) for mark in marks]
    most = [getattr(mark, "le", None) for mark in marks]
    return (
        max((limit for limit in least if limit is not None), default=0.0),
        min((limit for limit in most if limit is not None), default=float("inf")),
    )


def _marks(metadata: Sequence[object]) -> Iterator[object]:
    for mark in metadata:
        yield mark
        yield from getattr(mark, "metadata", ())
