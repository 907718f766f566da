"""Flow completion times: their distribution, and the slowdown over the flow size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.report import style
from fabricsim.report.axis_names import heading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.traffic import TrafficRecord

MOST_POINTS = 5000
"""Flows drawn one by one at most; the lines are made of all."""
SIZE_BINS = 12
"""Groups of sizes, each with about as many flows, that the lines over size go through."""

_MANY = 10.0  # a range of more than this factor gets a logarithmic axis
_DECADES = 1e4  # and one of more than this factor gets a unit at each decade
_LITTLE = 1.1  # and one of less than this factor is widened to it: what differs by less is alike
_FEW = 500  # flows up to which each is a shape of its own
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


@style.picture
def completion_times(result: TrafficRecord) -> Figure:
    """Draw the distribution of the completion times, and the slowdown over the flow size.

    If all flows have one size, the second panel is the distribution of the slowdown.

    `result`: the run.
    Returns: for `fabricsim.report.plots.save`.
    """
    figure, (times, slowdowns) = style.two_panels(2.9, 6.0)
    _times(times, result)
    sizes = result.matrix.flows["bytes"]
    if sizes.min() == sizes.max():
        _slowdown_distribution(slowdowns, result.slowdown)
    else:
        _slowdown_over_size(slowdowns, sizes, result.slowdown)
    style.legend(figure)
    count = f"{len(sizes):,} flow{'s' if len(sizes) > 1 else ''}"
    figure.suptitle(f"{result.matrix.name} on {result.name} over {result.transport}: {count}", wrap=True)
    return figure


@style.picture
def compared_traffic(results: Sequence[TrafficRecord], labels: tuple[str, Sequence[str]]) -> Figure:
    """Draw the distributions of completion times of several runs into one picture.

    `results`, `labels`: at least one run; what they differ in, and what each is called.
    Returns: for `fabricsim.report.plots.save`.
    """
    figure = style.new_figure(widest=5.0)
    axes = figure.add_subplot()
    lowest, highest = (pick([int(pick(result.completion)) for result in results]) for pick in (min, max))
    scale = _time_axis(axes, lowest, highest)
    looks = zip(style.SERIES_COLOURS * len(results), _DASHES * len(results), strict=False)
    for label, result, (colour, dash) in zip(labels[1], results, looks, strict=False):
        share_steps(axes, result.completion / scale, label=label, color=colour, linestyle=dash)
    share_axis(axes)
    style.legend(figure, title=heading(labels[0]))
    axes.set_title(results[0].matrix.name, wrap=True)
    return figure


def _times(axes: Axes, result: TrafficRecord) -> None:
    scale = _time_axis(axes, int(result.alone.min()), int(result.completion.max()))
    share_steps(axes, result.completion / scale, color=style.COMPUTE_COLOUR, label="in this traffic")
    share_steps(
        axes, result.alone / scale, color=style.MEASURED_COLOUR, linestyle="--", label="alone on the idle fabric"
    )
    share_axis(axes)


def _slowdown_distribution(axes: Axes, slowdown: NDArray[np.float64]) -> None:
    share_steps(axes, slowdown, color=style.COMPUTE_COLOUR)
    _scale(axes, float(slowdown.min()), float(slowdown.max()))
    axes.set_xlabel("Slowdown against the idle fabric")
    share_axis(axes)


def share_steps(axes: Axes, values: NDArray[np.float64], **line: Any) -> None:  # noqa: ANN401  matplotlib's own
    """Draw the share of values, shape ``(n,)``, of up to each."""
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    axes.step(np.concatenate([ordered[:1], ordered]), np.concatenate([[0.0], shares]), where="post", **line)


def _scale(axes: Axes, lowest: float, highest: float) -> None:
    if highest > _MANY * lowest:
        axes.set_xscale("log")
        style.logarithmic(axes.xaxis, lowest, highest)
    elif highest < _LITTLE * lowest:
        axes.set_xlim(lowest / _LITTLE, highest * _LITTLE)


def _time_axis(axes: Axes, lowest: int, highest: int) -> float:
    """Label an axis from one time to another, ps, with one unit, or with that of each decade if these are many.

    Returns: picoseconds of its unit.
    """
    unit, scale = style.time_unit(highest)
    _scale(axes, lowest / scale, highest / scale)
    axes.set_xlabel(f"Flow completion time ({unit})")
    if highest > _DECADES * lowest:
        axes.xaxis.set_major_formatter(lambda value, _: _decade(value * scale))
        axes.set_xlabel("Flow completion time")
    return scale


def _decade(time: float) -> str:
    unit, scale = style.time_unit(round(2 * time, 3))
    return f"{time / scale:g} {unit}"


def share_axis(axes: Axes) -> None:
    """Let an axis go from no flow to all of them."""
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("Share of flows")
    axes.grid(visible=True, which="major", alpha=0.3)


def _slowdown_over_size(axes: Axes, sizes: NDArray[np.int64], slowdown: NDArray[np.float64]) -> None:
    shown = style.evenly(len(sizes), MOST_POINTS)
    axes.plot(
        sizes[shown],
        slowdown[shown],
        ".",
        markersize=2.5,
        alpha=0.6,
        color=style.SERIES_COLOURS[3],
        label="flow",
        rasterized=len(shown) > _FEW,
    )
    groups = _groups(sizes)
    centre = [float(np.exp(np.log(sizes[group]).mean())) for group in groups]
    for share, colour in ((50, style.COMPUTE_COLOUR), (99, style.COMMUNICATION_COLOURS[0])):
        line = [float(np.percentile(slowdown[group], share)) for group in groups]
        axes.plot(centre, line, "o-", markersize=3, color=colour, label=f"p{share} by size")
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.logarithmic(axes.yaxis, float(slowdown[shown].min()), float(slowdown[shown].max()))
    decades = [10.0**power for power in range(int(np.log10(sizes.min())), int(np.log10(sizes.max())) + 2)]
    axes.set_xticks(decades, [_decimal(size) for size in decades])
    axes.minorticks_off()
    axes.set_xlabel("Flow size")
    axes.set_ylabel("Slowdown against the idle fabric")
    axes.grid(visible=True, which="major", alpha=0.3)


def _groups(sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut the flows into groups of rising sizes, about equally many in each."""
    order = np.argsort(sizes, kind="stable")
    return [group for group in np.array_split(order, SIZE_BINS) if len(group)]


def _decimal(size: float) -> str:
    """Write a power of ten of bytes."""
    unit, scale = next((pair for pair in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if size >= pair[1]), ("B", 1.0))
    return f"{size / scale:g} {unit}"
