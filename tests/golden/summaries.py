"""What the golden files hold, and how they are made anew.

After a change that is meant to change results, run ``python tests/golden/summaries.py`` from the top
of the repository, look at ``git diff tests/golden``, and say in the commit why the figures moved.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fabricsim.results.result import RunRecord
from fabricsim.results.summary import summarise
from fabricsim.run.bench import COLLECTIVES, collective_times, point_to_point_times
from fabricsim.run.pipeline import LoadedScenario, load, simulate
from fabricsim.scenario import library

FOLDER = Path(__file__).resolve().parent
SIZES = (1, 2**10, 2**20, 2**26)
"""Bytes for scenarios that have no job."""
MOST_RANKS = 512
"""Scenarios of larger jobs have no golden file: they take ten seconds and more."""
NOT_OF_THE_MODEL = ("version", "wall_seconds")
COUNTED_BY_THE_MODEL = ("messages", "dag_nodes")
"""Counters that only another model may change; the others say how the engine goes about it."""


def names() -> list[str]:
    """Names of the scenarios that have a golden file."""
    jobs = {name: load(name).scenario.job for name in library.names("scenarios")}
    return [name for name, job in jobs.items() if job is None or job.parallelism.ranks <= MOST_RANKS]


@cache
def run(name: str) -> RunRecord:
    """Run a shipped scenario, once for all tests of a process."""
    return simulate(load(name))


def summary(name: str) -> dict[str, Any]:
    """Condense a shipped scenario: the summary of its iteration, or times of collectives if it has no job."""
    loaded = load(name)
    if loaded.scenario.job is None:
        return {"name": name, "seconds": _times(loaded)}
    found: dict[str, Any] = {**summarise(run(name))}
    found["counters"] = {key: found["counters"][key] for key in COUNTED_BY_THE_MODEL}
    return {key: value for key, value in found.items() if key not in NOT_OF_THE_MODEL}


def _times(loaded: LoadedScenario) -> dict[str, dict[str, float]]:
    scenario = loaded.scenario
    rows = {collective: collective_times(scenario, collective, SIZES) for collective in COLLECTIVES}
    if scenario.transport.mpi is not None:
        rows["latency"] = point_to_point_times(scenario, SIZES)
    return {test: {str(row.size): row.seconds for row in measured} for test, measured in rows.items()}


def main() -> None:
    """Write all golden files."""
    for name in names():
        text = json.dumps(summary(name), indent=1, ensure_ascii=False, allow_nan=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
