"""The search: branch and bound over all layouts, each simulated unless it cannot be the best.

::

    layouts ── fit together? ── fit into memory? ── bound ──► in order of the bound, simulate ──► ranked index

Once every layout whose bound is below the best time is simulated, no other one can be better: what comes out is what
simulating all of them would give, the same whatever the number of workers. If a small gap to the best is good enough,
it ends as soon as no other layout can be better by more: the gap of solvers of integer programs, and as proven.

Layouts that differ in the tokens of an iteration are compared by the time that they take for as many tokens as the
scenario's own iteration has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fabricsim.errors import InputError
from fabricsim.run.pipeline import one_job
from fabricsim.run.search.candidates import Budget, Candidate, Candidates
from fabricsim.run.search.layouts import choices, layouts
from fabricsim.run.search.sampled import Sampled
from fabricsim.run.sweeps import index
from fabricsim.run.sweeps.runs import SweptRun, Task, carried_out
from fabricsim.run.sweeps.workers import ALONE, Workers
from fabricsim.run.warm import compile_kernels
from fabricsim.scenario.load import LoadedScenario

TOKENS = "tokens"
"""Column of the index, if layouts differ in the tokens of an iteration: they are ranked per token then."""
OUT = "out"
"""Status of a layout that is not simulated."""


class Extent(NamedTuple):
    """What a search simulates, if not all that may be the best.

    `trials`: so many layouts at most, of those that Optuna proposes. `exhaustive`: also what the bound rules out.
    `gap`: only what may be better than the best by more than this share of its time.
    """

    trials: int | None = None
    exhaustive: bool = False
    gap: float = 0.0


ALL_THAT_MAY_BE_BEST = Extent()


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


def search(  # noqa: PLR0913  the rest are rarely given, and by name only
    loaded: LoadedScenario,
    output: Path,
    *,
    given: Mapping[str, Sequence[Any]] | None = None,
    budget: Budget | None = None,
    extent: Extent = ALL_THAT_MAY_BE_BEST,
    own: LoadedScenario | None = None,
    workers: Workers = ALONE,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """Find the quickest layout of a scenario's job on all GPUs of its cluster; if networks are priced, at each cost.

    `output`: folder of the index and of the files of runs; runs that are there are not made again.
    `given`: values of keys in place of the usual ones (`fabricsim.run.search.layouts.choices`).
    `budget`: prices of networks, and what they may cost and draw.
    `extent`: what to simulate.
    `own`: whose layout is tried in any case, in place of the scenario's; it may have more memory.
    `workers`: who simulates; what comes out does not depend on them.
    Raises InputError if there is no job, no layout fits, or Optuna is wanted and not installed.
    """
    keys = choices(loaded.scenario, one_job(loaded), given or {})
    candidates, columns = Candidates(loaded, budget, given or {}), [*keys, "job.parallelism.data"]
    compile_kernels(loaded.scenario.engine)
    folder = output / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    if extent.trials is None:
        found = [candidates.of(layout) for layout in layouts(loaded.scenario.cluster.ranks, keys)]
        candidates.mark(found, own or loaded, columns)
        outcomes = _raced(_Race(found, folder, extent), workers, progress)
    else:
        sampled = Sampled(candidates, loaded.scenario, keys, candidates.own(own or loaded, columns))
        sampled.run(extent.trials, folder, workers, progress)
        found, outcomes = sampled.found, sampled.outcomes
    if not outcomes:
        msg = f"{loaded.path}: none of {len(found):,} layouts fits"
        reasons = sorted((one.reason for one in found), key=lambda reason: not reason.startswith("needs"))
        divide = f"no tensor, pipeline and context divide the {loaded.scenario.cluster.ranks} GPUs"
        msg += f"; such as: {reasons[0]}" if found else f"; {divide}: give others with --set key=a,b"
        raise InputError(msg)
    varied = [key for key in found[0].layout if len({str(one.layout[key]) for one in found}) > 1]
    rows = _rows(found, outcomes, varied, extent.gap)
    return Found(rows, len(found), len(outcomes), varied, index.write(rows, output))


def _raced(race: _Race, workers: Workers, progress: Callable[[float], None] | None) -> dict[int, SweptRun]:
    """Simulate what may be the best of all layouts, by number."""
    for number, outcome, _ in carried_out(race.tasks(), *workers):
        race.take(number, outcome)
        if progress is not None:
            progress(race.share)
    race.end()
    return race.outcomes


class _Race:
    """Candidates in the order of their bounds, which are worked out as they are needed, and what came of them."""

    def __init__(self, found: Sequence[Candidate], folder: Path, extent: Extent) -> None:
        self.outcomes: dict[int, SweptRun] = {}
        self._found, self._folder, self._extent = found, folder, extent
        self._times: dict[float, float] = {}  # the best by cost of the network
        self._line: list[tuple[bool, float, int, int]] = []

    def beaten(self, number: int, bound: float) -> bool:
        """Whether a candidate that takes `bound` at least cannot be better at its cost, and need not be simulated."""
        one, share = self._found[number], 1 - self._extent.gap
        beaten = one.per_work(bound) > share * _best(self._times, one.cost)
        return beaten and not (one.own or self._extent.exhaustive)

    def tasks(self) -> Iterator[Task]:
        """Give what is to be simulated, the least bound first, until nothing that is left can be better."""
        for number in self._unbeaten():
            yield Task(number, "job", self._found[number].tables, {}, {}, self._folder)

    def _unbeaten(self) -> Iterator[int]:
        """Give candidates, the least bound first, that are not beaten by what has come when it is their turn.

        Each is weighed as far as that takes; of one that has been weighed further, that is forgotten.
        """
        self._line = [self._entry(number, 1) for number, one in enumerate(self._found) if one.job]
        heapq.heapify(self._line)
        while self._line:
            _, _, number, known = heapq.heappop(self._line)
            one = self._found[number]
            if self.beaten(number, one.bounds[known - 1]):
                if known < len(one.bounds):
                    one.reason, one.bounds = "", one.bounds[:known]
                continue
            if known == len(one.bounds):
                one.weigh()
            if known < len(one.bounds):
                heapq.heappush(self._line, self._entry(number, known + 1))
            elif not one.reason:
                yield number

    def _entry(self, number: int, known: int) -> tuple[bool, float, int, int]:
        """Place a candidate in line by so many of its bounds."""
        one = self._found[number]
        return not one.own, one.per_work(one.bounds[known - 1]), number, known

    def take(self, number: int, outcome: SweptRun) -> None:
        """Take what came of a candidate."""
        self.outcomes[number] = outcome
        _keep_least(self._times, self._found[number], outcome)

    @property
    def share(self) -> float:
        """Of what is simulated at least, so far."""
        left = sum(not self.beaten(number, self._found[number].bounds[known - 1]) for _, _, number, known in self._line)
        return len(self.outcomes) / max(len(self.outcomes) + left, 1)

    def end(self) -> None:
        """Forget what workers did beyond what one alone would have: what comes out does not depend on their number."""
        outcomes, self.outcomes, self._times = self.outcomes, {}, {}
        for number in self._unbeaten():
            self.take(number, outcomes[number])


def _keep_least(times: dict[float, float], one: Candidate, outcome: SweptRun) -> None:
    """Enter what a run took for the scenario's work into the best times by cost of the network."""
    if outcome["status"] == "done":
        took = one.per_work(float(outcome["results"]["iteration_time_s"] or float("inf")))
        times[one.cost] = min(times.get(one.cost, took), took)


def _best(times: Mapping[float, float], cost: float) -> float:
    """Find the best time on networks that cost no more."""
    return min((time for other, time in times.items() if other <= cost), default=float("inf"))


def _rows(
    found: Sequence[Candidate], outcomes: Mapping[int, SweptRun], varied: Sequence[str], gap: float
) -> list[dict[str, Any]]:
    times: dict[float, float] = {}
    for number, run in outcomes.items():
        _keep_least(times, found[number], run)
    differ = len({one.tokens for one in found if one.job}) > 1
    every: dict[int, SweptRun] = {}
    for number, one in enumerate(found):
        reason = one.reason or _beaten_reason(one, _best(times, one.cost), gap, differ=differ)
        every[number] = outcomes.get(number, {"run": "", "status": OUT, "results": {}, "error": reason})
    costs = dict.fromkeys(key for one in found for key in one.costs)
    points = [
        {
            **{key: one.layout[key] for key in varied},
            **({TOKENS: one.tokens or None} if differ else {}),
            **costs,
            **one.costs,
            "bound_s": _bound(one),
            "own": one.own or None,
        }
        for one in found
    ]
    ranked = zip(found, index.rows(points, every), strict=True)

    def rank(pair: tuple[Candidate, Mapping[str, Any]]) -> tuple[bool, float, float]:
        one, row = pair
        took, bound = row.get("iteration_time_s"), row["bound_s"]
        return took is None, one.per_work(took or 0.0), one.per_work(bound or float("inf"))

    return [row for _, row in sorted(ranked, key=rank)]


def _beaten_reason(one: Candidate, best: float, gap: float, *, differ: bool) -> str:
    """Say why a layout was not simulated; `differ`: whether layouts differ in their tokens."""
    within = f"within the gap of {gap:.3g} to the best one's {best:.6g} s" if gap else "and its turn did not come"
    end = f"and the best one {best:.6g} s" if one.least > best else within
    work = f" for {one.tokens / one.work:,.0f} tokens" if differ else ""
    return f"takes {one.least:.6g} s at least{work}, {end}"


def _bound(one: Candidate) -> float | None:
    return None if one.reason else one.bound or None
