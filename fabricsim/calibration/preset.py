"""Writing a calibrated transport as a preset: complete, each figure with its source, whole or not at all."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricsim.errors import InputError
from fabricsim.files.atomic import whole
from fabricsim.scenario import library, toml_text
from fabricsim.scenario.certainty import GRADES, KEY
from fabricsim.scenario.include import is_file_name
from fabricsim.scenario.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fabricsim.calibration.calibrate import Calibration
    from fabricsim.calibration.fit import Estimate

SUFFIX = ".toml"


def check_target(path: Path) -> None:
    """Refuse a file name that the loader would not take for a file.

    Raises InputError if it does not end in ``.toml``.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"-o {path}: a preset is known as a file by its ending; name it {path.with_suffix(SUFFIX)}")


def write(path: Path, base: str, settings: Sequence[str], transport: str, found: Calibration) -> None:
    """Write the preset of a calibration.

    `path`: file to write, ending in ``.toml``.
    `base`, `settings`: scenario of the calibration, with the transport that it began with.
    `transport`: that transport's name in the library, or its file.
    `found`: the estimates.
    Raises InputError if the file cannot be written; an older one of that name is still there then.
    """
    text = render(path.stem, base, settings, transport, found)
    write_checked(path, text, lambda part: load(base, [*settings, f"transport={json.dumps(part)}"]))


def base_of(path: Path, name: str, refused: str) -> str:
    """Say how a file at `path` names what it is laid over: as it is called in the library, or where its file lies.

    Raises InputError, ``-o PATH:`` and `refused`, if both are one file.
    """
    if not is_file_name(name):
        return name
    if Path(name).resolve() == path.resolve():
        raise InputError(f"-o {path}: {refused}; name another file")
    return os.path.relpath(Path(name).resolve(), path.resolve().parent)


def write_checked(path: Path, text: str, check: Callable[[str], object]) -> None:
    """Write a preset whole or not at all.

    `path`: file to write, ending in ``.toml``.
    `text`: what it is to hold.
    `check`: called with the name of the file before it takes its place; what would not load back is not kept.
    Raises InputError if the file cannot be written; an older one of that name is still there then.
    """
    with whole(path, "name another file with -o", suffix=SUFFIX) as part:
        part.write_text(text, encoding="utf-8")
        check(str(part))


def render(name: str, base: str, settings: Sequence[str], transport: str, found: Calibration) -> str:
    """Give the text of the preset `name`; parameters as in `write`."""
    loaded = load(base, settings)
    tables: dict[str, Any] = {**loaded.resolved["transport"], "name": name}
    comments, switch = _comments(transport), _named_switch(transport)
    if switch is not None and not any("transport.switch" in setting for setting in settings):
        tables["switch"] = switch
    comments = {key: f"as in {transport}: {text}" for key, text in comments.items()}
    comments["name",] = f"begun with the transport {transport}"
    sure = {".".join(path[1:]): grade for path, grade in loaded.grades.items() if path[0] == "transport"}
    sure = {key: grade for key, grade in sure.items() if "switch" not in tables or not key.startswith("switch.")}
    for estimate in found.fit.estimates:
        estimate.parameter.put(tables, estimate.value)
        sure |= dict.fromkeys(estimate.parameter.keys, "T" if estimate.determined else "U")
        comments |= {tuple(key.split(".")): _source(estimate, found) for key in estimate.parameter.keys}
    head = [f"# Transport calibrated by fabricsim calibrate, begun with {transport}", "#"]
    head += [f"# {line}" for line in _about(found)]
    tables[KEY] = {grade: [key for key, said in sure.items() if said == grade] for grade in GRADES}
    return "\n".join([*head, *toml_text.lines(tables, comments, 120)]) + "\n"


def _about(found: Calibration) -> Iterator[str]:
    for each in found.compared:
        what = "held out" if each.held_out else "fitted"
        yield f"{each.measurement.name}: {len(each.measurement.sizes)} rows of {each.measurement.test}, {what}"
    yield "Intervals are of 95 %: Jacobian at the optimum times the variance of the residuals, Student's t."
    for warning in found.warnings:
        yield f"Warning: {warning}."


def _source(estimate: Estimate, found: Calibration) -> str:
    parameter = estimate.parameter
    of = found.rows(held_out=False)
    names = ", ".join(Path(each.measurement.name).name for each in of)
    rows = sum(len(each.measurement.sizes) for each in of)
    interval = f"95 % interval {parameter.text(estimate.low)}..{parameter.text(estimate.high)}"
    if not estimate.determined:
        return f"not determined by {names}, {rows} rows: {interval}"
    return f"calibrated on {names}, {rows} rows, {interval}"


def _files(transport: str) -> Iterator[Path]:
    """Yield a preset's file and those that it includes, the included first."""
    path = Path(transport) if transport.endswith(SUFFIX) else library.path("transports", transport)
    included = tomllib.loads(path.read_text(encoding="utf-8")).get("include")
    if isinstance(included, str):
        below = str(path.parent / included) if included.endswith(SUFFIX) else included
        yield from _files(below)
    yield path


def _named_switch(transport: str) -> str | None:
    """Name of the switch if the preset has one of the library."""
    named: Any = None
    for path in _files(transport):
        named = tomllib.loads(path.read_text(encoding="utf-8")).get("switch", named)
    return named if isinstance(named, str) and not named.endswith(SUFFIX) else None


def _comments(transport: str) -> toml_text.Comments:
    """Comment of each table and key of a preset."""
    texts = (path.read_text(encoding="utf-8") for path in _files(transport))
    found = {path: comment for text in texts for _, path, comment in toml_text.comments(text)}
    return {path: comment for path, comment in found.items() if comment}
