"""The command that holds predictions against measurements: validate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fabricsim.cli import common
from fabricsim.errors import AbsentTracesError, InputError
from fabricsim.studies import names

if TYPE_CHECKING:
    from fabricsim.results.validation import Validation
    from fabricsim.studies.frame.study import Study

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write pictures and JSON into this folder.")
]


@common.on_paper
def validate(
    study: Annotated[
        str | None,
        typer.Argument(metavar="STUDY|FILE", help=f"{', '.join(names())}, or a Python file; all if left out."),
    ] = None,
    *,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Of dai2024: flow or packet.")] = None,
    uncertainty: common.UncertaintyOption = None,
    output: OutputOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Hold predictions against measurements and other simulators.

    Most are of published measurements; peers has closed forms and other packet simulators, engines one engine against
    the other, anthony2024 closed formulas of volumes.
    """
    chosen = _chosen(study, engine)
    common.check_output_folder(output)
    done = []
    for each in chosen:
        try:
            done.append(_validate(each, uncertainty or 0, output, quiet=as_json))
        except AbsentTracesError as absent:
            if study is not None:
                raise
            common.note(f"left out {each.name}: {absent}")
    if as_json and study is not None:
        common.say(done[0].to_json())
    elif as_json:
        common.say_json([json.loads(found.to_json()) for found in done])


def _chosen(study: str | None, engine: str | None) -> list[Study]:
    """Studies to run: one on one of its engines, or all."""
    from fabricsim.studies.frame.study import studies, study_of  # noqa: PLC0415  --help must not pay for it

    if study is not None:
        return [study_of(study).on(engine)]
    if engine is not None:
        msg = f"--engine {engine} needs a study to run by it, such as fabricsim validate dai2024 --engine packet"
        raise InputError(msg)
    return studies()


def _validate(study: Study, uncertainty: int, output: Path | None, *, quiet: bool) -> Validation:
    from fabricsim.report.validation import to_text  # noqa: PLC0415  as above

    with common.progress(f"validate {study.name}") as report:
        found = study.validate(report, uncertainty)
    if not quiet:
        common.say(to_text(found, common.columns()))
    if output is not None:
        path = common.output_folder(output) / f"{found.study}.json"
        common.write_text(path, found.to_json() + "\n")
        for written in (path, *study.draw(found, output)):
            common.note(f"wrote {written}")
    return found
