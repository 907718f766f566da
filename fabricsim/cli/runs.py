"""Commands that simulate scenarios: run, compare, rerun, plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fabricsim.cli.common import (
    FolderOption,
    JsonOption,
    ScenarioArgument,
    SettingsOption,
    announce_compilation,
    note,
    output_folder,
    progress,
    say,
    show,
)
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from fabricsim.results.result import Result
    from fabricsim.spec.load import LoadedScenario

ResultOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result as HDF5.")]
ResultArgument = Annotated[Path, typer.Argument(metavar="RESULT", help="HDF5 file that fabricsim wrote.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(run)
    app.command()(compare)
    app.command()(rerun)
    app.command()(plot)


def run(
    scenario: ScenarioArgument,
    settings: SettingsOption = None,
    engine: Annotated[str | None, typer.Option(help="Engine: flow.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random choices.")] = None,
    output: ResultOption = None,
    json: JsonOption = False,  # noqa: FBT002  typer makes a flag of it
) -> None:
    """Simulate one iteration and print where the time goes."""
    from fabricsim.pipeline import load  # noqa: PLC0415  --help must not pay for it

    overrides = list(settings or [])
    if engine is not None:
        overrides.append(f"engine={engine}")
    if seed is not None:
        overrides.append(f"seed={seed}")
    _finish(_simulate(load(scenario, overrides)), output, json=json)


def rerun(
    result: ResultArgument,
    output: ResultOption = None,
    json: JsonOption = False,  # noqa: FBT002  typer makes a flag of it
) -> None:
    """Repeat the run that a result file describes."""
    from fabricsim.pipeline import reload  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import read  # noqa: PLC0415  as above

    _finish(_simulate(reload(read(result))), output, json=json)


def compare(
    scenario: ScenarioArgument,
    transport: Annotated[str, typer.Option(metavar="A,B,C", help="Transports to compare.")],
    settings: SettingsOption = None,
    output: FolderOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Simulations at the same time.")] = 1,
    json: JsonOption = False,  # noqa: FBT002  typer makes a flag of it
) -> None:
    """Run one scenario on several transports, side by side."""
    import json as encoder  # noqa: PLC0415  the option of that name shadows it

    from fabricsim.pipeline import load  # noqa: PLC0415  --help must not pay for it
    from fabricsim.report.text import comparison_table  # noqa: PLC0415  as above
    from fabricsim.results.summary import summarise  # noqa: PLC0415  as above
    from fabricsim.sweep import simulate_all  # noqa: PLC0415  as above

    names = [name.strip() for name in transport.split(",") if name.strip()]
    if not names:
        msg = "--transport: name at least one transport, such as tcp-10g,rdma-100g"
        raise InputError(msg)
    loaded = [load(scenario, [*(settings or []), f"transport={name}"]) for name in names]
    announce_compilation()
    with progress(f"comparing {len(loaded)} transports") as report:
        results = simulate_all(loaded, jobs=jobs, progress=report)
    summaries = [summarise(result) for result in results]
    if json:
        say(encoder.dumps(summaries, indent=2, allow_nan=False))
    else:
        show(comparison_table(summaries))
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        path = output_folder(output) / "comparison.png"
        plots.save(plots.comparison(results), path)
        note(f"wrote {path}")


def plot(
    result: ResultArgument,
    output: FolderOption = None,
    form: Annotated[Literal["png", "svg"], typer.Option("--format", help="Format of the pictures.")] = "png",
) -> None:
    """Draw breakdown, timeline and link utilisation of a result file."""
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.results.hdf5 import read  # noqa: PLC0415  --help must not pay for it

    run_result = read(result)
    folder = output_folder(output if output is not None else result.parent)
    for name in ("breakdown", "timeline", "utilisation"):
        path = folder / f"{result.stem}-{name}.{form}"
        plots.save(getattr(plots, name)(run_result), path)
        note(f"wrote {path}")


def _simulate(loaded: LoadedScenario) -> Result:
    from fabricsim.pipeline import simulate  # noqa: PLC0415  --help must not pay for it

    announce_compilation()
    with progress(loaded.scenario.name) as report:
        return simulate(loaded, progress=report)


def _finish(result: Result, output: Path | None, *, json: bool) -> None:
    from fabricsim.report.text import summary_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import write  # noqa: PLC0415  as above
    from fabricsim.results.summary import summarise, to_json  # noqa: PLC0415  as above

    summary = summarise(result)
    if output is not None:
        write(result, output)
        note(f"wrote {output}")
    if json:
        say(to_json(summary))
    else:
        show(summary_text(summary))
