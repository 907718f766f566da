"""Stacked bars: where the time of ranks goes, and of runs over several transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.report.labels import RunNames, tell_apart
from fabricsim.results.breakdown import critical_rank, iteration_parts, rank_count, rank_time, simulated_ranks
from fabricsim.units import human_seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fabricsim.results.breakdown import IterationParts
    from fabricsim.results.result import RunRecord

MOST_RANKS = 16
"""Bars in a breakdown at most."""
_LEAST = 1 / 500
"""Share of the longest bar below which a part is thinner than a dot of the picture, and has no place in the legend."""


def breakdown(result: RunRecord) -> Figure:
    """Draw where the iteration goes, a bar for each rank: at most `MOST_RANKS`, the critical one and others.

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if the program is empty.
    """
    ranks, simulated = rank_count(result), simulated_ranks(result)
    style.require_some(len(simulated), "op", "the program holds no work")
    chosen = [simulated[index] for index in style.evenly(len(simulated), MOST_RANKS)]
    if (critical := critical_rank(result)) not in chosen:  # the rank that headline and table are about
        chosen[min(range(len(chosen)), key=lambda place: abs(chosen[place] - critical))] = critical
    figure = style.new_figure(3.6 + 0.45 * len(chosen))
    axes = figure.add_subplot()
    times = [rank_time(result, rank) for rank in chosen]
    _stack(axes, times, max(time.iteration for time in times))
    axes.set_xticks(range(len(chosen)), [str(rank) for rank in chosen])
    axes.set_xlabel("Rank")
    some = f", {len(chosen)} of {ranks} ranks" if len(chosen) < ranks else ""
    figure.suptitle(f"Where the iteration goes: {result.name} over {result.transport}{some}", wrap=True)
    return figure


def comparison(results: Sequence[RunRecord], labels: tuple[str, Sequence[str]] | None = None) -> Figure:
    """Draw the iterations of several runs side by side, with the speed-up over the slowest.

    `results`: runs of one scenario over several transports or by several engines, or of one job on several fabrics, in
        the order of the bars.
    `labels`: what they differ in, and what each is called; found out if left out.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no run.
    """
    style.require_some(len(results), "run", "name at least one transport")
    times = [iteration_parts(result) for result in results]
    slowest = max(time.iteration for time in times)
    figure = style.new_figure(3.6 + 1.2 * len(results))
    axes = figure.add_subplot()
    _stack(axes, times, slowest)
    _, scale = style.time_unit(slowest)
    for place, time in enumerate(times):
        label = f"{human_seconds(seconds(time.iteration))}\n{slowest / time.iteration:.2f}x"
        axes.annotate(
            label, (place, time.iteration / scale), (0, 3), textcoords="offset points", ha="center", va="bottom"
        )
    axes.set_ylim(top=1.18 * slowest / scale)
    by, names = labels or tell_apart([RunNames(result.name, result.transport, result.engine) for result in results])
    style.name_bars(axes, names)
    axes.set_xlabel(by[:1].upper() + by[1:])
    of = "" if len({result.name for result in results}) > 1 else f": {results[0].name}"
    figure.suptitle(f"Iteration time by {by}{of}", wrap=True)
    return figure


def _stack(axes: Axes, times: Sequence[IterationParts], longest: float) -> None:
    unit, scale = style.time_unit(longest)
    dimensions = list(dict.fromkeys(name for time in times for name in time.exposed))
    colours = style.dimension_colours(dimensions)
    parts = [("compute", style.COMPUTE_COLOUR, [time.compute for time in times])]
    parts += [
        (f"exposed communication,\n{name}", colours[name], [time.exposed.get(name, 0) for time in times])
        for name in dimensions
    ]
    parts += [("host", style.HOST_COLOUR, [time.host for time in times])]
    parts += [("bubble", style.BUBBLE_COLOUR, [time.bubble for time in times])]
    places, bottom = np.arange(len(times)), np.zeros(len(times))
    for label, colour, values in parts:
        height = np.array(values) / scale
        if max(values) >= _LEAST * longest:
            axes.bar(places, height, 0.7, bottom, color=colour, label=label, edgecolor="white", linewidth=0.5)
        bottom += height
    hidden = [time.overlapped for time in times]
    if max(hidden) >= _LEAST * longest:
        label = "communication behind\ncompute"
        axes.bar(
            places,
            np.array(hidden) / scale,
            0.7,
            label=label,
            facecolor="none",
            edgecolor="white",
            hatch="///",
            linewidth=0.0,
        )
    axes.set_ylabel(f"Time in the iteration ({unit})")
    axes.set_xlim(-0.6, len(times) - 0.4)
    style.legend_beside(axes, reverse=True)
    _grey_hatches(axes)


def _grey_hatches(axes: Axes) -> None:
    """Give hatched patches in the legend a ground: white lines show on none."""
    legend = axes.get_legend()
    for handle in legend.get_patches() if legend is not None else ():
        if handle.get_hatch():
            handle.set_facecolor(style.COMPUTE_COLOUR)
