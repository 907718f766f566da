"""The command that sends a traffic matrix over a fabric."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli import common
from fabricsim.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.results.traffic import Matrix, TrafficRecord
    from fabricsim.scenario.scenario import Scenario

_MATRIX = "CSV or htsim connection matrix, or a pattern: permutation, incast, all-to-all, ring or poisson."
_SCENARIO = "TOML file, or name of a shipped scenario; 16 ideal hosts, or as many as a file has, if left out."
_BARE = "ideal-16"

MatrixArgument = Annotated[str, typer.Argument(metavar="MATRIX", help=_MATRIX)]
FabricArgument = Annotated[str | None, typer.Argument(metavar="SCENARIO", help=_SCENARIO)]
ClusterOption = Annotated[str | None, common.preset("clusters", "Cluster of the library.")]
NetworkOption = Annotated[str | None, common.preset("fabrics", "Fabric of the library.")]
TransportOption = Annotated[str | None, common.preset("transports", "Transport of the library.")]

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FOLDER", help="Write pictures, times as JSON and what was recorded into this folder."
    ),
]


@common.on_paper
def traffic(  # noqa: PLR0913  one parameter per option
    matrix: MatrixArgument,
    scenario: FabricArgument = None,
    *,
    settings: common.SettingsOption = None,
    cluster: ClusterOption = None,
    fabric: NetworkOption = None,
    transport: TransportOption = None,
    size: common.SizeOption = None,
    flows: common.FlowsOption = None,
    load: common.LoadOption = None,
    engine: common.EngineOption = None,
    seed: common.SeedOption = None,
    tap: common.TapOption = None,
    pcap: common.PcapOption = None,
    output: OutputOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Send a traffic matrix and print flow completion times."""
    from fabricsim.run.pipeline import load as load_scenario  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.traffic import read, refuse_amounts, request, send  # noqa: PLC0415  as above

    common.check_output_folder(output)
    watch = common.watched(tap, pcap, output)
    demand = read(matrix)
    if demand is not None:
        refuse_amounts(matrix, {"--size": size, "--flows": flows, "--load": load})
    parts: common.Options = {"cluster": cluster, "fabric": fabric, "transport": transport}  # which --set then changes
    rest: common.Options = {"engine": engine, "seed": seed}
    overrides = common.as_settings(parts)
    sizing = demand if scenario is None and cluster is None else None
    if sizing is not None:
        overrides.append(f"cluster.hosts={sizing.endpoints}")
    if any(setting.startswith("cluster") for setting in settings or []):
        sizing = None
    with common.naming_options(parts | rest, settings or []), _naming_line(matrix, sizing):
        chosen = [*overrides, *(settings or []), *common.as_settings(rest)]
        loaded = load_scenario(scenario or _BARE, chosen, with_job=False)
        if scenario is None and not any(setting.startswith("name=") for setting in chosen):
            found = loaded.scenario
            name = f"{cluster or found.cluster.name}/{fabric or Path(str(found.fabric.topology)).stem}"
            loaded = load_scenario(_BARE, [*chosen, f"name={name}"], with_job=False)
    found = loaded.scenario
    if demand is None:
        demand = request(matrix, found, size=size, flows=flows, load=load)
    stem = _stem(demand.name, found)
    common.check_output_files(output, [f"{stem}.json", f"{stem}.h5"], matrix, *loaded.files)
    with common.progress(f"{demand.name} on {found.name}") as report:
        result = send(loaded, demand, watch=watch, progress=report)
    _finish(result, output, stem, as_json=as_json)


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


def _finish(result: TrafficRecord, output: Path | None, stem: str, *, as_json: bool) -> None:
    from fabricsim.results.traffic import summarise_traffic  # noqa: PLC0415  --help must not pay for it

    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  imports matplotlib

        text = common.json_text(summarise_traffic(result))
        folder = common.output_folder(output)
        common.write_text(folder / f"{stem}.json", text + "\n")
        common.note(f"wrote {folder / f'{stem}.json'}")
        for name, figure in plots.of_traffic(result).items():
            plots.save(figure, folder / f"{stem}-{name}.png")
            common.note(f"wrote {folder / f'{stem}-{name}.png'}")
        common.save(result, folder / f"{stem}.h5")
    common.show_traffic(result, as_json=as_json)


def _stem(matrix: str, scenario: Scenario) -> str:
    """Name files by what was sent, where and over what, so that runs that are compared stand side by side."""
    parts = (Path(matrix).stem, scenario.name, scenario.transport.name, scenario.engine)
    return "-".join(parts).replace("/", "-")
