"""Queues, windows and rates over time, as a packet run recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.results.packets import Packets, Tap

MOST_QUEUES = 8
"""Queues drawn at most, those that were deepest."""
MOST_FLOWS = 9
"""Flows drawn at most, evenly chosen."""
MOST_POINTS = 4000
"""Points of a line at most; of more those are drawn that make the same picture."""


def queues(packets: Packets, title: str) -> Figure:
    """Draw the depth of the tapped queues over time, one panel each (at most `MOST_QUEUES`).

    `packets`: what the run recorded.
    `title`: what was run.
    Raises ResultError if no queue was tapped, or none of them was ever used.
    """
    used = [tap for tap in packets.taps if tap.kind == "queue" and len(tap.time)]
    deepest = sorted(used, key=lambda tap: -tap.value.max())[:MOST_QUEUES]
    style.require_some(len(deepest), "queue", "tap some that are used: --tap 'queue:leaf0->*'")
    figure = style.new_figure(9.5, 1.9 + 0.95 * len(deepest))
    panels = figure.subplots(len(deepest), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(_last(deepest))
    size, bytes_per = _size_unit(max(float(tap.value.max()) for tap in deepest))
    for axes, tap in zip(panels, deepest, strict=True):
        time, depth = _outline(tap.time / scale, tap.value / bytes_per)
        axes.fill_between(time, depth, color=style.COMPUTE_COLOUR, alpha=0.35, linewidth=0)
        axes.plot(time, depth, color=style.COMPUTE_COLOUR, linewidth=0.7)
        axes.set_title(tap.of, loc="left", fontsize="small")
        own, bytes_per_own = _size_unit(float(tap.value.max()))
        axes.set_title(f"deepest {tap.value.max() / bytes_per_own:.3g} {own}", loc="right", fontsize="small")
    panels[0].set_ylim(bottom=0)
    panels[0].set_xlim(left=0)
    panels[-1].set_xlabel(f"Time ({unit})")
    figure.supylabel(f"Queue ({size})", fontsize="medium")
    some = f", the {len(deepest)} deepest of {len(used)}" if len(deepest) < len(used) else ""
    figure.suptitle(f"Queues over time: {title}{some}", wrap=True)
    return figure


def windows(packets: Packets, title: str) -> Figure:
    """Draw congestion windows and rates of the tapped flows over time (at most `MOST_FLOWS` lines in a panel).

    `packets`: what the run recorded.
    `title`: what was run.
    Raises ResultError if no flow was tapped, or none of them sent anything.
    """
    by_kind = {kind: [tap for tap in packets.taps if tap.kind == kind and len(tap.time)] for kind in ("window", "pace")}
    shown = {kind: taps for kind, taps in by_kind.items() if taps}
    style.require_some(len(shown), "flow", "tap some that send: --tap 'flow:0->*'")
    figure = style.new_figure(9.5, 0.8 + 3.2 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    unit, scale = style.time_unit(max(_last(taps) for taps in shown.values()))
    for axes, (kind, taps) in zip(panels, shown.items(), strict=True):
        divisor = 1.0 if kind == "window" else 1e9 / 8
        chosen = [taps[index] for index in style.evenly(len(taps), MOST_FLOWS)]
        for tap, colour in zip(chosen, style.SERIES_COLOURS, strict=False):
            value = np.where(np.isfinite(tap.value), tap.value, np.nan) / divisor
            axes.step(tap.time / scale, value, where="post", color=colour, linewidth=1.0, label=tap.of)
        axes.set_ylabel("Window (packets)" if kind == "window" else "Rate that the flow may send at (Gb/s)")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        some = f"{len(chosen)} of {len(taps)} flows" if len(chosen) < len(taps) else "Flow"
        style.legend_beside(axes, title=some)
    panels[0].set_xlim(left=0)
    panels[-1].set_xlabel(f"Time ({unit})")
    what = " and ".join({"window": "windows", "pace": "rates"}[kind] for kind in shown)
    figure.suptitle(f"Congestion {what} over time: {title}", wrap=True)
    return figure


def _last(taps: Sequence[Tap]) -> int:
    return max(int(tap.time[-1]) for tap in taps)


def _size_unit(largest: float) -> tuple[str, float]:
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if largest >= 2 * scale:
            return unit, scale
    return "B", 1.0


def _outline(time: NDArray[np.float64], value: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Keep first, least, greatest and last point of each stretch of time if there are too many to draw."""
    if len(time) <= MOST_POINTS:
        return time, value
    stretch = np.floor((time - time[0]) / max(time[-1] - time[0], 1e-9) * (MOST_POINTS // 4 - 1)).astype(np.int64)
    by_value = np.lexsort((value, stretch))
    begins = np.flatnonzero(np.diff(stretch, prepend=-1))
    ends = np.append(begins[1:], len(time)) - 1
    kept = np.unique(np.concatenate([begins, ends, by_value[begins], by_value[ends]]))
    return time[kept], value[kept]
