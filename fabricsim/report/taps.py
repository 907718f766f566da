"""Queues, windows and rates over time, as a packet run recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.report import style
from fabricsim.results.resources import tier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.packets import Packets, Tap

MOST_QUEUES = 6
"""Queues drawn at most: the deepest of each tier first."""
MOST_FLOWS = 9
"""Flows drawn at most, evenly chosen."""
MOST_POINTS = 2000
"""Points up to which each is drawn; of more there are a band from the least to the most, and a mean."""
STRETCHES = 300
"""Stretches of time that a band has."""


@style.picture
def queues(packets: Packets, title: str) -> Figure:
    """Draw the depth of the tapped queues over time, one panel each (at most `MOST_QUEUES`).

    `packets`: what the run recorded.
    `title`: what was run.
    Raises ResultError if no queue was tapped, or none of them was ever used.
    """
    used = [tap for tap in packets.taps if tap.kind == "queue" and len(tap.time)]
    shown = _different(used)[:MOST_QUEUES]
    style.require_some(len(shown), "queue", "tap some that are used, such as queue:leaf0->*")
    figure = style.new_figure(0.7 + 0.68 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(_last(shown))
    for axes, tap in zip(panels, shown, strict=True):
        size, bytes_per = _size_unit(float(tap.value.max()))
        _depth(axes, tap, scale, bytes_per)
        style.panel_title(axes, tap.of, f"deepest {tap.value.max() / bytes_per:.3g} {size}")
        axes.set_ylabel(size)
        axes.set_ylim(bottom=0)
    panels[0].set_xlim(left=0)
    panels[-1].set_xlabel(f"Time ({unit})")
    figure.align_ylabels(panels)
    figure.supylabel("Queue", fontsize="medium")
    some = f"; {len(shown)} of {len(used)} queues, the deepest of each tier first" if len(shown) < len(used) else ""
    figure.suptitle(f"{title}{some}", wrap=True)
    style.legend(figure)
    return figure


def _different(used: Sequence[Tap]) -> list[Tap]:
    """Order queues: the deepest of each tier, then the second of each, and so on."""
    place: dict[str, int] = {}
    ranked = []
    for tap in sorted(used, key=lambda tap: -tap.value.max()):
        name = tier(tap.of)
        place[name] = place.get(name, -1) + 1
        ranked.append((place[name], tap))
    return [tap for _, tap in sorted(ranked, key=lambda each: each[0])]


def _depth(axes: Axes, tap: Tap, scale: float, bytes_per: float) -> None:
    time, depth, colour = tap.time / scale, tap.value / bytes_per, style.COMPUTE_COLOUR
    if len(time) <= MOST_POINTS:
        axes.fill_between(time, depth, color=colour, alpha=0.35, linewidth=0)
        axes.plot(time, depth, color=colour, linewidth=0.7)
        return
    edges, least, mean, most = _bands(time, depth, falls=True)
    axes.stairs(most, edges, baseline=least, fill=True, color=colour, alpha=0.35, linewidth=0, label="least to most")
    axes.stairs(mean, edges, baseline=None, color=colour, linewidth=0.9, label="mean over time")


@style.picture
def windows(packets: Packets, title: str) -> Figure:
    """Draw congestion windows and rates of the tapped flows over time (at most `MOST_FLOWS` lines in a panel).

    Windows that never move, beside rates that do, are those of a law without windows, and left out.

    `packets`: what the run recorded.
    `title`: what was run.
    Raises ResultError if no flow was tapped, or none of them sent anything.
    """
    by_kind = {kind: [tap for tap in packets.taps if tap.kind == kind and len(tap.time)] for kind in ("window", "pace")}
    shown = {kind: taps for kind, taps in by_kind.items() if taps}
    style.require_some(len(shown), "flow", "tap some that send, such as flow:0->*")
    moving = {kind: taps for kind, taps in shown.items() if any(np.ptp(_finite(tap)) > 0 for tap in taps)}
    shown = moving or shown
    figure = style.new_figure(0.6 + 2.0 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(max(_last(taps) for taps in shown.values()))
    for axes, (kind, taps) in zip(panels, shown.items(), strict=True):
        divisor = 1.0 if kind == "window" else 1e9 / 8
        chosen = [taps[index] for index in style.evenly(len(taps), MOST_FLOWS)]
        for place, (tap, colour) in enumerate(zip(chosen, style.SERIES_COLOURS, strict=False)):
            _flow(axes, tap, scale, divisor, color=colour, linewidth=1.0 + 0.5 * (len(chosen) - 1 - place))
        axes.set_ylabel("Window (packets)" if kind == "window" else "Sending rate (Gb/s)")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
    panels[0].set_xlim(left=0)
    panels[-1].set_xlabel(f"Time ({unit})")
    count = max(len(taps) for taps in shown.values())
    figure.suptitle(title, wrap=True)
    style.legend(figure, title=f"{MOST_FLOWS} of {count:,} flows" if count > MOST_FLOWS else "Flow")
    return figure


def _finite(tap: Tap) -> NDArray[np.float64]:
    return np.append(tap.value[np.isfinite(tap.value)], tap.value[np.isfinite(tap.value)][:1])


def _flow(axes: Axes, tap: Tap, scale: float, divisor: float, **look: Any) -> None:  # noqa: ANN401  matplotlib's own
    """Draw a line; equal lines all show, since earlier ones are broader."""
    time, value = tap.time / scale, np.where(np.isfinite(tap.value), tap.value, np.nan) / divisor
    if len(time) <= MOST_POINTS:
        axes.step(time, value, where="post", label=tap.of, **look)
        return
    edges, least, mean, most = _bands(time, np.nan_to_num(value))
    axes.stairs(most, edges, baseline=least, fill=True, color=look["color"], alpha=0.25, linewidth=0)
    axes.stairs(mean, edges, baseline=None, label=tap.of, **look)


def _last(taps: Sequence[Tap]) -> int:
    return max(int(tap.time[-1]) for tap in taps)


def _size_unit(largest: float) -> tuple[str, float]:
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if largest >= 2 * scale:
            return unit, scale
    return "B", 1.0


def _bands(
    time: NDArray[np.float64], value: NDArray[np.float64], *, falls: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Cut what has many points into stretches of time: their edges; least, mean over time, and greatest value of each.

    A value holds until the next point, or `falls` to it evenly, as a queue does; so a stretch begins with what the one
    before ends with.
    """
    edges = np.linspace(time[0], max(time[-1], time[0] + 1e-9), STRETCHES + 1)
    before = np.maximum(np.searchsorted(time, edges, side="right") - 1, 0)
    held = np.interp(edges, time, value) if falls else value[before]
    order = np.argsort(np.concatenate([edges[:-1], time]), kind="stable")
    level = np.concatenate([held[:-1], value])[order]
    begins = np.flatnonzero(order < STRETCHES)
    least, most = np.minimum.reduceat(level, begins), np.maximum.reduceat(level, begins)
    following = value[:-1]
    if falls:
        following = (value[:-1] + value[1:]) / 2
        least, most = np.minimum(least, held[1:]), np.maximum(most, held[1:])
    total = np.concatenate([[0.0], np.cumsum(following * np.diff(time))])
    upto = total[before] + (value[before] + held) / 2 * (edges - time[before])
    return edges, least, np.clip(np.diff(upto) / np.diff(edges), least, most), most
