"""Predicted over measured figures, one point each, on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.units import human_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

_MARGIN = 1.15
_BAND = 0.1
"""Relative error of the grey band."""
_FEW = 60
"""Points that can be drawn large."""


@style.picture
def agreement(points: Sequence[tuple[float, float, str]], quantity: str, title: str) -> Figure:
    """Draw how well predictions agree with measurements.

    `points`: measured and predicted figure, both above 0, and the group whose colour and mark the point gets.
    `quantity`: what the figures are, with their unit.
    `title`: of the picture.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no point.
    """
    style.require_some(len(points), "comparison", "the study has no rows")
    figure = style.new_figure(4.4, widest=5.0)
    axes = figure.subplots()
    figures = np.array([point[:2] for point in points])
    ends = np.array([figures.min() / _MARGIN, figures.max() * _MARGIN])
    axes.fill_between(
        ends, ends * (1 - _BAND), ends * (1 + _BAND), color=style.BUBBLE_COLOUR, label=f"±{human_percent(_BAND, 0)}"
    )
    axes.plot(ends, ends, color=style.MEASURED_COLOUR, linewidth=0.8)
    groups = list(dict.fromkeys(point[2] for point in points))
    for number, group in enumerate(groups):
        of_group = figures[[point[2] == group for point in points]]
        again, colour = divmod(number, len(style.SERIES_COLOURS))
        axes.scatter(
            of_group[:, 0],
            of_group[:, 1],
            s=16 if len(points) <= _FEW else 6,
            color=style.SERIES_COLOURS[colour],
            marker=style.MARKERS[again % len(style.MARKERS)],
            label=group,
            zorder=3,
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=title)
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, *map(float, ends))
    axes.set_xlabel(f"Measured {quantity}")
    axes.set_ylabel(f"Predicted {quantity}")
    style.legend(figure)
    return figure
