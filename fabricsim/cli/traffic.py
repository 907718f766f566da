"""The command that sends a traffic matrix over a fabric."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli.common import (
    EngineOption,
    JsonOption,
    PcapOption,
    SettingsOption,
    TapOption,
    announce_compilation,
    as_settings,
    check_output_folder,
    naming_options,
    note,
    output_folder,
    progress,
    say,
    show,
    watched,
    write_text,
)
from fabricsim.errors import InputError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.cli.common import Options
    from fabricsim.results.traffic import Matrix, TrafficResult

_MATRIX = "CSV or htsim connection matrix, or a pattern: permutation, incast, all-to-all, ring or poisson."
_SCENARIO = "TOML file, or name of a shipped scenario; 16 ideal hosts, or as many as a file has, where left out."
_BARE = "ideal-16"

MatrixArgument = Annotated[str, typer.Argument(metavar="MATRIX", help=_MATRIX)]
FabricArgument = Annotated[str | None, typer.Argument(metavar="SCENARIO", help=_SCENARIO)]
ClusterOption = Annotated[str | None, typer.Option(metavar="NAME", help="Cluster of the library.")]
NetworkOption = Annotated[str | None, typer.Option(metavar="NAME", help="Fabric of the library.")]
TransportOption = Annotated[str | None, typer.Option(metavar="NAME", help="Transport of the library.")]
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Size of each flow, or a distribution: websearch, hadoop, ..."),
]
FlowsOption = Annotated[int | None, typer.Option(metavar="N", help="Flows of incast, permutation or poisson.")]
LoadOption = Annotated[float | None, typer.Option(metavar="L", help="Load of poisson, relative to the hosts' links.")]
SeedOption = Annotated[int | None, typer.Option(metavar="N", help="Seed of all random choices, such as paths.")]

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FOLDER", help="Write pictures, times as JSON and what was recorded into this folder."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(traffic)


def traffic(  # noqa: PLR0913  one parameter per option
    matrix: MatrixArgument,
    scenario: FabricArgument = None,
    *,
    settings: SettingsOption = None,
    cluster: ClusterOption = None,
    fabric: NetworkOption = None,
    transport: TransportOption = None,
    size: SizeOption = None,
    flows: FlowsOption = None,
    load: LoadOption = None,
    engine: EngineOption = None,
    seed: SeedOption = None,
    tap: TapOption = None,
    pcap: PcapOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a traffic matrix and print flow completion times."""
    from fabricsim.pipeline import load as load_scenario  # noqa: PLC0415  --help must not pay for it
    from fabricsim.traffic import read, request, simulate  # noqa: PLC0415  as above

    check_output_folder(output)
    watch = watched(tap, pcap, output)
    demand = read(matrix)
    if demand is not None:
        _refuse(matrix, {"--size": size, "--flows": flows, "--load": load})
    parts: Options = {"cluster": cluster, "fabric": fabric, "transport": transport}  # which --set then changes
    rest: Options = {"engine": engine, "seed": seed}
    overrides = as_settings(parts)
    if scenario is None:
        overrides.append(f"name={cluster or 'ideal'}/{fabric or 'single-switch'}")
    sizing = demand if scenario is None and cluster is None else None
    if sizing is not None:
        overrides.append(f"cluster.hosts={sizing.endpoints}")
    if any(setting.startswith("cluster") for setting in settings or []):
        sizing = None
    with naming_options(parts | rest), _naming_line(matrix, sizing):
        found = load_scenario(scenario or _BARE, [*overrides, *(settings or []), *as_settings(rest)]).scenario
    if demand is None:
        demand = request(matrix, found, size=size, flows=flows, load=load)
    announce_compilation(found.engine)
    with progress(f"{demand.name} on {found.name}") as report:
        result = simulate(found, demand, watch=watch, progress=report)
    _finish(result, output, as_json=as_json)


@contextmanager
def _naming_line(matrix: str, demand: Matrix | None) -> Iterator[None]:
    """Name the line of the matrix that gave the number of hosts, in mistakes of a scenario that has it from there."""
    try:
        yield
    except ScenarioError as error:
        if demand is None:
            raise
        key, place = "cluster.hosts", f"{matrix}:{demand.line}"
        mistakes = [
            replace(mistake, key=f"{key} = {demand.endpoints}, from this line", where=place)
            if mistake.key == key
            else mistake
            for mistake in error.mistakes
        ]
        raise ScenarioError(mistakes) from error


def _refuse(matrix: str, options: dict[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            msg = f"{option} has no effect: {matrix} is a file and says itself what is sent; take it out"
            raise InputError(msg)


def _finish(result: TrafficResult, output: Path | None, *, as_json: bool) -> None:
    from fabricsim.report.traffic_text import traffic_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.traffic import summarise_traffic  # noqa: PLC0415  as above

    summary = summarise_traffic(result)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    if output is not None:
        from fabricsim.report.fct import completion_times  # noqa: PLC0415  imports matplotlib
        from fabricsim.report.style import save  # noqa: PLC0415  as above

        folder, stem = output_folder(output), Path(result.matrix.name).stem
        save(completion_times(result), folder / f"{stem}-fct.png")
        write_text(folder / f"{stem}-fct.json", text + "\n")
        for suffix in ("png", "json"):
            note(f"wrote {folder / f'{stem}-fct.{suffix}'}")
        _write_recorded(result, folder, stem)
    if as_json:
        say(text)
    else:
        show(traffic_text(summary))


def _write_recorded(result: TrafficResult, folder: Path, stem: str) -> None:
    """Write what was tapped: pictures, the series as HDF5, and the capture."""
    packets, series = result.packets, result.series
    if packets is None or series is None or not (packets.taps or packets.log is not None or series.names):
        return
    from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib
    from fabricsim.results import pcapng  # noqa: PLC0415  --help must not pay for it
    from fabricsim.results.hdf5 import write_series  # noqa: PLC0415  as above

    title = f"{result.matrix.name} on {result.name} over {result.transport}"
    figures = plots.of_packets(packets, title)
    if series.rate.any():
        starts = result.matrix.flows["start"]
        figures["rates"] = plots.payload_rates(series, int((starts + result.completion).max()), title)
    for name, figure in figures.items():
        path = folder / f"{stem}-{name}.png"
        plots.save(figure, path)
        note(f"wrote {path}")
    path = folder / f"{stem}.h5"
    write_series(packets, series, path)
    note(f"wrote {path}")
    if packets.log is not None:
        path = folder / f"{stem}.pcapng"
        pcapng.write(packets.log, path)
        note(f"wrote {path}")
