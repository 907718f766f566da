"""How much links, threads and NVLink are used over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.report import style
from fabricsim.results.use_over_time import TierUse, of_series, use_over_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.result import RunRecord, Series

MOST_TIERS = 6
"""Panels at most."""
_TOP = 105
"""Percent at which panels end, whatever was used: pictures of several runs are held against one another."""
_ALIKE = 0.01
"""Difference of shares that nobody sees."""


@style.picture
def utilisation(result: RunRecord) -> Figure:
    """Draw the use of resources over time, a panel for each tier, the busiest first (at most `MOST_TIERS`).

    Of wires the band goes from the least to the most used one. NVLink, PCIe and threads are not recorded over time:
    there each call has its mean use of what limits it, while it runs.

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if nothing was used.
    """
    edges, tiers = use_over_time(result)
    style.require_some(len(tiers), "use of a resource", "no rank of this run communicates")
    return _panels(edges, tiers, result.iteration, f"{result.name} over {result.transport}")


@style.picture
def payload_rates(series: Series, end: int, title: str) -> Figure:
    """Draw the use of the wires of a series as `utilisation` does.

    `end`: of the run, ps.
    `title`: what was run.
    Raises ResultError if no wire carried anything.
    """
    edges, tiers = of_series(series, end)
    style.require_some(len(tiers), "busy link", "nothing crossed a recorded wire")
    return _panels(edges, tiers, end, title)


def _panels(edges: NDArray[np.float64], tiers: Sequence[TierUse], end: int, title: str) -> Figure:
    shown = tiers[:MOST_TIERS]
    figure = style.new_figure(0.7 + 0.68 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(end)
    for axes, use in zip(panels, shown, strict=True):
        _panel(axes, use, edges / scale)
    panels[0].set_ylim(0, _TOP)
    panels[0].locator_params(axis="y", nbins=1 if style.narrow() else 2)
    panels[0].set_xlim(0, end / scale)
    panels[-1].set_xlabel(f"Time ({unit})")
    figure.supylabel("Use (%)", fontsize="medium")
    figure.suptitle(title, wrap=True)
    if any(
        axes.patches[0].get_label().startswith("least") or use.held for axes, use in zip(panels, shown, strict=True)
    ):
        style.legend(figure)
    return figure


def _panel(axes: Axes, use: TierUse, edges: NDArray[np.float64]) -> None:
    colour = style.COMMUNICATION_COLOURS[0] if use.held else style.COMPUTE_COLOUR
    label = "what held each call, mean use while it ran" if use.held else "mean"
    if use.held or float((use.most - use.least).max()) < _ALIKE:
        axes.stairs(100 * use.most, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
    else:
        axes.stairs(
            100 * use.most, edges, baseline=100 * use.least, fill=True, color=colour, alpha=0.35, linewidth=0,
            label="least to most used of the tier",
        )  # fmt: skip
    axes.stairs(100 * use.mean, edges, color=colour, linewidth=1.0, baseline=None, label=label)
    kind = "" if use.kind == "wire" else f"{use.kind} "
    told = f"{use.alike} alike, busiest {use.busiest}" if use.alike > 1 and not style.narrow() else ""
    style.panel_title(axes, f"{kind}{use.tier if use.alike > 1 else use.busiest}", told)
