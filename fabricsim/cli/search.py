"""The command that looks for the best layout: search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabricsim.cli import common
from fabricsim.cli.sweep import SchedulerOption, WorkersOption, begin, cores, read_setting
from fabricsim.cli.variants import axes
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fabricsim.run.search.candidates import Budget
    from fabricsim.run.search.search import Found
    from fabricsim.scenario.load import LoadedScenario

SearchFolderOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the index and of runs, kept for a next time."),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST", help="Price networks by a list of the library or a file, and find the best at each cost."
    ),
]
CostOption = Annotated[
    float | None, typer.Option("--most-cost", metavar="USD", help="What the network may cost per GPU; with --prices.")
]
PowerOption = Annotated[
    float | None, typer.Option("--most-power", metavar="W", help="What the network may draw per GPU; with --prices.")
]
ExhaustiveOption = Annotated[
    bool, typer.Option("--exhaustive", help="Simulate also layouts that a bound on their time rules out.")
]

TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        min=1,
        help="Simulate N layouts at most, of those that Optuna proposes, if all are too many to look at.",
    ),
]
GapOption = Annotated[
    float | None,
    typer.Option(
        "--gap",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="End as soon as nothing can be better than the best by more than this share of its time, such as 0.05.",
    ),
]
RowOption = Annotated[
    str | None,
    typer.Option(
        "--row", metavar="TEXT", help="Of dgxc and megatron-bridge: the run whose name begins so; all if left out."
    ),
]


@common.on_paper
def search(  # noqa: PLR0913  one parameter per option
    scenario: common.ScenarioArgument,
    *,
    settings: common.SettingsOption = None,
    output: SearchFolderOption = None,
    row: RowOption = None,
    prices: PricesOption = None,
    most_cost: CostOption = None,
    most_power: PowerOption = None,
    exhaustive: ExhaustiveOption = False,
    trials: TrialsOption = None,
    gap: GapOption = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Find the quickest layout of a job on all GPUs of its cluster.

    Of each other one the index says why it is out.

    Among the values of --set key=a,b,c that key is chosen, in place of the usual ones.
    """
    workers = workers or cores()
    begin(workers, scheduler)
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.search.search import Extent  # noqa: PLC0415  as above
    from fabricsim.run.sweeps.workers import Workers  # noqa: PLC0415  as above
    from fabricsim.studies.frame.recipes import TABLES  # noqa: PLC0415  as above

    common.check_output_folder(output)
    fixed, given = _sorted(settings or [])
    if trials is not None and (exhaustive or prices is not None):
        msg = f"--trials {trials}: looks for the quickest layout among a few; leave out --exhaustive and --prices"
        raise InputError(msg)
    if gap is not None and (exhaustive or trials is not None):
        raise InputError(f"--gap {gap:g}: is proven by the bounds of all layouts; leave out --exhaustive and --trials")
    extent = Extent(trials, exhaustive, gap or 0.0)
    who: dict[str, Any] = {"given": given, "extent": extent, "workers": Workers(workers, scheduler)}
    who["budget"] = _budget(prices, most_cost, most_power)
    if row is None and scenario in TABLES:
        _compare(scenario, output or Path(f"{scenario}-search"), fixed, who, as_json=as_json)
        return
    loaded, own = (load(scenario, fixed), None) if row is None else _row(scenario, row, fixed)
    _search(loaded, own, output or Path(f"{loaded.scenario.name}-search"), who, as_json=as_json)


def _search(
    loaded: LoadedScenario, own: LoadedScenario | None, folder: Path, who: dict[str, Any], *, as_json: bool
) -> None:
    from fabricsim.report.swept import searched_text  # noqa: PLC0415  imports rich
    from fabricsim.run.search.search import search as find  # noqa: PLC0415  as above

    prices = who["budget"] and who["budget"].prices
    common.check_output_files(folder, ["index.csv", "frontier.png"], prices, *loaded.files)
    with common.progress(f"layouts of {loaded.scenario.name}") as report:
        found = find(loaded, folder, own=own, progress=report, **who)
    if who["budget"] is not None:
        found.files.extend(_draw(found, folder, loaded.scenario.name))
    _tell(found.files, found.rows, as_json=as_json)
    if not as_json:
        proposed = who["extent"].trials is not None
        common.show(*searched_text(found.rows, found.keys, found.layouts, found.simulated, proposed=proposed))


def _compare(table: str, folder: Path, fixed: list[str], who: dict[str, Any], *, as_json: bool) -> None:
    """Search for each run of a table, and say how far its layout is from the best."""
    from fabricsim.report.swept import published_text  # noqa: PLC0415  imports rich
    from fabricsim.run.sweeps import index  # noqa: PLC0415  as above
    from fabricsim.studies.frame.layouts import compared  # noqa: PLC0415  as above

    with common.progress(f"layouts of {table}") as report:
        rows = list(compared(table, folder, fixed, report, **who))
    _tell(index.write(rows, folder), rows, as_json=as_json)
    if not as_json:
        common.show(*published_text(rows))


def _tell(files: list[Path], rows: list[dict[str, Any]], *, as_json: bool) -> None:
    for file in files:
        common.note(f"wrote {file}")
    if as_json:
        common.say_json(rows)


def _row(study: str, text: str, fixed: list[str]) -> tuple[LoadedScenario, LoadedScenario]:
    """Load the scenario of a published run, and that in which its layout is in any case; tell what was measured."""
    from fabricsim.studies.frame.layouts import loaded  # noqa: PLC0415  --help must not pay for it
    from fabricsim.studies.frame.recipes import run_named  # noqa: PLC0415  as above
    from fabricsim.workload.fit import memory_problems  # noqa: PLC0415  as above

    run, step = run_named(study, text)
    common.note(f"{study}: {run.name}: measured {step:.4g} s")
    searched, own = loaded(run, fixed)
    if (job := searched.scenario.job) and (problems := memory_problems(job, searched.scenario.cluster.gpu)):
        common.note(f"its layout is simulated though by the model of memory {problems[0].problem}")
    return searched, own


def _budget(prices: str | None, cost: float | None, power: float | None) -> Budget | None:
    from fabricsim.run.search.candidates import Budget  # noqa: PLC0415  --help must not pay for it

    if prices is None and (cost is not None or power is not None):
        raise InputError("--most-cost and --most-power need prices: add --prices list-400g, or a file")
    for option, value in (("--most-cost", cost), ("--most-power", power)):
        if value is not None and not value > 0:
            raise InputError(f"{option} {value:g}: nothing costs or takes as little; give more than 0, or leave it out")
    most = (float("inf") if value is None else value for value in (cost, power))
    return None if prices is None else Budget(prices, *most)


def _draw(found: Found, folder: Path, name: str) -> Iterator[Path]:
    """Draw the frontier of time and cost; points are grouped by the first key that is no part of the job."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.report.swept import pictures  # noqa: PLC0415  as above
    from fabricsim.run.bill import COST  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.search.search import TOKENS  # noqa: PLC0415  as above

    by = next((key for key in found.keys if not key.startswith("job.")), None)
    up = "tokens_per_s" if TOKENS in found.rows[0] else "iteration_time_s"
    wanted = {"kind": "frontier", "x": COST, "y": up, "by": by}
    for _, figure in pictures(found.rows, found.keys, [wanted], name):
        plots.save(figure, folder / "frontier.png")
        yield folder / "frontier.png"


def _sorted(settings: Iterable[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Tell settings that all layouts have from keys with values to choose from, of usual ones also a single value."""
    from fabricsim.run.search.layouts import KEYS  # noqa: PLC0415  --help must not pay for it

    several, single = axes((), (), (), settings)
    given = {axis.name: [_read(text)[1] for _, (text,) in axis.values] for axis in several}
    fixed = [text for text in single if text.partition("=")[0].strip() not in KEYS]
    given |= {key: [value] for key, value in (_read(text) for text in single if text not in fixed)}
    return fixed, given


def _read(text: str) -> tuple[str, object]:
    """Read a setting; a preset is told by its name."""
    key, value = read_setting(text)
    return key, value["include"] if isinstance(value, dict) and value.keys() == {"include"} else value
