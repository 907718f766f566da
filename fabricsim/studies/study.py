"""What a validation study gives: measured and predicted figures side by side."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeGuard

from fabricsim.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


@dataclass(frozen=True)
class ValidationRow:
    """One quantity, measured and predicted.

    Attributes
    ----------
    quantity
        What it is, such as ``"all_reduce busbw, 64 MiB"``.
    unit
        Unit of both figures.
    measured, predicted
        The figures; both finite.
    source
        If the measured figure comes from.
    certainty
        How sure the measured figure is, see `fabricsim.studies.measured.Certainty`.

    Raises
    ------
    SimulationError
        If a figure is not finite.
    """

    quantity: str
    unit: str
    measured: float
    predicted: float
    source: str
    certainty: str

    def __post_init__(self) -> None:
        """Refuse figures that no comparison can use."""
        if not (math.isfinite(self.measured) and math.isfinite(self.predicted)):
            msg = f"{self.quantity}: measured {self.measured}, predicted {self.predicted}: both must be finite numbers"
            raise SimulationError(msg)

    @property
    def relative_error(self) -> float | None:
        """``(predicted - measured) / measured``; ``None`` if nothing (0) was measured."""
        measured, predicted = float(self.measured), float(self.predicted)
        return (predicted - measured) / measured if measured else None

    def to_dict(self) -> dict[str, Any]:
        """Row of the study's JSON object."""
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "measured": float(self.measured),
            "predicted": float(self.predicted),
            "relative_error": self.relative_error,
            "source": self.source,
            "certainty": self.certainty,
        }


@dataclass(frozen=True)
class Study:
    """One validation study.

    Attributes
    ----------
    study
        Its name on the command line, such as ``"hkbu"``.
    rows
        The comparisons, in the order in which they are shown.
    summary
        The findings by name, such as ``{"largest error, 100G busbw from 4 MiB": 0.06}``.
    parameters
        What was assumed and set, by name.
    """

    study: str
    rows: Sequence[ValidationRow]
    summary: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def largest_error(self) -> float:
        """Largest absolute relative error of all rows; 0 if none has one."""
        return max((abs(row.relative_error) for row in self.rows if row.relative_error is not None), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Study as one JSON object of plain Python values."""
        return {
            "study": self.study,
            "rows": [row.to_dict() for row in self.rows],
            "summary": dict(self.summary),
            "parameters": dict(self.parameters),
        }

    def to_json(self) -> str:
        """Study as JSON text, the same on every run.

        Raises
        ------
        ValueError
            If a figure of `summary` or `parameters` is not finite: JSON has no word for it.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False, default=_plain)

    def table(self) -> Table:
        """Study as a table for a terminal; ``[1]`` stands for the first of `sources`."""
        from rich.markup import escape  # noqa: PLC0415  rich is slow to import and JSON needs none of it

        from fabricsim.report.tables import FittedTable  # noqa: PLC0415  as above

        sources = list(self.sources())
        figures, words = ["Measured", "Predicted", "Error"], ["Unit", "Certainty", "Source"]
        table = FittedTable("Quantity", figures, words=words, least=["Source", "Certainty", "Unit"])
        for row in self.rows:
            table.add_row(
                escape(row.quantity),
                _figure(row.measured),
                _figure(row.predicted),
                _percent(row.relative_error),
                escape(row.unit),
                escape(row.certainty),
                escape(f"[{sources.index(row.source) + 1}]"),
            )
        return table

    def sources(self) -> dict[str, None]:
        """List the sources of the measured figures, each once, in the order in which they are met."""
        return dict.fromkeys(row.source for row in self.rows)

    def to_text(self, width: int = 120) -> str:
        """Table, findings and parameters as plain text of at most `width` columns, as far as words allow."""
        from rich.console import Console  # noqa: PLC0415  as in `table`
        from rich.text import Text  # noqa: PLC0415  as in `table`

        text = StringIO()
        console = Console(file=text, width=width, force_terminal=False, color_system=None, legacy_windows=False)
        console.print(Text(f"validate {self.study}"), self.table(), "", sep="\n")
        text.write(_wrapped("sources", [f"[{number}] {said}" for number, said in enumerate(self.sources(), 1)], width))
        for heading, values in (("summary", self.summary), ("parameters", self.parameters)):
            plain = [f"{name}: {_shown(value)}" for name, value in values.items() if not _is_nested(value)]
            text.write(_wrapped(heading, plain, width) if values else "")
            for name, value in values.items():
                if _is_nested(value):
                    console.print(Text(f"  {name}"), _nested(value), "", sep="\n")
        return text.getvalue()


def _wrapped(heading: str, lines: Sequence[str], width: int) -> str:
    """Write lines below a heading; a word is never broken."""
    fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
    written = [fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([heading, *written]) + "\n"


def _is_nested(value: object) -> TypeGuard[Mapping[str, Mapping[str, float]]]:
    return isinstance(value, Mapping) and all(isinstance(inner, Mapping) for inner in value.values())


def _nested(cases: Mapping[str, Mapping[str, float]]) -> Table:
    """Cases one below the other, a column per figure; on a narrow terminal the last are left out."""
    from rich.markup import escape  # noqa: PLC0415  as in `Study.table`

    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  as above

    keys = [key.replace("_", "\n") for key in next(iter(cases.values()), {})]
    table = FittedTable("Case", map(escape, keys), least=[*reversed(keys[1:])])
    for case, figures in cases.items():
        table.add_row(escape(case), *map(_figure, figures.values()))
    return table


def _figure(value: float) -> str:
    return f"{float(value):.4g}"


def _percent(error: float | None) -> str:
    return "n/a" if error is None else f"{error:+.1%}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries, in --json"
    return _figure(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:  # noqa: ANN401  json asks about whatever it does not know
    """Plain Python value of a NumPy scalar or array."""
    if hasattr(value, "tolist"):
        return value.tolist()
    msg = f"{value!r} of type {type(value).__name__} has no JSON form"
    raise TypeError(msg)
