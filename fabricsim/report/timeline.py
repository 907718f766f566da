"""The timeline: what each rank does when (a Gantt chart)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.program import COLLECTIVE, COMPUTE, HOST, MAIN_STREAM
from fabricsim.report import style
from fabricsim.results.breakdown import rank_count, simulated_ranks
from fabricsim.results.places import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.result import RunRecord

MOST_ROWS = 16
"""Ranks shown at most."""
RASTER_ABOVE = 5000
"""Spans above which an SVG holds them as pixels: a viewer would choke on the shapes."""

_MAIN = (-0.42, 0.84)
_MAIN_BESIDE = (-0.42, 0.55)
_OVERLAPPED = (0.15, 0.27)
_MAIN_ABOVE_HOST = (-0.42, 0.4)
_OVERLAPPED_ABOVE_HOST = (0.0, 0.2)
_HOST = (0.22, 0.2)
_HOSTING = "host"


@style.picture
def timeline(result: RunRecord) -> Figure:
    """Draw the ops of each rank as bars, coloured by timer (at most `MOST_ROWS` ranks, evenly spaced).

    Ops of the main stream are the high bars; if a program has overlapped ops, they are narrow bars below, and below
    those what the host does.

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if the program is empty.
    """
    ranks, simulated = rank_count(result), simulated_ranks(result)
    style.require_some(len(simulated), "op", "the program holds no work")
    chosen = [simulated[index] for index in style.evenly(len(simulated), MOST_ROWS)]
    figure = style.new_figure(0.85 + 0.19 * len(chosen))
    axes = figure.add_subplot()
    unit, scale = style.time_unit(result.iteration)
    _draw_timers(axes, result, chosen, scale)
    axes.set_xlim(0, result.iteration / scale)
    style.name_ranks(axes, short_names(result, chosen), ranks)
    axes.set_xlabel(f"Time ({unit})")
    axes.set_title(f"{result.name} over {result.transport}", wrap=True)
    style.legend(figure)
    return figure


def _draw_timers(axes: Axes, result: RunRecord, chosen: list[int], scale: float) -> None:
    """Add one collection per timer: a shape per op would take minutes."""
    row_of = np.full(rank_count(result), -1)
    row_of[chosen] = range(len(chosen))
    row = row_of[result.ops["rank"]]
    main, host = result.ops["stream"] == MAIN_STREAM, result.ops["kind"] == HOST
    # what lies between the ops of a device is no op of it
    shown = (row >= 0) & (result.spans["end"] > result.spans["start"]) & ~(host & main)
    bands = _bands(beside=bool((shown & ~main).any()), hosting=bool((shown & host).any()))
    raster = int(shown.sum()) > RASTER_ABOVE
    names, timers = _timers(result)
    looks = _looks(result, names, timers)
    for timer in np.unique(timers[shown]).tolist():
        of_timer = shown & (timers == timer)
        boxes = [
            _boxes(result.spans[of_timer & stream], row[of_timer & stream], band, scale)
            for stream, band in zip((main, ~main & ~host, host), bands, strict=True)
        ]
        _add(axes, np.concatenate(boxes), looks[timer], names[timer], raster=raster)


def _timers(result: RunRecord) -> tuple[list[str], NDArray[np.int64]]:
    """Name timers, and tell that of each op.

    Collectives within timers of computation have one for their dimension, and what hosts do has one.
    """
    names, timers, kinds = list(result.timers), result.ops["timer"].astype(np.int64), result.ops["kind"]
    within = np.flatnonzero((kinds == COLLECTIVE) & np.isin(timers, timers[kinds == COMPUTE]))
    dimensions = _dimensions(result)[result.ops["call"][within]] if len(within) else np.zeros(0, object)
    for dimension in sorted(set(dimensions)):
        timers[within[dimensions == dimension]] = len(names)
        names.append(f"{dimension} communication")
    hosting = (kinds == HOST) & (result.ops["stream"] != MAIN_STREAM)
    if hosting.any():
        timers[hosting] = names.index(_HOSTING) if _HOSTING in names else len(names)
        names += [_HOSTING] * (_HOSTING not in names)
    return names, timers


def _dimensions(result: RunRecord) -> NDArray[np.object_]:
    """Dimension of each call."""
    return np.array([kind.dimension for kind in result.calls.kinds], object)[result.calls.kind]


def _looks(result: RunRecord, names: list[str], timers: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Colour and hatch of each timer."""
    kinds = result.ops["kind"]
    together = np.flatnonzero(kinds == COLLECTIVE)
    dimension = {}
    if len(together):
        of = _dimensions(result)[result.ops["call"][together]]
        for timer in np.unique(timers[together]).tolist():
            found, count = np.unique(of[timers[together] == timer].astype(str), return_counts=True)
            dimension[timer] = str(found[np.argmax(count)])
    hosting = [number for number, name in enumerate(names) if name == _HOSTING]
    return style.timer_colours(names, dimension, hosting, result.calls.dimensions)


def _bands(*, beside: bool, hosting: bool) -> tuple[tuple[float, float], ...]:
    """Lower edge and height of the bars of the main stream, of overlapped ops, and of the host."""
    if hosting:
        return _MAIN_ABOVE_HOST, _OVERLAPPED_ABOVE_HOST, _HOST
    return _MAIN_BESIDE if beside else _MAIN, _OVERLAPPED, _HOST


def _add(axes: Axes, boxes: NDArray[np.float64], look: tuple[str, str], label: str, *, raster: bool) -> None:
    from matplotlib.collections import PolyCollection  # noqa: PLC0415  loaded with the figure already

    axes.add_collection(
        PolyCollection(
            list(boxes),
            facecolor=style.shade(look) if raster else look[0],
            hatch="" if raster else look[1],
            edgecolor="white",
            linewidth=0.0 if raster else 0.3,
            label=label,
            rasterized=raster,
        )
    )


def _boxes(
    spans: NDArray[np.void], row: NDArray[np.int64], band: tuple[float, float], scale: float
) -> NDArray[np.float64]:
    """Give the corners of one box per span, shape ``(n, 4, 2)``."""
    left, right = spans["start"] / scale, spans["end"] / scale
    low = row + band[0]
    high = low + band[1]
    corners = [np.stack([x, y], axis=-1) for x, y in ((left, low), (left, high), (right, high), (right, low))]
    return np.stack(corners, axis=1)
