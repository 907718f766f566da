"""Measured and predicted figures as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, TypeGuard

from rich.markup import escape
from rich.text import Text

from fabricsim.report.console import ReportConsole
from fabricsim.report.tables import FittedTable
from fabricsim.units import human_percent

if TYPE_CHECKING:
    from rich.table import Table

    from fabricsim.results.validation import Validation


def to_text(found: Validation, width: int = 120) -> str:
    """Table, findings and parameters as plain text of at most `width` columns, as far as words allow."""
    text = StringIO()
    console = ReportConsole(file=text, width=width, force_terminal=False, color_system=None, legacy_windows=False)
    console.print(Text(f"validate {found.study}"), table(found), "", sep="\n")
    text.write(_wrapped("sources", [f"[{number}] {said}" for number, said in enumerate(found.sources(), 1)], width))
    sections: dict[str, Mapping[str, object]] = {
        "not predicted": found.left_out,
        "summary": found.summary,
        "parameters": found.parameters,
    }
    for heading, values in sections.items():
        plain = [f"{name}: {_shown(value)}" for name, value in values.items() if not _is_nested(value)]
        text.write(_wrapped(heading, plain, width) if values else "")
        for name, value in values.items():
            if _is_nested(value):
                console.print(Text(f"  {name}"), _nested(value), "", sep="\n")
    return text.getvalue()


def table(found: Validation) -> Table:
    """Rows as a table for a terminal; ``[1]`` stands for the first of the sources."""
    sources = list(found.sources())
    intervals = any(row.interval is not None for row in found.rows)
    columns = ["Measured", "Predicted", *(["80 % interval"] if intervals else []), "Error"]
    words = ["Unit", "Certainty", "Source"]
    fitted = FittedTable("Quantity", columns, words=words, least=["Source", "Certainty", "Unit"])
    for row in found.rows:
        error = "n/a" if row.relative_error is None else human_percent(row.relative_error, signed=True)
        said = row.unit, row.certainty, f"[{sources.index(row.source) + 1}]"
        spread = [] if not intervals else [" to ".join(map(_figure, row.interval))] if row.interval else ["n/a"]
        figures = _figure(row.measured), _figure(row.predicted), *spread, error
        fitted.add(row.quantity, *figures, *said)
    return fitted


def _wrapped(heading: str, lines: Sequence[str], width: int) -> str:
    """Write lines below a heading; a word is never broken."""
    fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
    written = [fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([heading, *written]) + "\n"


def _is_nested(value: object) -> TypeGuard[Mapping[str, Mapping[str, object]]]:
    return isinstance(value, Mapping) and all(isinstance(inner, Mapping) for inner in value.values())


def _nested(cases: Mapping[str, Mapping[str, object]]) -> Table:
    """Cases one below the other, a column per figure; on a narrow terminal the last are left out."""
    keys = [key.replace("_", "\n") for key in next(iter(cases.values()), {})]
    fitted = FittedTable("Case", map(escape, keys), least=[*reversed(keys[1:])])
    for case, figures in cases.items():
        fitted.add(case, *map(_shown, figures.values()))
    return fitted


def _figure(value: float) -> str:
    """Write four digits, or as many as stand before the point, without powers of ten."""
    return f"{float(value):,.0f}" if abs(value) >= 1e4 else f"{Decimal(f'{float(value):.4g}'):f}"  # noqa: PLR2004  four digits


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries, in --json"
    return _figure(value) if isinstance(value, float) else str(value)
