"""Completion times of the same flows in two or more simulators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style
from fabricsim.report.fct import share_axis, share_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = ("o", "s", "^", "D", "v")


@style.picture
def flows_against(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw our completion time of each flow over that of another simulator, and the distributions.

    `ours`: completion times in us by simulator, counted as that one counts them, each shape ``(n,)``.
    `theirs`: what each simulator gave for the same flows, us.
    `title`: what was run.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no simulator to compare with.
    """
    style.require_some(len(theirs), "simulator", "the study compared with none")
    figure, (flows, distribution) = style.two_panels(3.2, 6.4)
    _scatter(flows, ours, theirs)
    _distributions(distribution, ours, theirs)
    figure.suptitle(title, wrap=True)
    return figure


def _scatter(axes: Axes, ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> None:
    everything = np.concatenate([*(np.array(times) for times in (*ours.values(), *theirs.values()))])
    ends = (0.97 * float(everything.min()), 1.03 * float(everything.max()))
    axes.plot(ends, ends, color="black", linewidth=0.8, label="equal")
    for index, peer in enumerate(theirs):
        mark, colour = _MARKS[index % len(_MARKS)], _colour(index)
        axes.plot(theirs[peer], ours[peer], mark, markersize=4, alpha=0.6, color=colour, label=peer)
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_xlabel("Their completion time (µs)")
    axes.set_ylabel("Our completion time (µs)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left")


def _distributions(axes: Axes, ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> None:
    first = next(iter(ours.values()))
    share_steps(axes, np.array(first, float), label="fabricsim", color=style.PREDICTED_COLOUR, linewidth=2)
    for index, peer in enumerate(theirs):
        share_steps(axes, np.array(theirs[peer], float), label=peer, color=_colour(index), linewidth=1.2)
    share_axis(axes)
    axes.set_xlabel("Completion time (µs)")
    axes.legend(loc="lower right")


def _colour(index: int) -> str:
    return style.COMMUNICATION_COLOURS[index % 3]
