"""The payload rate of the hottest links over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fabricsim.results.result import RunRecord, Series

MOST_LINKS = 8
"""Links shown at most."""

_GIGABITS = 8 / 1e9


def utilisation(result: RunRecord) -> Figure:
    """Draw the payload rate of the links that carry the most, one panel each (at most `MOST_LINKS`).

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`. Panels share both axes; the dashed line is what the link can carry.
    Raises ResultError if no link carried anything.
    """
    return payload_rates(result.series, result.iteration, f"{result.name} over {result.transport}")


def payload_rates(series: Series, end: int, title: str) -> Figure:
    """Draw the rates of a series as `utilisation` does.

    `end`: of the run, ps.
    `title`: what was run.
    Raises ResultError if no link carried anything.
    """
    carried = series.rate.sum(axis=1)
    # by the share of its capacity; the fabric's order among equals
    share = np.divide(carried, series.capacity, out=np.full(len(carried), np.inf), where=series.capacity > 0)
    order = np.argsort(-share, kind="stable")
    hottest = [int(link) for link in order if carried[link] > 0][:MOST_LINKS]
    style.require_some(len(hottest), "busy link", "no rank of this run communicates over a wire")
    figure = style.new_figure(9.5, 1.9 + 0.95 * len(hottest))
    panels = figure.subplots(len(hottest), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(end)
    for axes, link in zip(panels, hottest, strict=True):
        _panel(axes, series, link, scale)
    top = max(float(series.capacity[hottest].max()), float(series.rate[hottest].max())) * _GIGABITS
    panels[0].set_ylim(0, 1.12 * top)
    panels[0].set_xlim(0, end / scale)
    panels[-1].set_xlabel(f"Time ({unit}), bins of {series.interval / scale:.3g} {unit}")
    figure.supylabel("Payload rate (Gb/s)", fontsize="medium")
    active = int((carried > 0).sum())
    some = f"the {len(hottest)} hottest of {active} links" if active > len(hottest) else "links in use"
    figure.suptitle(f"Payload rate over time: {title}, {some}", wrap=True)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _panel(axes: Axes, series: Series, link: int, scale: float) -> None:
    edges = np.arange(series.rate.shape[1] + 1) * (series.interval / scale)
    rate = series.rate[link] * _GIGABITS
    axes.stairs(rate, edges, fill=True, color=style.COMPUTE_COLOUR, label="payload rate")
    capacity = series.capacity[link] * _GIGABITS
    axes.axhline(capacity, color="black", linestyle="--", linewidth=1.0, label="what the link can carry")
    axes.set_title(series.names[link], loc="left", fontsize="small")
    axes.set_title(f"peak {rate.max():.3g} Gb/s", loc="right", fontsize="small")
