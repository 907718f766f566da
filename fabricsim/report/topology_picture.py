"""A network as a picture: tiers below one another, groups round a circle, grids in their dimensions."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.report import style
from fabricsim.topology.inventory import kind_of
from fabricsim.topology.tiers import tiers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fabricsim.topology.wires import Wires

    Places = dict[int, tuple[float, float]]

_MOST_NAMES = 48  # switches up to which each has its name in the picture
_FEW_NAMES = 16
_SIZE = 60.0


@style.picture
def topology_picture(wires: Wires, nics: int, title: str, dimensions: tuple[int, ...] = ()) -> Figure:
    """Draw switches and cables; the NICs of a switch are a number below it.

    `wires`, `nics`: the network, and how many of its first nodes are NICs; `title`: what was built; `dimensions`: of
    the grid, if its switches form one.
    """
    places = _places(wires, nics, dimensions)
    figure = style.new_figure(4.4)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(title, wrap=True)
    _draw_cables(axes, wires, places)
    _draw_switches(axes, wires, nics, places)
    axes.margins(0.12)
    return figure


def _places(wires: Wires, nics: int, dimensions: tuple[int, ...]) -> Places:
    switches = range(nics, len(wires.nodes))
    if dimensions:
        return _grid(wires, nics, dimensions)
    if (wires.group >= 0).any():
        return _circles(wires, nics)
    levels = tiers(wires, nics)
    if len(levels) > 1:
        return _rows([tier.switches.tolist() for tier in levels])
    return _circle(list(switches), 1.0, (0.0, 0.0))


def _rows(levels: list[list[int]]) -> Places:
    """Put tiers above one another, each over the whole width."""
    wide = max(map(len, levels))
    places: Places = {}
    for level, nodes in enumerate(levels):
        for i, node in enumerate(nodes):
            places[node] = ((i + 0.5) * wide / len(nodes), level * max(1.0, wide / 3))
    return places


def _circle(nodes: list[int], radius: float, centre: tuple[float, float]) -> Places:
    turn = 2 * math.pi / max(1, len(nodes))
    x, y = centre
    return {
        node: (x + radius * math.sin(i * turn), y + radius * math.cos(i * turn)) if len(nodes) > 1 else centre
        for i, node in enumerate(nodes)
    }


def _circles(wires: Wires, nics: int) -> Places:
    """Put groups round a circle, and the switches of each round its own."""
    groups = sorted(set(wires.group[nics:].tolist()))
    centres = _circle(groups, 1.0, (0.0, 0.0))
    radius = 0.8 * math.sin(math.pi / max(3, len(groups)))
    places: Places = {}
    for group in groups:
        places |= _circle(np.flatnonzero(wires.group == group).tolist(), radius, centres[group])
    return places


def _grid(wires: Wires, nics: int, dimensions: tuple[int, ...]) -> Places:
    """Put routers at their coordinates: planes of a third dimension behind one another, further ones side by side."""
    width, height, depth = (*dimensions, 1, 1)[:3]
    places: Places = {}
    for place, node in enumerate(range(nics, len(wires.nodes))):
        x, rest = place % width, place // width
        y, rest = rest % height, rest // height
        z, side = rest % depth, rest // depth
        places[node] = (x + 0.28 * z + side * (width + depth), y + 0.36 * z)
    return places


def _draw_cables(axes: Axes, wires: Wires, places: Places) -> None:
    """Draw a line for each pair of switches, the wider the more rate there is; those round a grid's end are bowed."""
    rate: Counter[tuple[int, int]] = Counter()
    for source, target, each in zip(wires.source.tolist(), wires.target.tolist(), wires.rate.tolist(), strict=True):
        if source < target and source in places and target in places:
            rate[source, target] += each
    most = max(rate.values(), default=1.0)
    strength = min(1.0, max(0.15, 40 / (len(rate) + 1)))
    for (source, target), each in rate.items():
        look: dict[str, Any] = {"color": style.COMPUTE_COLOUR, "alpha": strength, "lw": 0.6 + 1.4 * each / most}
        (x, y), (u, v) = places[source], places[target]
        if _passes_another(places, source, target):
            arrow = {"arrowstyle": "-", "connectionstyle": "arc3,rad=0.25", **look}
            axes.annotate("", (u, v), (x, y), arrowprops=arrow, zorder=1)
        else:
            axes.plot([x, u], [y, v], zorder=1, **look)


def _passes_another(places: Places, source: int, target: int) -> bool:
    """Whether a straight line would pass the middle of other switches of a grid."""
    if len(places) > 1000:  # noqa: PLR2004  nobody could follow the bows
        return False
    (x, y), (u, v) = places[source], places[target]
    length = math.hypot(u - x, v - y)
    for node, (a, b) in places.items():
        if node not in (source, target) and length:
            along = ((a - x) * (u - x) + (b - y) * (v - y)) / length**2
            off = abs((a - x) * (v - y) - (b - y) * (u - x)) / length
            if 0.01 < along < 0.99 and off < 1e-6:  # noqa: PLR2004  between the ends, on the line
                return True
    return False


def _draw_switches(axes: Axes, wires: Wires, nics: int, places: Places) -> None:
    below = Counter(wires.target[wires.source < nics].tolist())
    kinds = list(dict.fromkeys(kind_of(wires.nodes[node]) for node in places))
    size = _SIZE / max(1.0, len(places) / 60)
    for kind, colour in zip(kinds, style.SERIES_COLOURS * len(kinds), strict=False):
        nodes = [node for node in places if kind_of(wires.nodes[node]) == kind]
        spots = np.array([places[node] for node in nodes])
        axes.scatter(spots[:, 0], spots[:, 1], s=size, c=colour, zorder=2, label=f"{len(nodes)} x {kind}")
    named, letters = len(places) <= _MOST_NAMES, 5 if len(places) > _FEW_NAMES else 6
    for node, (x, y) in places.items():
        text = wires.nodes[node] if named else ""
        if below[node] and len(places) <= 4 * _MOST_NAMES:
            text += f"\n{below[node]} NIC{'s' * (below[node] > 1)}" if named else f"{below[node]}"
        axes.annotate(
            text,
            (x, y),
            (0, -7),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=letters,
            zorder=3,
        )
    style.legend(axes.get_figure())  # type: ignore[arg-type]  # of a figure, no part of one
