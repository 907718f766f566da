"""Commands that hold predictions against measurements: validate, bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli.common import FolderOption, JsonOption, announce_compilation, note, output_folder, progress, say
from fabricsim.errors import InputError

if TYPE_CHECKING:
    from types import ModuleType

    from fabricsim.spec.scenario import Scenario
    from fabricsim.validation.study import Study

_STUDIES = ("dai2024", "hkbu")
_LATENCY = "latency"


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(validate)
    app.command()(bench)


def validate(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="dai2024 or hkbu; all where left out.")] = None,
    output: FolderOption = None,
    json: JsonOption = False,  # noqa: FBT002  typer makes a flag of it
) -> None:
    """Hold predictions against published measurements."""
    import json as encoder  # noqa: PLC0415  the option of that name shadows it

    if study is not None and study not in _STUDIES:
        msg = f"there is no study {study!r}; the studies are {', '.join(_STUDIES)}"
        raise InputError(msg)
    folder = None if output is None else output_folder(output)
    announce_compilation()
    done = [_validate(name, folder, quiet=json) for name in ([study] if study is not None else _STUDIES)]
    if json and study is not None:
        say(done[0].to_json())
    elif json:
        say(encoder.dumps([found.to_dict() for found in done], indent=2, allow_nan=False))


def _validate(name: str, folder: Path | None, *, quiet: bool) -> Study:
    from importlib import import_module  # noqa: PLC0415  one study's imports must not slow another command

    module: ModuleType = import_module(f"fabricsim.validation.{name}")
    with progress(f"validate {name}") as report:
        found: Study = module.validate(report)
    if not quiet:
        say(found.to_text())
    if folder is not None:
        path = folder / f"{name}.json"
        path.write_text(found.to_json() + "\n", encoding="utf-8")
        for written in (path, *module.draw(found, folder)):
            note(f"wrote {written}")
    return found


def bench(
    test: Annotated[str, typer.Argument(metavar="TEST", help="all_reduce, all_gather, reduce_scatter, broadcast, latency")],
    cluster: Annotated[str, typer.Option(help="Cluster of the library.")],
    transport: Annotated[str, typer.Option(help="Transport of the library.")],
    against: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Captured nccl-tests log or OSU table to compare with.")
    ] = None,
    collectives: Annotated[str, typer.Option(help="Collectives preset of the library.")] = "nccl-2.6",
    smallest: Annotated[str, typer.Option("--min-bytes", metavar="SIZE", help="Smallest size.")] = "4B",
    largest: Annotated[str, typer.Option("--max-bytes", metavar="SIZE", help="Largest size.")] = "512MiB",
) -> None:
    """Print what nccl-tests or the OSU latency test would print on a cluster."""
    from fabricsim.spec.load import load  # noqa: PLC0415  --help must not pay for it
    from fabricsim.validation import benchtable  # noqa: PLC0415  as above

    known = (*benchtable.COLLECTIVES, _LATENCY)
    if test not in known:
        msg = f"there is no test {test!r}; the tests are {', '.join(known)}"
        raise InputError(msg)
    settings = [f"cluster={cluster}", f"transport={transport}", f"collectives={collectives}"]
    scenario: Scenario = load("hkbu", settings).scenario
    sizes = benchtable.sizes(smallest, largest)
    reference = None if against is None else benchtable.read_reference(against, test)
    announce_compilation()
    with progress(f"{test} on {cluster}") as report:
        table = benchtable.run(scenario, test, sizes, reference, report)
    say(table)
