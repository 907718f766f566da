"""A calibration: measured and predicted times over size, and the errors of what was fitted and what was held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAND = 10
"""Percent of the grey band around no error."""
_HELD_COLOUR = "#D55E00"


class CalibratedRows(NamedTuple):
    """Rows of a table: sizes in bytes, measured and predicted seconds, shape ``(n,)``; fitted, or held out."""

    sizes: Sequence[int]
    measured: Sequence[float]
    predicted: Sequence[float]
    held_out: bool


@style.picture
def calibration(series: Sequence[CalibratedRows], title: str) -> Figure:
    """Draw one table of a calibration.

    `series`: rows that were fitted, and those that were held out.
    `title`: what was measured.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no row.
    """
    style.require_some(sum(len(each.sizes) for each in series), "row", "the table is empty")
    figure = style.new_figure(4.6, widest=5.0)
    times, errors = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    times.set(yscale="log", ylabel="Time (µs)", title=title)
    _draw_times(times, series)
    for each in series:
        error = (np.array(each.predicted) / np.array(each.measured) - 1) * 100
        label = f"measured, {'held out' if each.held_out else 'fitted'}"
        times.plot(each.sizes, np.array(each.measured) * 1e6, **_marks(each), label=label)
        errors.vlines(each.sizes, 0, error, color=_colour(each), linewidth=0.8)
        errors.plot(each.sizes, error, **_marks(each))
    errors.axhspan(-_BAND, _BAND, color=style.BUBBLE_COLOUR, alpha=0.4, zorder=0, linewidth=0, label=f"±{_BAND} %")
    errors.axhline(0, color=style.MEASURED_COLOUR, linewidth=0.8)
    errors.set_ylabel("Error of\nprediction (%)")
    style.size_axis(errors, [size for each in series for size in each.sizes], "Size")
    style.legend(figure)
    return figure


def _draw_times(axes: Axes, series: Sequence[CalibratedRows]) -> None:
    pairs = sorted((size, time) for each in series for size, time in zip(each.sizes, each.predicted, strict=True))
    sizes, predicted = np.array(pairs).T
    style.logarithmic(axes.yaxis, float(predicted.min()) * 1e6, float(predicted.max()) * 1e6)
    axes.plot(sizes, predicted * 1e6, "-", color=style.PREDICTED_COLOUR, linewidth=1.2, label="predicted")


def _colour(series: CalibratedRows) -> str:
    return _HELD_COLOUR if series.held_out else style.MEASURED_COLOUR


def _marks(series: CalibratedRows) -> dict[str, object]:
    return {
        "linestyle": "none",
        "marker": "D" if series.held_out else "s",
        "markersize": 4,
        "markerfacecolor": "white" if series.held_out else _colour(series),
        "color": _colour(series),
    }
