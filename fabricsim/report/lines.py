"""Figures over a swept value: a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

_MARKERS = "osD^vPX"


@style.picture
def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str, title: str) -> Figure:
    """Draw figures over a value that doubles.

    `series`: values and figures of each line, by its name.
    `x`, `y`: what the axes show, with units.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no line.
    """
    style.require_some(len(series), "line", "nothing was swept")
    figure = style.new_figure(widest=5.0)
    axes = figure.subplots()
    for number, (name, (values, heights)) in enumerate(series.items()):
        colour = style.SERIES_COLOURS[number % len(style.SERIES_COLOURS)]
        width = 1.0 + 1.3 * (len(series) - number - 1)  # lines that lie on one another all show
        axes.plot(
            values,
            heights,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            linewidth=width,
            markersize=width + 3,
            label=name,
        )
    axes.set_xscale("log", base=2)
    ticks = sorted({value for values, _ in series.values() for value in values})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * max(figure for _, figures in series.values() for figure in figures))
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    style.legend(figure)
    return figure


@style.picture
def frontier(points: Sequence[tuple[float, float, str, str]], x: str, y: str, title: str) -> Figure:
    """Draw choices by two figures of which less is better, and join those that none beats in both.

    `points`: both figures, the label of the point, and the group whose colour and marker it gets.
    `x`, `y`: what the axes show, with units.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no point.
    """
    style.require_some(len(points), "choice", "nothing was compared")
    figure = style.new_figure(3.8, widest=5.5)
    axes = figure.subplots()
    best = sorted(point[:2] for point in points if not any(_beats(other, point) for other in points))
    axes.step(*zip(*best, strict=True), where="post", color=style.MEASURED_COLOUR, linewidth=1, label="frontier")
    for number, group in enumerate(dict.fromkeys(point[3] for point in points)):
        own = [point for point in points if point[3] == group]
        colour = style.SERIES_COLOURS[number % len(style.SERIES_COLOURS)]
        axes.scatter(
            [p[0] for p in own], [p[1] for p in own], color=colour, marker=_MARKERS[number], label=group, zorder=3
        )
        for place, (at, height, label, _) in enumerate(own):  # labels of neighbours above and below
            offset = (6, 4 - 12 * (place % 2))
            axes.annotate(label, (at, height), xytext=offset, textcoords="offset points", fontsize=6)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.margins(0.12)
    axes.grid(alpha=0.3)
    style.legend(figure)
    return figure


def _beats(one: tuple[float, float, str, str], other: tuple[float, float, str, str]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one[:2] != other[:2]
