"""The command that looks for the best layout: search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabricsim.cli.common import (
    JsonOption,
    ScenarioArgument,
    SettingsOption,
    announce_compilation,
    check_output_folder,
    note,
    progress,
    say,
    show,
)
from fabricsim.cli.sweep import SchedulerOption, WorkersOption, begin, cores, read_setting
from fabricsim.cli.variants import axes

if TYPE_CHECKING:
    from collections.abc import Iterable

SearchFolderOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the index and of runs, kept for a next time."),
]
ExhaustiveOption = Annotated[
    bool, typer.Option("--exhaustive", help="Simulate also layouts that a bound on their time rules out.")
]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(search)


def search(  # noqa: PLR0913  one parameter per option
    scenario: ScenarioArgument,
    *,
    settings: SettingsOption = None,
    output: SearchFolderOption = None,
    exhaustive: ExhaustiveOption = False,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the quickest layout of a job on all GPUs of its cluster, and say why each other one is out.

    Among the values of --set key=a,b,c that key is chosen, in place of the usual ones.
    """
    workers = workers or cores()
    begin(workers, scheduler)
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.search.search import search as find  # noqa: PLC0415  as above

    check_output_folder(output)
    fixed, given = _sorted(settings or [])
    loaded = load(scenario, fixed)
    announce_compilation(loaded.scenario.engine)
    folder = output or Path(f"{loaded.scenario.name}-search")
    with progress(f"layouts of {loaded.scenario.name}") as report:
        found = find(
            loaded,
            folder,
            given=given,
            exhaustive=exhaustive,
            workers=workers,
            scheduler=scheduler,
            progress=report,
        )
    for file in found.files:
        note(f"wrote {file}")
    if as_json:
        say(json.dumps(found.rows, indent=2, ensure_ascii=False, allow_nan=False))
        return
    from fabricsim.report.swept import searched_text  # noqa: PLC0415  imports rich

    show(*searched_text(found.rows, found.keys, found.layouts, found.simulated))


def _sorted(settings: Iterable[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Tell settings that all layouts have from keys with several values."""
    several, fixed = axes((), (), (), settings)
    return fixed, {axis.name: [read_setting(text)[1] for _, (text,) in axis.values] for axis in several}
