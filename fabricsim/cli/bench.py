"""The command that prints what benchmarks of collectives would print: bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli import common
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from fabricsim.scenario.load import LoadedScenario

_BASE = "hkbu"  # scenario that a cluster is laid over: its fabric is one switch
_TESTS_HELP = "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, sendrecv or latency."

ScenarioArgument = Annotated[
    str | None,
    typer.Argument(metavar="SCENARIO", help="TOML file or shipped scenario, whose job is left aside; or --cluster."),
]
ClusterOption = Annotated[
    str | None, common.preset("clusters", "Cluster of the library, or a file; behind one switch.")
]
TransportOption = Annotated[str | None, common.preset("transports", "Transport of the library, or a file.")]
CollectivesOption = Annotated[
    str | None, common.preset("collectives", "Collectives of the library; by default those of a cluster's GPU.")
]
AlgorithmOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Algorithm, an XML file of MSCCL, or Chakra files name.*.et.")
]
LogOption = Annotated[
    Path | None, typer.Option(metavar="LOG", help="Captured nccl-tests log or OSU table to compare with.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the log of nccl-tests, or the JSON.")
]


def bench(  # noqa: PLR0913  one parameter per option
    test: Annotated[str, typer.Argument(metavar="TEST", help=_TESTS_HELP)],
    scenario: ScenarioArgument = None,
    *,
    cluster: ClusterOption = None,
    transport: TransportOption = None,
    collectives: CollectivesOption = None,
    algorithm: AlgorithmOption = None,
    settings: common.SettingsOption = None,
    against: LogOption = None,
    smallest: Annotated[str, typer.Option("--min-bytes", metavar="SIZE", help="Smallest size.")] = "4B",
    largest: Annotated[str, typer.Option("--max-bytes", metavar="SIZE", help="Largest size.")] = "8GiB",
    output: OutputOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Print what nccl-tests or osu_latency would print.

    It says which bus bandwidth to expect of a cluster.
    """
    from fabricsim.report.bench_text import bench_text  # noqa: PLC0415  --help must not pay for it
    from fabricsim.report.nccl_table import WIDTH  # noqa: PLC0415  as above
    from fabricsim.run import benchtable  # noqa: PLC0415  as above
    from fabricsim.run.bench import TESTS  # noqa: PLC0415  as above

    form = ("JSON", ".json") if as_json else ("a log of nccl-tests, or as JSON with --json", ".txt")
    common.check_ending(output, f"the table is written as {form[0]}", form[1])
    common.check_output_file(output, scenario, cluster, transport, collectives, against)
    benchtable.check_test(test)
    parts: common.Options = {"cluster": cluster, "transport": transport, "collectives": collectives}
    rest: common.Options = {f"collectives.algorithm.{TESTS.get(test, test)}": algorithm}
    common.refuse_twice(rest, settings or [], "algorithm")
    loaded = _load(scenario, parts, [*(settings or []), *common.as_settings(rest)])
    common.check_output_file(output, *loaded.files)
    found = loaded.scenario
    sizes = benchtable.sizes(smallest, largest)
    reference = None if against is None else benchtable.read_reference(against, test)
    with common.progress(f"{test} on {found.cluster.name}") as report:
        measured = benchtable.run(found, test, sizes, reference, report)
    log, told = measured.to_text(), common.json_text(measured.to_dict())
    if output is not None:
        common.write_text(output, f"{told}\n" if as_json else log)
        common.note(f"wrote {output}")
    if as_json:
        common.say(told)
    elif common.columns() >= WIDTH:
        common.say(log)
    else:
        common.show(bench_text(measured.to_dict()))


def _load(scenario: str | None, parts: common.Options, settings: list[str]) -> LoadedScenario:
    """Load a scenario as it is, or a cluster with the library of collectives that its GPU has."""
    from fabricsim.run.benchtable import collectives_of  # noqa: PLC0415  as above
    from fabricsim.run.pipeline import load  # noqa: PLC0415  --help must not pay for it
    from fabricsim.scenario import library  # noqa: PLC0415  as above
    from fabricsim.scenario.include import is_file_name  # noqa: PLC0415  as above

    for key, kind in (("cluster", "clusters"), ("transport", "transports"), ("collectives", "collectives")):
        given = parts[key]
        if given is not None and not is_file_name(str(given)):
            library.path(kind, str(given))  # an unknown name ends here, with those that there are
    if scenario is None and (parts["cluster"] is None or parts["transport"] is None):
        msg = "on what? name a SCENARIO, or --cluster and --transport (see fabricsim list clusters and list transports)"
        raise InputError(msg)
    with common.naming_options(parts, settings):
        found = load(scenario or _BASE, [*common.as_settings(parts), *settings], with_job=False)
        if scenario is None and parts["collectives"] is None:
            parts = {**parts, "collectives": collectives_of(found.scenario.cluster.gpu)}
            found = load(_BASE, [*common.as_settings(parts), *settings], with_job=False)
    return found
