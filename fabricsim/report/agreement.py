"""Measured figures against predicted ones."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.units import human_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_WIDTH = 36  # characters; a quantity's name is a sentence and must leave room for the bars


@style.picture
def measured_against_predicted(rows: Sequence[Mapping[str, object]], title: str) -> Figure:
    """Draw pairs of bars, measured and predicted, each pair with its error; one panel for each unit.

    `rows`: mappings with ``quantity``, ``unit``, ``measured``, ``predicted`` and ``relative_error``, which is
        ``predicted / measured - 1``, None if it says nothing; other keys are ignored.
    `title`: what is compared.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if `rows` is empty.
    """
    style.require_some(len(rows), "figure", "the study compared nothing")
    units = list(dict.fromkeys(str(row["unit"]) for row in rows))
    groups = [[row for row in rows if row["unit"] == unit] for unit in units]
    names = [_names(group) for group in groups]
    heights = [sum(max(1.0, 0.45 * (name.count("\n") + 1)) for name in own) + 0.8 for own in names]
    figure = style.new_figure(0.9 + 0.4 * sum(heights))
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, unit, group, own in zip(panels, units, groups, names, strict=True):
        _pairs(axes, unit, group, own)
    figure.suptitle(title, wrap=True)
    style.legend(figure)
    return figure


@style.picture
def bus_bandwidth(sizes: Sequence[int], measured: Sequence[float], predicted: Sequence[float], title: str) -> Figure:
    """Draw bus bandwidth over message size, both logarithmic, and the error below.

    `sizes`: bytes, ascending, shape ``(n,)``.
    `measured`, `predicted`: bus bandwidth in bytes/s, shape ``(n,)``; `measured` may be empty if there is only a
        prediction.
    `title`: what was measured.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no size above 0 with a bandwidth above 0, which is all that a logarithm has room for.
    """
    size, forecast = np.array(sizes, float), np.array(predicted, float)
    truth = np.array(measured, float) if len(measured) else np.full(len(size), np.nan)
    fits = (size > 0) & (forecast > 0) & ((truth > 0) | np.isnan(truth))
    style.require_some(int(fits.sum()), "bandwidth", "name sizes above 0 bytes")
    size, truth, forecast = size[fits], truth[fits], forecast[fits]
    compared = bool(len(measured))
    figure = style.new_figure(4.0 if compared else 3.2, widest=5.0)
    panels = figure.subplots(1 + compared, 1, sharex=True, squeeze=False, height_ratios=[3, 1][: 1 + compared])[:, 0]
    if compared:
        panels[0].plot(size, truth / 1e9, "s", color=style.MEASURED_COLOUR, label="measured")
        _errors(panels[1], size, forecast / truth - 1)
    panels[0].plot(size, forecast / 1e9, "o-", color=style.PREDICTED_COLOUR, markersize=4, label="predicted")
    panels[0].set_yscale("log")
    shown = np.concatenate([forecast, truth[~np.isnan(truth)]]) / 1e9
    style.logarithmic(panels[0].yaxis, float(shown.min()), float(shown.max()))
    panels[0].set_ylabel("Bus bandwidth (GB/s)")
    panels[0].legend(loc="best")
    panels[0].grid(visible=True, which="major", alpha=0.3)
    style.size_axis(panels[-1], size, "Message size")
    figure.suptitle(title, wrap=True)
    return figure


def _names(rows: Sequence[Mapping[str, object]]) -> list[str]:
    names = [str(row["quantity"]) for row in rows]
    if len({name.partition(": ")[0] for name in names}) == 1 < len(names):  # which the title says
        names = [name.partition(": ")[2] or name for name in names]
    return [fill(name, 20 if style.narrow() else _LABEL_WIDTH) for name in names]


def _pairs(axes: Axes, unit: str, rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> None:
    places = np.arange(len(rows))
    measured = [_number(row["measured"]) for row in rows]
    predicted = [_number(row["predicted"]) for row in rows]
    axes.barh(places - 0.19, measured, 0.36, color=style.MEASURED_COLOUR, label="measured")
    axes.barh(places + 0.19, predicted, 0.36, color=style.PREDICTED_COLOUR, label="predicted")
    for place, truth, forecast, row in zip(places, measured, predicted, rows, strict=True):
        _label(axes, place - 0.19, truth, _digits(truth))
        _label(axes, place + 0.19, forecast, f"{_digits(forecast)}{_error(row['relative_error'])}")
    axes.set_yticks(places, names)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    # room for the labels beside the longest bar
    longest = max(1e-300, *measured, *predicted)
    axes.set_xlim(right=(1.7 if style.narrow() else 1.3) * longest)
    if unit == "%" and longest <= 100:  # noqa: PLR2004  the whole
        axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"Value ({unit})" if unit else "Value (no unit)")


def _digits(value: float) -> str:
    """Three digits, or as many as stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004  digits


def _label(axes: Axes, place: float, value: float, text: str) -> None:
    axes.annotate(text, (max(value, 0.0), place), (4, 0), textcoords="offset points", va="center", fontsize=6.5)


def _errors(axes: Axes, size: np.ndarray, error: np.ndarray) -> None:
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.plot(size, 100 * error, "o-", color=style.PREDICTED_COLOUR, markersize=4)
    axes.set_ylabel("Error (%)")
    axes.grid(visible=True, alpha=0.3)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _error(error: object) -> str:
    return f" ({human_percent(error, signed=True)})" if isinstance(error, (int, float)) else ""
