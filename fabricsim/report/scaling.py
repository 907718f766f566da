"""Weak and strong scaling: efficiency and speed-up over the number of nodes, and rates over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


class ScaledRun(NamedTuple):
    """One run: the line that it belongs to, what is run, nodes, whether the batch grows with them, and seconds."""

    line: str
    model: str
    nodes: int
    weak: bool
    iteration: float


@style.picture
def scaling(runs: Sequence[ScaledRun], title: str) -> Figure:
    """Draw the efficiency of weak scaling and the speed-up of strong scaling, both against the fewest nodes.

    `runs`: lines are means over their models, bands go from the least to the greatest of them.
    `title`: what was run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no run.
    """
    style.require_some(len(runs), "run", "the study ran nothing")
    figure, panels = style.two_panels(2.7, 5.2)
    nodes = sorted({run.nodes for run in runs})
    for axes, weak in zip(panels, (True, False), strict=True):
        if not weak:
            ideal = [count / nodes[0] for count in nodes]
            axes.plot(nodes, ideal, "--", color=style.MEASURED_COLOUR, linewidth=0.8, label="ideal")
        for place, line in enumerate(dict.fromkeys(run.line for run in runs)):
            _line(axes, [run for run in runs if run.line == line and run.weak == weak], place)
        axes.set_xscale("log", base=2)
        axes.set_xticks(nodes, list(map(str, nodes)))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Nodes")
        axes.set_ylabel("Efficiency (%)" if weak else "Speed-up")
        style.panel_title(axes, f"{'Weak' if weak else 'Strong'} scaling, against {nodes[0]} nodes")
        axes.grid(visible=True)
    panels[0].set_ylim(0, 105)
    figure.suptitle(title, wrap=True)
    style.legend(figure)
    return figure


def _line(axes: Axes, runs: Sequence[ScaledRun], place: int) -> None:
    by_model: dict[str, dict[int, float]] = {}
    for run in runs:
        by_model.setdefault(run.model, {})[run.nodes] = run.iteration
    gains: dict[int, list[float]] = {}
    for times in by_model.values():
        first = times[min(times)]
        for nodes, time in times.items():
            gains.setdefault(nodes, []).append(first / time * (100 if runs[0].weak else 1))
    if not gains:
        return
    sizes = sorted(gains)
    colour, marker = style.series_look(place)
    least, mean, most = ([float(pick(gains[count])) for count in sizes] for pick in (min, np.mean, max))
    axes.fill_between(sizes, least, most, color=colour, alpha=0.15, linewidth=0)
    axes.plot(sizes, mean, marker=marker, color=colour, label=runs[0].line)


@style.picture
def rates_over_time(rates: Mapping[str, tuple[float, NDArray[np.float64]]], title: str) -> Figure:
    """Draw the rate of one wire over time, a line for each run.

    `rates`: width of a stretch of time in seconds, and Gb/s in each stretch; by the name of the run.
    `title`: what was run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no run.
    """
    style.require_some(len(rates), "run", "the study ran nothing")
    figure = style.new_figure(2.4)
    axes = figure.subplots()
    unit, scale = style.time_unit(max(width * len(rate) for width, rate in rates.values()) * 1e12)
    for (name, (width, rate)), colour in zip(rates.items(), style.SERIES_COLOURS * len(rates), strict=False):
        edges = np.arange(len(rate) + 1) * (width * 1e12 / scale)
        axes.stairs(rate, edges, color=colour, linewidth=1.2, label=name)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"Time ({unit})")
    axes.set_ylabel("Payload rate (Gb/s)")
    axes.grid(visible=True)
    axes.set_title(title, wrap=True)
    style.legend(figure)
    return figure
