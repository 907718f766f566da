"""The command that makes many runs: sweep."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabricsim.cli import common
from fabricsim.errors import InputError
from fabricsim.units import human_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabricsim.run.sweeps.sweep import Progress, SweepResult

_EVERY = 30.0
"""Seconds between lines about the progress if nobody sees a bar."""

StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What is run, and what is varied.")]
SweepFolderOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder of index, runs and pictures; named after the study."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the runs that are in the folder; none is made again.")
]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1024, help="Processes; all cores if left out.")
]
SchedulerOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a running cluster of dask, or dask for one on this machine.")
]


@common.on_paper
def sweep(  # noqa: PLR0913  one parameter per option
    study: StudyArgument,
    *,
    settings: common.SettingsOption = None,
    output: SweepFolderOption = None,
    resume: ResumeOption = False,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Make every Nth run only, from the Ith on.")] = None,
    as_json: common.JsonOption = False,
) -> None:
    """Run a scenario with many values of some keys.

    Or send traffic, run a benchmark or a replay; on all cores or on a cluster.
    """
    workers = workers or cores()
    begin(workers, scheduler)
    from fabricsim.run.sweeps import sweep as sweeps  # noqa: PLC0415  --help must not pay for it

    common.check_output_folder(output)
    part = None if shard is None else sweeps.Shard.parse(shard)
    found = sweeps.read(study, dict(map(read_setting, settings or [])))
    folder = output or Path(found.name)
    written = ["index.csv", "picture-1.png"] if part is None else [f"{sweeps.index_of(part)}.csv"]
    common.check_output_files(folder, written, study, *found.inputs())
    began = time.monotonic()
    with reporting(f"{len(found.points):,} runs of {found.name}") as report:
        result = sweeps.run(
            found, folder, workers=workers, scheduler=scheduler, shard=part, resume=resume, progress=report
        )
    try:
        if part is None:  # of a part a picture would say nothing, and take the place of that of another part
            _draw(result, folder)
    finally:  # what came of the runs is told, though a picture cannot be drawn
        for file in result.files:
            common.note(f"wrote {file}")
        _finish(result, time.monotonic() - began, as_json=as_json)


def begin(workers: int, scheduler: str | None) -> None:
    """Get workers of this machine ready while this process imports what it needs itself."""
    if workers > 1 and scheduler is None:
        from fabricsim.run.sweeps.workers import make_ready  # noqa: PLC0415  --help must not pay for it

        make_ready()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_setting(text: str) -> tuple[str, Any]:
    """Read ``key=value`` as ``--set`` takes it."""
    from fabricsim.scenario.include import override  # noqa: PLC0415  as above
    from fabricsim.scenario.tree import plain  # noqa: PLC0415  as above

    key = text.partition("=")[0].strip()
    value = plain(override(text))
    for part in key.split("."):
        value = value[part]
    return key, value


@contextmanager
def reporting(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the time left; if standard error is no terminal, a line now and then."""
    began = said = time.monotonic()
    with common.progress(label) as bar:

        def report(state: Progress) -> None:
            nonlocal said
            bar(state.done / state.total)
            now = time.monotonic()
            if not sys.stderr.isatty() and now - said > _EVERY:
                said, made = now, state.done - state.known
                left = (now - began) * (state.total - state.done) / max(1, made)
                failed = f", {state.failed:,} failed" if state.failed else ""
                common.note(f"{label}: {state.done:,} done{failed}, about {left:.0f} s left")

        yield report


def _draw(result: SweepResult, folder: Path) -> None:
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.report.swept import pictures  # noqa: PLC0415  as above

    wanted = [picture.model_dump() for picture in result.sweep.written.pictures]
    for name, figure in pictures(result.rows, result.sweep.varied, wanted, result.sweep.name):
        plots.save(figure, folder / name)
        result.files.append(folder / name)


def _finish(result: SweepResult, took: float, *, as_json: bool) -> None:
    """Tell what came of it; an error if nothing did."""
    state = result.progress
    failures = [row for row in result.rows if row["status"] == "failed"]
    if as_json:
        common.say_json(result.rows)
    else:
        from fabricsim.report.swept import swept_text  # noqa: PLC0415  imports rich

        common.show(*swept_text(result.rows, result.sweep.varied))
    more = f", {state.known:,} were there" if state.known else ""
    ended = f"{state.done - state.failed:,} done, {state.failed:,} failed"
    common.note(f"{human_count(state.done, 'runs')} in {took:.1f} s: {ended}{more}")
    if len(failures) == len(result.rows):
        raise InputError(f"every run failed; the first: {failures[0]['error']}")
