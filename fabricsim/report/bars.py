"""Stacked bars: where the time of ranks goes, and of runs over several transports."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.report.axis_names import heading
from fabricsim.report.compared import compared
from fabricsim.report.labels import tell_apart
from fabricsim.results.breakdown import (
    IterationParts,
    critical_rank,
    iteration_parts,
    rank_count,
    rank_time,
    simulated_ranks,
)
from fabricsim.results.jobs import of_longest, of_ranks
from fabricsim.results.places import short_names
from fabricsim.units import human_seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fabricsim.results.result import RunRecord

MOST_RANKS = 16
"""Bars in a breakdown at most."""
_LEAST = 1 / 500
"""Share of the longest bar below which a part is thinner than a dot of the picture, and has no place in the legend."""
_NAME_WIDTH = 28
"""Letters of a line of a name."""
_MARGIN, _GAP = 0.35, 0.1
"""Inches beside names, and beside what stands at the end of a bar."""
_LEAST_BAR = 0.2
"""Share of the width that the longest bar has at least."""


@style.picture
def breakdown(result: RunRecord) -> Figure:
    """Draw where the iteration goes, a bar for each rank: at most `MOST_RANKS`, the critical one and others.

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if the program is empty.
    """
    ranks, simulated = rank_count(result), simulated_ranks(result)
    style.require_some(len(simulated), "op", "the program holds no work")
    chosen = [simulated[index] for index in style.evenly(len(simulated), MOST_RANKS)]
    if (critical := critical_rank(of_longest(result))) not in chosen:  # the rank that headline and table are about
        chosen[min(range(len(chosen)), key=lambda place: abs(chosen[place] - critical))] = critical
    figure = style.new_figure(0.85 + 0.19 * len(chosen))
    axes = figure.add_subplot()
    of_rank = of_ranks(result)
    times = [rank_time(of_rank.get(rank, result), rank) for rank in chosen]
    _stack(axes, times, style.dimension_colours(result.calls.dimensions))
    style.name_ranks(axes, short_names(result, chosen), ranks)
    axes.set_title(f"{result.name} over {result.transport}", wrap=True)
    return figure


@style.picture
def comparison(results: Sequence[RunRecord], labels: tuple[str, Sequence[str]] | None = None) -> Figure:
    """Draw the iterations of several runs below one another, with the speed-up over the slowest, if there is one.

    `results`: runs of one scenario over several transports or by several engines, or of one job on several fabrics, in
        the order of the bars.
    `labels`: what they differ in, and what each is called; found out if left out.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no run.
    """
    style.require_some(len(results), "run", "name at least one transport")
    by, called = labels or tell_apart(results)
    rows = [row for group in compared(results, called) for row in group]
    times = [iteration_parts(row.result) for row in rows]
    slowest = max(time.iteration for time in times)
    figure = style.new_figure(0.85 + 0.24 * len(rows))
    axes = figure.add_subplot()
    dimensions = dict.fromkeys(name for result in results for name in result.calls.dimensions)
    _stack(axes, times, style.dimension_colours(list(dimensions)))
    _, scale = style.time_unit(slowest)
    filled = [fill(row.name, _NAME_WIDTH) for row in rows]
    longest = max(len(line) for name in filled for line in name.split("\n"))
    wide = figure.get_figwidth() - _MARGIN - style.LETTER * longest
    ends = []
    for place, (time, row) in enumerate(zip(times, rows, strict=True)):
        label = human_seconds(seconds(time.iteration)) + ("" if row.speed is None else f" ({row.speed:.2f}x)")
        end = time.iteration / scale
        axes.annotate(label, (end, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
        ends.append(end / max(1 - (style.LETTER * len(label) + _GAP) / wide, _LEAST_BAR))
    axes.set_xlim(right=max(ends))
    axes.set_yticks(range(len(rows)), filled)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel(heading(by))
    if len({result.name for result in results}) == 1:
        axes.set_title(results[0].name, wrap=True)
    return figure


def _stack(axes: Axes, times: Sequence[IterationParts], colours: Mapping[str, str]) -> None:
    """Draw the parts of each time; `colours`: of dimensions."""
    longest = max(time.iteration for time in times)
    unit, scale = style.time_unit(longest)
    dimensions = list(dict.fromkeys(name for time in times for name in time.exposed))
    parts = [("compute", style.COMPUTE_COLOUR, [time.compute for time in times])]
    parts += [(f"exposed, {name}", colours[name], [time.exposed.get(name, 0) for time in times]) for name in dimensions]
    parts += [("host", style.HOST_COLOUR, [time.host for time in times])]
    parts += [("bubble", style.BUBBLE_COLOUR, [time.bubble for time in times])]
    places, left = np.arange(len(times)), np.zeros(len(times))
    for label, colour, values in parts:
        width = np.array(values) / scale
        if max(values) >= _LEAST * longest:
            axes.barh(places, width, 0.72, left, color=colour, label=label)
        left += width
    hidden = [time.overlapped for time in times]
    if max(hidden) >= _LEAST * longest:
        bars = axes.barh(places, np.array(hidden) / scale, 0.72, label="communication behind compute")
        for bar in bars:
            bar.set(facecolor=style.COMPUTE_COLOUR, edgecolor="white", hatch="////", linewidth=0.0)
    axes.set_xlabel(f"Time in the iteration ({unit})")
    style.legend(axes.get_figure(), of=axes)  # type: ignore[arg-type]  # of a figure, no part of one
