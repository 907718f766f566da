"""Bytes between pairs of ranks as a heat map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabricsim.results.pairs import Pairs

MOST_CELLS = 512
"""Of a side; beyond, a cell shows the busiest pair of several neighbouring ranks."""
_MOST_TICKS = 8
_HIGH = 0.82  # of the width: the grid is a square with its colours beside it


@style.picture
def heat_map(pairs: Pairs, title: str) -> Figure:
    """Draw who sends how much to whom, in colours by the logarithm; pairs without traffic stay white.

    `title`: what was run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if nothing is sent.
    """
    from matplotlib.colors import LogNorm  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    source, target, carried = pairs.merged()
    style.require_some(int((carried > 0).sum()), "traffic", "no rank sends to another")
    cells = min(pairs.ranks, MOST_CELLS)
    each = -(-pairs.ranks // cells)
    grid = np.zeros((-(-pairs.ranks // each),) * 2)
    np.maximum.at(grid, (source // each, target // each), carried)
    low, high = float(grid[grid > 0].min()), float(grid.max())
    figure = style.new_figure(widest=4.8)
    figure.set_figheight(_HIGH * figure.get_figwidth())
    axes = figure.add_subplot()
    norm = LogNorm(low, max(high, 1.01 * low))
    edge = len(grid) * each
    image = axes.imshow(
        np.ma.masked_equal(grid, 0),
        cmap="viridis_r",
        norm=norm,
        extent=(-0.5, edge - 0.5, edge - 0.5, -0.5),
        interpolation="nearest",
    )
    if low < high:
        what = "Bytes of the pair" if each == 1 else "Bytes of the busiest pair"
        bar = figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)), label=what)
        ticks = _ticks(low, high)
        bar.set_ticks(ticks, labels=[human_bytes(tick) for tick in ticks], minor=False)
        bar.minorticks_off()
    else:
        title += f"; each pair {human_bytes(low)}"
    axes.set_xlabel("Receiving rank")
    axes.set_ylabel("Sending rank")
    axes.spines[:].set_visible(True)
    axes.set_title(title + ("" if each == 1 else f"; a cell is {each} x {each} ranks"), wrap=True)
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """Powers of two between two numbers of bytes, a handful of them; these two if no power is between."""
    first, last = math.log2(low), math.log2(high)
    step = next(step for step in (1, 2, 4, 8, 16) if last - first < _MOST_TICKS * step)
    ticks = [2.0**exponent for exponent in range(-int(-first // step) * step, int(last) + 1, step)]
    return ticks if len(ticks) > 1 else [low, high]
