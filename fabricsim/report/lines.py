"""Figures over a swept value: a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

_ALIKE = 0.75
"""Share of the largest figure above which all are alike."""


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
        colour, marker = style.series_look(number)
        width = 1.0 + 1.3 * (len(series) - number - 1)  # lines that lie on one another all show
        axes.plot(values, heights, color=colour, marker=marker, linewidth=width, markersize=width + 3, label=name)
    axes.set_xscale("log", base=2)
    ticks = sorted({value for values, _ in series.values() for value in values})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    least, most = min(heights := [figure for _, figures in series.values() for figure in figures]), max(heights)
    if least < _ALIKE * most:  # else lines that start at 0 would all look flat
        axes.set_ylim(0, 1.1 * most)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    style.legend(figure)
    return figure


@style.picture
def frontier(  # noqa: PLR0913  the rest are rarely given, and by name only
    points: Sequence[tuple[float, float, str, str]],
    x: str,
    y: str,
    title: str,
    *,
    more: tuple[bool, bool] = (False, False),
    groups: str | None = None,
) -> Figure:
    """Draw choices by two figures, and join those that none beats in both.

    `points`: both figures, the label of the point, empty for none, and the group whose colour and marker it gets.
    `x`, `y`: what the axes show, with units.
    `more`: whether more of each figure is better; else less is.
    `groups`: what the groups differ in, above their names.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no point.
    """
    style.require_some(len(points), "choice", "nothing was compared")
    figure = style.new_figure(3.8, widest=5.5)
    axes = figure.subplots()
    for number, group in enumerate(dict.fromkeys(point[3] for point in points)):
        own = [point for point in points if point[3] == group]
        colour, marker = style.series_look(number)
        filled = colour if number == 0 else "none"  # what lies on another one shows
        across, up = zip(*(point[:2] for point in own), strict=True)
        axes.scatter(across, up, 15 * (1 + number), filled, marker=marker, edgecolors=colour, label=group, zorder=3)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.margins(0.15)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    best = _unbeaten([point[:2] for point in points], more)
    ends = (best[0][0], low if more[1] else high), (left if more[0] else right, best[-1][1])
    steps = [ends[0], *best, ends[1]]
    axes.step(*zip(*steps, strict=True), where="post", color=style.MEASURED_COLOUR, linewidth=1, label="frontier")
    axes.set(xlim=(left, right), ylim=(low, high))
    labelled = [point for point in points if point[2]]
    for at, height, label in _labels(labelled, 0.08 * (right - left), 0.045 * (high - low)):
        axes.annotate(label, (at, height), xytext=(5, 3), textcoords="offset points", fontsize=6)
    axes.grid(alpha=0.3)
    style.legend(figure, title=groups)
    return figure


def _unbeaten(points: Sequence[tuple[float, float]], more: tuple[bool, bool]) -> list[tuple[float, float]]:
    """Give the points than which no other is better in one figure and as good in the other, by the first figure."""
    across, up = (-1 if each else 1 for each in more)
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (across * point[0], up * point[1])):
        if not best or up * y < up * best[-1][1]:
            best.append((x, y))
    return best


def _labels(
    points: Sequence[tuple[float, float, str, str]], wide: float, tall: float
) -> list[tuple[float, float, str]]:
    """Give points their labels; of neighbours that would write over one another all are told at the highest."""
    placed: list[tuple[float, float, list[str]]] = []
    for at, height, label, _ in sorted(points, key=lambda point: (-point[1], point[0])):
        near = next((one for one in placed if abs(one[0] - at) < wide and abs(one[1] - height) < tall), None)
        if near is None:
            placed.append((at, height, [label]))
        elif label not in near[2]:
            near[2].append(label)
    return [(at, height, ", ".join(labels)) for at, height, labels in placed]
