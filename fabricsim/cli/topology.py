"""The command about networks: what they consist of, and how they look."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003  typer looks at annotations
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli.common import JsonOption, ScenarioArgument, SettingsOption, check_output_file, note, say, show

if TYPE_CHECKING:
    from fabricsim.scenario.scenario import Scenario


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(topology)


def topology(
    scenario: ScenarioArgument,
    settings: SettingsOption = None,
    *,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw it: a .png or .svg file.")
    ] = None,
) -> None:
    """Count switches, ports, cables and transceivers of a fabric, find its bisection and diameter, and draw it."""
    check_output_file(output)
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it

    loaded = load(scenario, list(settings or []), with_job=False).scenario
    _survey(loaded, output, as_json=as_json)


def _survey(scenario: Scenario, output: Path | None, *, as_json: bool) -> None:
    from fabricsim.report.topology_text import headline, topology_text  # noqa: PLC0415  as above
    from fabricsim.topology.inventory import take_inventory  # noqa: PLC0415  as above
    from fabricsim.topology.resources import ResourceList  # noqa: PLC0415  as above
    from fabricsim.topology.wires import freeze  # noqa: PLC0415  as above

    fabric, ends = scenario.fabric, scenario.ends
    network = fabric.network(ends)
    network.require_ports(fabric.radix)
    wires = freeze(network, scenario.link_rate, ResourceList(), fabric)
    found = take_inventory(network, wires, ends.count)
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  as above
        from fabricsim.report.topology_picture import topology_picture  # noqa: PLC0415  as above

        title = f"{scenario.name}, {fabric.topology}: {headline(found)}"
        plots.save(topology_picture(wires, ends.count, title, getattr(fabric, "dimensions", ())), output)
        note(f"wrote {output}")
    if as_json:
        said = {"name": scenario.name, "topology": fabric.topology, "hosts": ends.hosts, **asdict(found)}
        say(json.dumps(said, indent=2))
    else:
        show(topology_text(f"{scenario.name}, {fabric.topology}", found))
