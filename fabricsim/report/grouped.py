"""Many runs at a glance: grouped bars of compute and communication."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.report import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Bar:
    """One run: its group (such as the model), its place in it (the transport), and seconds."""

    group: str
    name: str
    compute: float
    communication: float


@style.picture
def grouped(bars: Sequence[Bar], title: str) -> Figure:
    """Draw runs as stacked bars, side by side within their group.

    `bars`: the runs; groups and names in the order in which they first occur.
    `title`: what they are.
    Returns: for `fabricsim.report.plots.save`.
    Raises ResultError if there is no run.
    """
    style.require_some(len(bars), "run", "the study ran nothing")
    groups = list(dict.fromkeys(bar.group for bar in bars))
    names = list(dict.fromkeys(bar.name for bar in bars))
    colours = dict(zip(names, cycle(style.COMMUNICATION_COLOURS), strict=False))
    width = 0.8 / len(names)
    figure = style.new_figure(3.4)
    axes = figure.add_subplot()
    for index, name in enumerate(names):
        own = [bar for bar in bars if bar.name == name]
        places = np.array([groups.index(bar.group) for bar in own]) + (index - (len(names) - 1) / 2) * width
        compute = np.array([bar.compute for bar in own])
        communication = np.array([bar.communication for bar in own])
        label = "compute" if index == 0 else None
        axes.bar(places, compute, width * 0.92, color=style.COMPUTE_COLOUR, label=label)
        label = f"communication and waiting, {name}"
        axes.bar(places, communication, width * 0.92, compute, color=colours[name], label=label)
    axes.set_xticks(range(len(groups)), groups, rotation=20, ha="right")
    axes.set_ylabel("Iteration time (s)")
    axes.set_xlabel("Model")
    style.legend(figure)
    figure.suptitle(title, wrap=True)
    return figure
