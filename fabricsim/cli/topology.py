"""The command about networks: what they consist of, and how they look."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fabricsim.cli.common import (
    JsonOption,
    ScenarioArgument,
    SettingsOption,
    check_output_file,
    note,
    on_paper,
    say_json,
    show,
)

PricesOption = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Price it: by a list of the library, such as list-400g, or a TOML file."),
]


@on_paper
def topology(
    scenario: ScenarioArgument,
    settings: SettingsOption = None,
    *,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw it: a .png, .svg or .pdf file.")
    ] = None,
    prices: PricesOption = None,
) -> None:
    """Count switches, ports, cables and transceivers of a fabric.

    Its bisection is found, and it may be priced and drawn.
    """
    check_output_file(output, scenario, prices)
    from fabricsim.report.topology_text import bill_text, topology_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.run.bill import bill_of, down_for_good, said_of, wired  # noqa: PLC0415  as above
    from fabricsim.run.pipeline import load  # noqa: PLC0415  as above
    from fabricsim.scenario.prices import read_prices  # noqa: PLC0415  as above
    from fabricsim.topology.inventory import take_inventory  # noqa: PLC0415  as above

    found = load(scenario, list(settings or []), with_job=False)
    check_output_file(output, *found.files)
    loaded = found.scenario
    listed = None if prices is None else read_prices(prices)
    network, wires = wired(loaded)
    down = down_for_good(loaded)
    inventory = take_inventory(network, wires, loaded.ends.count, down)
    if down:
        note(f"{said_of(down)}: tiers, bisection and ways are told without, all else with what is down")
    bill = None if listed is None else bill_of(loaded, listed, inventory)
    name, kind = loaded.name, loaded.fabric.topology
    title = name if name == kind else f"{name}, {kind}"
    if output is not None:
        from fabricsim.report import plots  # noqa: PLC0415  as above
        from fabricsim.report.topology_picture import topology_picture  # noqa: PLC0415  as above

        dimensions = getattr(loaded.fabric, "dimensions", ())
        plots.save(topology_picture(wires, loaded.ends.count, title, dimensions), output)
        note(f"wrote {output}")
    if as_json:
        said = {"name": name, "topology": kind, "hosts": loaded.ends.hosts, **asdict(inventory)}
        said |= {"cables_down": len(down) // 2} if down else {}
        say_json(said if bill is None else {**said, "bill": bill.told()})
    else:
        show(topology_text(title, inventory), *([] if bill is None else [bill_text(bill)]))
