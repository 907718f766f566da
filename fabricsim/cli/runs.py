"""Commands that simulate scenarios: run, compare, rerun, plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fabricsim.cli.common import (
    EngineOption,
    FolderOption,
    JsonOption,
    PcapOption,
    ResultOption,
    ScenarioArgument,
    SettingsOption,
    TapOption,
    announce_compilation,
    as_settings,
    check_output_file,
    check_output_folder,
    finish,
    naming_options,
    note,
    output_folder,
    progress,
    say,
    show,
    watched,
)
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from fabricsim.cli.common import Options
    from fabricsim.engine.recorder import Watch
    from fabricsim.results.result import Result
    from fabricsim.results.summary import Summary
    from fabricsim.spec.load import LoadedScenario

_BOTH = 2  # engines
ResultArgument = Annotated[Path, typer.Argument(metavar="RESULT", help="HDF5 file that fabricsim wrote.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(run)
    app.command()(compare)
    app.command()(rerun)
    app.command()(plot)


def run(  # noqa: PLR0913  one parameter per option
    scenario: ScenarioArgument,
    *,
    settings: SettingsOption = None,
    engine: EngineOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of all random choices, such as paths.")] = None,
    tap: TapOption = None,
    pcap: PcapOption = None,
    output: ResultOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate one iteration and print where the time goes."""
    check_output_file(output)
    watch = watched(tap, pcap, output)
    loaded = _load(scenario, settings or [], {"engine": engine, "seed": seed})
    finish(_simulate(loaded, watch), output, as_json=as_json)


def rerun(
    result: ResultArgument,
    *,
    tap: TapOption = None,
    pcap: PcapOption = None,
    output: ResultOption = None,
    as_json: JsonOption = False,
) -> None:
    """Repeat the run that a result file describes."""
    from fabricsim.pipeline import reload  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import read  # noqa: PLC0415  as above

    check_output_file(output)
    watch = watched(tap, pcap, output)
    finish(_simulate(reload(read(result)), watch), output, as_json=as_json)


def compare(  # noqa: PLR0913  one parameter per option
    scenario: ScenarioArgument,
    *,
    transport: Annotated[str | None, typer.Option(metavar="A,B,C", help="Transports to compare.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="A,B", help="In place of --transport: flow,packet.")] = None,
    settings: SettingsOption = None,
    output: FolderOption = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=256, help="Simulations at the same time.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario on several transports, or by both engines."""
    from fabricsim.results.summary import summarise  # noqa: PLC0415  --help must not pay for it
    from fabricsim.sweep import simulate_all  # noqa: PLC0415  as above

    check_output_folder(output)
    names = _compared(transport, engine)
    key = "engine" if transport is None else "transport"
    loaded = [_load(scenario, settings or [], {key: name}) for name in names]
    for name in sorted({each.scenario.engine for each in loaded}):
        announce_compilation(name)
    with progress(f"comparing {len(loaded)} {key}s") as report:
        results = simulate_all(loaded, jobs=jobs, progress=report)
    summaries = [summarise(result) for result in results]
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        path = output_folder(output) / "comparison.png"
        plots.save(plots.comparison(results), path)
        note(f"wrote {path}")
    if as_json:
        say(json.dumps(summaries, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show_comparison(results, summaries)


def plot(
    result: ResultArgument,
    *,
    output: FolderOption = None,
    form: Annotated[Literal["png", "svg"], typer.Option("--format", help="Format of the pictures.")] = "png",
) -> None:
    """Draw the pictures of a result file.

    Breakdown, timeline, utilisation of links, and what was tapped; beside the file where -o is left out.
    """
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.results.hdf5 import read  # noqa: PLC0415  --help must not pay for it

    check_output_folder(output)
    run_result = read(result)
    folder = output_folder(output if output is not None else result.parent)
    packets, series = run_result.packets, run_result.series
    # the flow engine records all rates; a packet run has those that were tapped
    rates = packets is None or bool(series.rate.any())
    names = ("breakdown", "timeline", "utilisation") if rates else ("breakdown", "timeline")
    figures = {name: getattr(plots, name)(run_result) for name in names}
    if packets is not None:
        figures |= plots.of_packets(packets, f"{run_result.name} over {run_result.transport}")
    for name, figure in figures.items():
        path = folder / f"{result.stem}-{name}.{form}"
        plots.save(figure, path)
        note(f"wrote {path}")


def _load(scenario: str, settings: list[str], options: Options) -> LoadedScenario:
    """Load with `settings` and, over them, what options of the same name as a key gave."""
    from fabricsim.pipeline import load  # noqa: PLC0415  --help must not pay for it

    with naming_options(options):
        return load(scenario, [*settings, *as_settings(options)])


def _compared(transport: str | None, engine: str | None) -> list[str]:
    """Names to compare: transports or engines, exactly one of both."""
    if (transport is None) == (engine is None):
        msg = "compare wants one of --transport A,B,C and --engine flow,packet"
        raise InputError(msg)
    if transport is not None:
        return _transports(transport)
    names = list(dict.fromkeys(name.strip() for name in (engine or "").split(",") if name.strip()))
    if len(names) != _BOTH:
        msg = f"--engine {engine!r}: compare wants two engines, flow,packet"
        raise InputError(msg)
    return names


def _show_comparison(results: list[Result], summaries: list[Summary]) -> None:
    if len({result.engine for result in results}) == 1:
        from fabricsim.report.text import comparison_table  # noqa: PLC0415  --help must not pay for it

        show(comparison_table(summaries))
        return
    from fabricsim.report.difference_text import difference_text  # noqa: PLC0415  as above
    from fabricsim.results.difference import difference  # noqa: PLC0415  as above

    labels = (summaries[0]["engine"], summaries[1]["engine"])
    explaining = next(summary for summary in summaries if "queues" in summary)
    title = f"{results[0].name} over {results[0].transport}"
    show(difference_text(title, labels, difference(*results), explaining))


def _transports(names: str) -> list[str]:
    """Split what ``--transport`` gave; each one once, in the order given."""
    from fabricsim.spec import library  # noqa: PLC0415  --help must not pay for it

    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not wanted:
        msg = f"--transport {names!r} names no transport; name some, such as tcp-10g,rdma-100g"
        raise InputError(msg)
    for name in wanted:
        library.path("transports", name)  # an unknown name ends here, with those that there are
    return wanted


def _simulate(loaded: LoadedScenario, watch: Watch | None = None) -> Result:
    from fabricsim.pipeline import simulate  # noqa: PLC0415  --help must not pay for it

    if loaded.scenario.job is not None:
        announce_compilation(loaded.scenario.engine)
    with progress(loaded.scenario.name) as report:
        return simulate(loaded, watch=watch, progress=report)
