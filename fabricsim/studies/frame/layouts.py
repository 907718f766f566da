"""Layouts of published runs against the best ones that a search finds for the same job and cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricsim import measured
from fabricsim.report.swept import better, longer
from fabricsim.run.pipeline import load
from fabricsim.run.search.search import search
from fabricsim.scenario.load import LoadedScenario
from fabricsim.studies.frame.recipes import ROOM, missing_of, published_run, run_of
from fabricsim.studies.frame.training import PublishedRun

_FOUND = ("own_s", "best_s", "longer", "layouts", "simulated", "better")


def loaded(run: PublishedRun, more: Sequence[str]) -> tuple[LoadedScenario, LoadedScenario]:
    """Load a published run to search for it, and with room for its own layout, which did run."""
    searched = load(run.scenario, [*(line for line in run.settings if line != ROOM), *more])
    return searched, load(run.scenario, [*run.settings, *more])


def compared(
    table: str,
    folder: Path,
    more: Sequence[str],
    progress: Callable[[float], None],
    **choice: Any,  # noqa: ANN401  as of `search`
) -> Iterator[dict[str, Any]]:
    """Search for each run of a table of recipes; those that differ in what was measured alone are one search.

    `folder`: of an index and the files of runs of each search. `more`: settings of all layouts. `choice`: what else
    `fabricsim.run.search.search.search` takes.
    Returns: rows of ``run``, ``measured_s``, ``own_s`` and ``best_s``, ``longer`` (what its layout takes more, as a
        share), ``layouts`` and ``simulated``, ``better`` (what the best one has) and ``error`` (why there is none).
    """
    rows = measured.load(table).rows
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    for number, record in enumerate(rows):
        run, missing = published_run(record), missing_of(record)
        if not missing and run.settings not in known:
            known[run.settings] = _found(run_of(record), folder / f"{number:03}", more, choice)
        found = dict.fromkeys(_FOUND) if missing else known[run.settings]
        yield {"run": run.name, "measured_s": float(record["step"]), **found, "error": missing}
        progress((number + 1) / len(rows))


def _found(run: PublishedRun, folder: Path, more: Sequence[str], choice: Mapping[str, Any]) -> dict[str, Any]:
    searched, own = loaded(run, more)
    found = search(searched, folder, own=own, **choice)
    its, best = next(row for row in found.rows if row["own"]), found.rows[0]
    took, least = its["iteration_time_s"], best["iteration_time_s"]
    told = "" if its is best else better(its, best, found.keys)
    return dict(zip(_FOUND, (took, least, longer(its, best), found.layouts, found.simulated, told), strict=True))
