"""Volumes over a sweep: message sizes, counts, and whose bytes they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.report import style
from fabricsim.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Points = Sequence[Mapping[str, Any]]

_SWEEPS = {"sequence": "Sequence length (tokens)", "model": "Model"}
_BESIDE = 20  # letters that fit beside one another
_BASE = 4
"""Step of the ticks of sizes, as a power of two: 16 times."""


@style.picture
def volume_sweeps(points: Points, schemes: Sequence[str], mixed: str) -> Figure:
    """Draw message sizes, calls and shares of bytes over sequence length (above) and model size (below).

    `points`: jobs with ``sweep`` (``"sequence"`` or ``"model"``), ``sequence``, ``model``, ``scheme`` and the keys of
        `fabricsim.workload.volume_summary.VolumeSummary`.
    `schemes`: those whose messages are drawn: lines at the median, bands from the smallest to the largest.
    `mixed`: the scheme whose bytes are shared out over the dimensions.
    Raises ResultError if there are no points.
    """
    style.require_some(len(points), "job", "the study counted nothing")
    below = style.narrow()
    figure = style.new_figure(7.5 if below else 4.4)
    panels = figure.subplots(3, len(_SWEEPS)).T if below else figure.subplots(len(_SWEEPS), 3)
    for line, (sweep, label) in zip(panels, _SWEEPS.items(), strict=True):
        swept = [point for point in points if point["sweep"] == sweep]
        ticks = list(dict.fromkeys(str(point[sweep]) for point in swept))
        for axes in line:
            turned = sum(map(len, ticks)) > (_BESIDE // 2 if below else _BESIDE)
            axes.set_xticks(range(len(ticks)), ticks, rotation=60 if turned else 0, fontsize=6)
            axes.set_xlabel(label)
        _sizes(line[0], swept, schemes)
        _counts(line[1], swept, schemes)
        _shares(line[2], [point for point in swept if point["scheme"] == mixed], schemes)
        for axes, shown in zip(line, ("Message size", "Calls", f"Share of bytes,\n{mixed} (%)"), strict=True):
            axes.set_ylabel("" if below and sweep != "sequence" else shown)
    style.legend(figure)
    figure.suptitle("Messages of one iteration", wrap=True)
    return figure


def _sizes(axes: Axes, points: Points, schemes: Sequence[str]) -> None:
    axes.set_yscale("log", base=2)
    for number, scheme in enumerate(schemes):
        rows = [point["volumes"] for point in points if point["scheme"] == scheme]
        places, colour = range(len(rows)), style.SERIES_COLOURS[number]
        median = [_median(row) for row in rows]
        low = [min(volume["smallest_bytes"] for volume in row) for row in rows]
        high = [max(volume["largest_bytes"] for volume in row) for row in rows]
        axes.plot(places, median, **_line(number))
        axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    lowest, highest = np.log2(axes.get_ylim())
    exponents = range(_BASE * int(np.ceil(lowest / _BASE)), int(highest) + 1, _BASE)
    axes.set_yticks([2.0**exponent for exponent in exponents], [human_bytes(2.0**exponent) for exponent in exponents])
    axes.minorticks_off()


def _median(rows: Sequence[Mapping[str, Any]]) -> float:
    sizes = sorted((size["bytes"], size["calls"]) for row in rows for size in row["sizes"])
    upto = np.cumsum([calls for _, calls in sizes])
    return float(sizes[int(np.searchsorted(upto, (upto[-1] + 1) // 2))][0])


def _counts(axes: Axes, points: Points, schemes: Sequence[str]) -> None:
    axes.set_yscale("log")
    counts = [point["total"]["calls"] for point in points]
    style.logarithmic(axes.yaxis, min(counts), max(counts))
    for number, scheme in enumerate(schemes):
        calls = [point["total"]["calls"] for point in points if point["scheme"] == scheme]
        axes.plot(range(len(calls)), calls, label=scheme, **_line(number))


def _line(number: int) -> dict[str, Any]:
    """Make earlier lines broader, so that they show below later ones in the same place."""
    width = max(3.6 - 0.6 * number, 0.8)
    colour = style.SERIES_COLOURS[number]
    return {"color": colour, "linewidth": width, "marker": style.MARKERS[number], "markersize": width + 2}


def _shares(axes: Axes, points: Points, schemes: Sequence[str]) -> None:
    """Stack the shares of dimensions, in the colours that these have as schemes of their own."""
    dimensions = list(dict.fromkeys(row["dimension"] for point in points for row in point["volumes"]))
    colours = style.dimension_colours(dimensions) | dict(zip(schemes, style.SERIES_COLOURS, strict=False))
    below = np.zeros(len(points))
    for dimension in dimensions:
        sent = np.array(
            [sum(row["wire_bytes"] for row in point["volumes"] if row["dimension"] == dimension) for point in points]
        )
        share = 100 * sent / np.array([point["total"]["wire_bytes"] for point in points])
        label = None if dimension in schemes else dimension
        axes.bar(range(len(points)), share, 0.8, below, color=colours[dimension], label=label)
        below += share
    axes.set_ylim(0, 100)
