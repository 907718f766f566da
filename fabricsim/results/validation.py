"""Measured and predicted figures side by side: what a study and a calibration give."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabricsim.errors import SimulationError


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
        Where the measured figure comes from.
    certainty
        How sure the measured figure is, see `fabricsim.measured.Certainty`.
    interval
        Between which two figures the prediction lies in 80 % of the cases, for what its parameters may be off; None if
        that was not asked.

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
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Refuse figures that no comparison can use, and names that are no text."""
        for key in ("quantity", "unit", "source", "certainty"):
            if not isinstance(getattr(self, key), str):
                raise TypeError(f"{self.quantity}: {key} is {getattr(self, key)!r}; it should be a text")
        if not (math.isfinite(self.measured) and math.isfinite(self.predicted)):
            msg = f"{self.quantity}: measured {self.measured}, predicted {self.predicted}: both must be finite numbers"
            raise SimulationError(msg)

    @property
    def relative_error(self) -> float | None:
        """``(predicted - measured) / measured``; ``None`` if nothing (0) was measured."""
        measured, predicted = float(self.measured), float(self.predicted)
        return (predicted - measured) / measured if measured else None

    @property
    def error(self) -> float:
        """The relative error; 0 if nothing was measured."""
        return self.relative_error or 0.0

    @property
    def inside(self) -> bool:
        """Whether the measured figure lies in the interval of the prediction."""
        return self.interval is not None and self.interval[0] <= self.measured <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """Row of the JSON object."""
        row = {
            "quantity": self.quantity,
            "unit": self.unit,
            "measured": float(self.measured),
            "predicted": float(self.predicted),
            "relative_error": self.relative_error,
            "source": self.source,
            "certainty": self.certainty,
        }
        return row if self.interval is None else {**row, "interval": list(self.interval)}


@dataclass(frozen=True)
class Validation:
    """Predictions held against measurements.

    Attributes
    ----------
    study
        What was validated, such as ``"hkbu"``.
    rows
        The comparisons, in the order in which they are shown.
    summary
        The findings by name, such as ``{"largest error, 100G busbw from 4 MiB": 0.06}``.
    parameters
        What was assumed and set, by name.
    left_out
        Figures that are not predicted, and why not.
    """

    study: str
    rows: Sequence[ValidationRow]
    summary: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse rows and tables that are none, and what JSON has no words for, which users' studies may have."""
        for key in ("summary", "parameters", "left_out"):
            if not isinstance(getattr(self, key), Mapping):
                raise TypeError(f"the study {self.study} has the {key} {getattr(self, key)!r}; it should be a dict")
        for row in self.rows:
            if not isinstance(row, ValidationRow):
                raise TypeError(f"the study {self.study} has the row {row!r}; it should be a ValidationRow")
        try:
            self.to_json()
        except (TypeError, ValueError) as error:
            raise type(error)(f"the study {self.study}: {error}; give finite numbers and text") from error

    def sources(self) -> dict[str, None]:
        """List the sources of the measured figures, each once, in the order in which they are met."""
        return dict.fromkeys(row.source for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """All of it as one JSON object of plain Python values."""
        return {
            "study": self.study,
            "rows": [row.to_dict() for row in self.rows],
            "summary": dict(self.summary),
            "parameters": dict(self.parameters),
            **({"left_out": dict(self.left_out)} if self.left_out else {}),
        }

    def to_json(self) -> str:
        """All of it as JSON text, the same on every run."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:  # noqa: ANN401  json asks about whatever it does not know
    """Plain Python value of a NumPy scalar or array."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON form")
