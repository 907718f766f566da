"""Layouts that Optuna proposes, if there are too many to look at each.

Its tree-structured Parzen estimator (Bergstra et al., NIPS 2011; Akiba et al., KDD 2019) proposes values of keys that
the quicker layouts so far have more often than the others. What is proposed is checked, weighed and bounded as in a
search of all layouts. Of all that is open by then those of the least bound are simulated, and Optuna is told what came
of that: the time, or the bound of what was not simulated. Layouts are proposed `PROPOSED` at a time and simulated
`SIMULATED` at a time, so that what comes out does not depend on the number of workers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from fabricsim.errors import InputError
from fabricsim.run.search.candidates import Candidate, Candidates
from fabricsim.run.search.layouts import Layout, completed
from fabricsim.run.sweeps.runs import SweptRun, Task, carried_out
from fabricsim.run.sweeps.workers import Workers
from fabricsim.scenario.scenario import Scenario

PROPOSED, SIMULATED = 64, 8
"""Layouts of one turn."""
_IDLE = 4
"""Turns in a row that bring nothing to simulate, after which nothing new is expected."""


class Sampled:
    """Layouts of a search that were proposed, and what came of them.

    `candidates`: makes them. `scenario`: has the GPUs and the seed of the proposals. `keys`: values of each to choose
    from. `first`: what is simulated in any case, and before others.
    Raises InputError if Optuna is not installed.
    """

    def __init__(
        self, candidates: Candidates, scenario: Scenario, keys: Mapping[str, Sequence[Any]], first: Candidate
    ) -> None:
        self._candidates, self._ranks, self._keys = candidates, scenario.cluster.ranks, keys
        self._study = _study(scenario.seed)
        self.found = [first]
        self.outcomes: dict[int, SweptRun] = {}
        self._numbers: dict[str, int] = {}  # of layouts that were proposed
        self._best = inf

    def run(self, trials: int, folder: Path, workers: Workers, progress: Callable[[float], None] | None) -> None:
        """Simulate so many layouts, unless nothing new is proposed any more.

        `folder`: of the files of runs.
        """
        self._simulate([0], folder, workers)
        idle = 0
        while len(self.outcomes) < trials and idle < _IDLE:
            proposed = [self._propose() for _ in range(PROPOSED)]
            chosen = sorted(filter(self._is_open, range(len(self.found))), key=lambda number: self.found[number].least)
            self._simulate(chosen[: min(SIMULATED, trials - len(self.outcomes))], folder, workers)
            idle = 0 if chosen else idle + 1
            for trial, number in proposed:
                self._study.tell(trial, inf if number is None else self._value(number))
            if progress is not None:
                progress(len(self.outcomes) / trials)

    def _propose(self) -> tuple[Any, int | None]:
        """Ask for a layout; gives Optuna's trial and the layout's number, None if its degrees do not fit the ranks."""
        trial = self._study.ask()
        places = {key: trial.suggest_int(key, 0, len(values) - 1) for key, values in self._keys.items()}
        layout = completed({key: self._keys[key][place] for key, place in places.items()}, self._ranks)
        return trial, None if layout is None else self._number(layout)

    def _number(self, layout: Layout) -> int:
        if (known := self._numbers.get(repr(layout))) is not None:
            return known
        number = self._numbers[repr(layout)] = len(self.found)
        one = self._candidates.of(layout)
        while not one.weighed and one.least <= self._best:
            one.weigh()
        self.found.append(one)
        return number

    def _is_open(self, number: int) -> bool:
        one = self.found[number]
        return number not in self.outcomes and not one.reason and one.least <= self._best

    def _value(self, number: int) -> float:
        """Give what Optuna is told: the time per work, or the bound that the layout is out by."""
        one, outcome = self.found[number], self.outcomes.get(number)
        if one.reason or (outcome is not None and outcome["status"] != "done"):
            return inf
        return one.per_work(one.bound if outcome is None else float(outcome["results"]["iteration_time_s"] or inf))

    def _simulate(self, numbers: Sequence[int], folder: Path, workers: Workers) -> None:
        tasks = (Task(number, "job", self.found[number].tables, {}, {}, folder) for number in numbers)
        self.outcomes |= {number: outcome for number, outcome, _ in carried_out(tasks, *workers)}
        self._best = min([self._best, *(self._value(number) for number in numbers)])


def _study(seed: int) -> Any:  # noqa: ANN401  an extra, whose types are not there without it
    try:
        import optuna  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InputError("--trials: Optuna is not installed: pip install 'fabricsim[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
