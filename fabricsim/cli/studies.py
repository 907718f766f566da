"""The command that holds predictions against measurements: validate."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli.common import (
    JsonOption,
    announce_compilation,
    check_output_folder,
    columns,
    note,
    output_folder,
    progress,
    say,
    write_text,
)
from fabricsim.errors import AbsentTracesError, InputError

if TYPE_CHECKING:
    from types import ModuleType

    from fabricsim.studies.study import Study

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write pictures and JSON into this folder.")
]

_STUDIES: dict[str, dict[str, str]] = {
    "dai2024": {"flow": "dai2024", "packet": "dai2024_packets"},
    "fsdp": {"flow": "fsdp"},
    "hkbu": {"flow": "hkbu"},
    "jean-zay": {"flow": "jean_zay"},
    "megatron": {"flow": "megatron"},
    "nccl": {"flow": "nccl_tables"},
    "vtrain": {"flow": "vtrain"},
    "peers": {"packet": "peers"},
    "engines": {},
    "anthony2024": {"flow": "anthony2024"},
}
"""Modules of each study by engine; one without runs on both."""


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(validate)


def validate(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help=f"{', '.join(_STUDIES)}; all where left out.")
    ] = None,
    *,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Of dai2024: flow or packet.")] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold predictions against measurements and other simulators.

    dai2024, fsdp, hkbu, jean-zay, megatron, nccl and vtrain against published measurements, peers against closed
    forms and other packet simulators, engines one engine against the other, anthony2024 volumes against closed
    formulas and published ones.
    """
    modules = _modules(study, engine)
    check_output_folder(output)
    announce_compilation()
    done = []
    for name in modules:
        try:
            done.append(_validate(name, output, quiet=as_json))
        except AbsentTracesError as absent:
            if study is not None:
                raise
            note(f"left out {name}: {absent}")
    if as_json and study is not None:
        say(done[0].to_json())
    elif as_json:
        say(json.dumps([json.loads(found.to_json()) for found in done], indent=2, ensure_ascii=False))


def _modules(study: str | None, engine: str | None) -> list[str]:
    """Modules to run: of one study, by one of its engines, or of all."""
    from fabricsim.scenario.suggest import did_you_mean  # noqa: PLC0415  --help must not pay for it

    if study is None:
        if engine is not None:
            msg = f"--engine {engine} needs a study to run by it, such as fabricsim validate dai2024 --engine packet"
            raise InputError(msg)
        return [next(iter(engines.values()), name) for name, engines in _STUDIES.items()]
    if study not in _STUDIES:
        hint = did_you_mean(study, _STUDIES, f"there are {', '.join(_STUDIES)}")
        msg = f"there is no study {study!r}; {hint}"
        raise InputError(msg)
    engines = _STUDIES[study]
    if engine is None:
        return [next(iter(engines.values()), study)]
    if engine not in engines:
        ways = f"it has {', '.join(engines)}" if engines else "it runs on both engines; leave --engine out"
        msg = f"study {study} has no runs by engine {engine!r}; {ways}"
        raise InputError(msg)
    return [engines[engine]]


def _validate(name: str, output: Path | None, *, quiet: bool) -> Study:
    module: ModuleType = import_module(f"fabricsim.studies.{name}")
    with progress(f"validate {name}") as report:
        found: Study = module.validate(report)
    if not quiet:
        say(found.to_text(columns()))
    if output is not None:
        path = output_folder(output) / f"{found.study}.json"
        write_text(path, found.to_json() + "\n")
        for written in (path, *module.draw(found, output)):
            note(f"wrote {written}")
    return found
