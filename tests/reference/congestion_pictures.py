"""Draws the pictures of docs/explanation/congestion-control.md.

``python -m tests.reference.congestion_pictures docs/images``
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabricsim.report.style import SERIES_COLOURS, new_figure, picture, save
from tests.reference import congestion
from tests.reference.congestion import MS, US, Sawtooth, Trace

THEORY = "#666666"
_POINTS = 4000


def steps(axes: Axes, trace: Trace, unit: float, scale: float = 1.0, **style: object) -> None:
    """Draw a trace, thinned to the extremes of each stretch if it has very many points."""
    times, values = trace.times, trace.values
    if len(times) > 2 * _POINTS:
        groups = np.array_split(np.arange(len(times)), _POINTS)
        kept = np.unique(
            [at for group in groups for at in (group[values[group].argmin()], group[values[group].argmax()])]
        )
        times, values = times[kept], values[kept]
    axes.step(times / unit, values * scale, where="post", linewidth=0.8, **style)  # type: ignore[arg-type]


@picture
def dctcp() -> Figure:
    figure = new_figure(4.2)
    for axes, flows in zip(figure.subplots(2, 1, sharex=True), (2, 10), strict=True):
        seen = congestion.dctcp(flows)
        model = Sawtooth.of(seen)
        steps(axes, seen.queue.between(4 * MS, 12 * MS), MS, 1 / congestion.DCTCP_PACKET, color=SERIES_COLOURS[0])
        for height, name in ((model.highest, "K + N"), (model.lowest, "K + N - A")):
            axes.axhline(height, color=THEORY, linestyle="--", linewidth=0.8)
            axes.annotate(name, (12.05, height), va="center", color=THEORY, annotation_clip=False)
        axes.set(ylabel="Queue (packets)", ylim=(0, 70), title=f"{flows} flows", xlim=(4, 12))
    axes.set_xlabel("Time (ms)")
    return figure


@picture
def dcqcn() -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    seen = congestion.dcqcn()
    for number, rate in enumerate(seen.rates):
        steps(axes, rate, MS, 8e-9, color=SERIES_COLOURS[2 * number], label=f"flow {number + 1}")
    axes.axhline(congestion.DCQCN_RATE * 4e-9, color=THEORY, linestyle="--", linewidth=0.8, label="fair share")
    axes.set(xlabel="Time (ms)", ylabel="Rate (Gb/s)", xlim=(0, 60))
    axes.legend()
    return figure


@picture
def hpcc() -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    for number, senders in enumerate((2, 8)):
        queue = congestion.hpcc(senders).queue.between(0, MS // 2)
        begin = np.arange(0, MS // 2, 2 * US)
        at = np.maximum(np.searchsorted(queue.times, begin, side="right") - 1, 0)
        highest = Trace(begin, np.maximum.reduceat(queue.values, at))
        steps(axes, highest, US, 1 / 1048, color=SERIES_COLOURS[2 * number], label=f"{senders} senders")
    axes.set(xlabel="Time (µs)", ylabel="Highest queue of 2 µs\n(packets of 1048 B)", yscale="log", xlim=(0, 500))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()
    return figure


@picture
def cubic() -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    window = congestion.cubic().windows[0]
    steps(axes, window, 1e12, color=SERIES_COLOURS[0], label="window")
    cut = np.flatnonzero(np.diff(window.values) < -0.2 * window.values[:-1])[-1] + 1
    grows = cut + np.flatnonzero(window.values[cut:] > window.values[cut])[0]
    peak, begin = window.values[cut - 1], window.times[grows] * 1e-12
    origin = np.cbrt((peak - window.values[cut]) / congestion.CUBIC_SCALE)
    time = np.linspace(begin, window.times[-1] * 1e-12, 200)
    law = congestion.CUBIC_SCALE * (time - begin - origin) ** 3 + peak
    axes.plot(time, law, color=SERIES_COLOURS[4], linestyle="--", label="C (t - K)³ + W_max")
    axes.set(xlabel="Time (s)", ylabel="Window (packets)", ylim=(0, 1500))
    axes.legend(loc="lower right")
    return figure


@picture
def incast() -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    for number, (name, switch) in enumerate((("PFC", congestion.PAUSING), ("tail drop", congestion.TAIL_DROP))):
        took = np.sort(congestion.incast(switch).completion) / MS
        axes.step(took, np.arange(1, len(took) + 1), where="post", color=SERIES_COLOURS[2 * number], label=name)
    axes.set(xlabel="Time (ms)", ylabel="Flows complete", xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend()
    return figure


def main(arguments: Iterable[str]) -> None:
    folder = Path(*arguments)
    folder.mkdir(exist_ok=True)
    for draw in (dctcp, dcqcn, hpcc, cubic, incast):
        save(draw(), folder / f"{draw.__name__}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
