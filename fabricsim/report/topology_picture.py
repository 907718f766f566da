"""A network as a picture: tiers below one another, groups round a circle, grids in their dimensions."""

from __future__ import annotations

import math
from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.report import style
from fabricsim.topology.inventory import kind_of
from fabricsim.topology.tiers import tiers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fabricsim.topology.wires import Wires

    Places = dict[int, tuple[float, float]]

_MOST_NAMES = 48  # switches up to which each may have its name in the picture
_MOST_NUMBERS = 192
_SIZE = 60.0
_LINE = 0.1  # inches of a line of a name
_TALLEST = 4.4


@style.picture
def topology_picture(wires: Wires, nics: int, title: str, dimensions: tuple[int, ...] = ()) -> Figure:
    """Draw switches and cables; how many NICs a switch has is in the legend, or beside it if switches differ.

    `wires`, `nics`: the network, and how many of its first nodes are NICs; `title`: what was built; `dimensions`: of
    the grid, if its switches form one.
    """
    places = _places(wires, nics, dimensions)
    lines = len({round(y, 6) for _, y in places.values()})
    figure = style.new_figure(min(_TALLEST, 1.3 + 0.7 * lines))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(title, wrap=True)
    _draw_cables(axes, wires, places)
    _draw_switches(axes, wires, nics, places)
    axes.margins(0.08, 0.4 / figure.get_figheight())
    return figure


def _places(wires: Wires, nics: int, dimensions: tuple[int, ...]) -> Places:
    switches = range(nics, len(wires.nodes))
    if dimensions:
        return _grid(wires, nics, dimensions)
    if (wires.group >= 0).any():
        return _circles(wires, nics)
    levels = tiers(wires, nics)
    if len(levels) > 1:
        part = _parts(wires, nics)  # those of one side by side
        return _rows([sorted(tier.switches.tolist(), key=lambda switch: (part[switch], switch)) for tier in levels])
    return _circle(list(switches), 1.0, (0.0, 0.0))


def _parts(wires: Wires, nics: int) -> dict[int, int]:
    """Give each switch the first one of its part, which no cable joins to others, such as a rail."""
    import networkx as nx  # noqa: PLC0415  loads slowly, and only pictures of networks need it here

    number = {name: node for node, name in enumerate(wires.nodes)}
    parts = nx.connected_components(wires.graph().subgraph(wires.nodes[nics:]))
    numbered = ([number[name] for name in part] for part in parts)
    return {node: first for part in numbered for first in [min(part)] for node in part}


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
        places[node] = (x + 0.75 * z / depth + side * (width + 1), y + 0.85 * z / depth)
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
            along = np.linspace(0, 1, 21)
            bow = 0.5 * along * (1 - along)  # a parabola, an eighth of its length high
            axes.plot(x + along * (u - x) + bow * (v - y), y + along * (v - y) - bow * (u - x), zorder=1, **look)
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
    apart = 72 * _inches(axes)[0] / len({round(x, 6) for x, _ in places.values()})  # points
    size = min(_SIZE, (0.8 * apart) ** 2)
    beside: dict[int, str] = {}
    kinds = list(dict.fromkeys(kind_of(wires.nodes[node]) for node in places))
    for kind, colour, marker in zip(kinds, cycle(style.SERIES_COLOURS), cycle(style.MARKERS), strict=False):
        nodes = [node for node in places if kind_of(wires.nodes[node]) == kind]
        counts = {below[node] for node in nodes}
        least = f"{min(counts):,} to " if len(counts) > 1 else ""
        each = f", {least}{_nics(max(counts))} each" if counts != {0} else ""
        beside |= {node: _nics(below[node]) for node in nodes if len(counts) > 1}
        spots = np.array([places[node] for node in nodes])
        label = f"{len(nodes)} x {kind}{each}"
        axes.scatter(spots[:, 0], spots[:, 1], s=size, c=colour, marker=marker, zorder=2, label=label)
    style.legend(axes.get_figure())  # type: ignore[arg-type]  # of a figure, no part of one
    texts = {node: "\n".join(filter(None, (wires.nodes[node], beside.get(node)))) for node in places}
    if len(places) > _MOST_NAMES or not _fit(axes, texts, places):
        texts = {node: str(below[node]) for node in beside if len(places) <= _MOST_NUMBERS}
    middle = np.mean([y for _, y in places.values()])
    for node, text in texts.items():
        above = places[node][1] > middle
        axes.annotate(
            text,
            places[node],
            (0, 6 if above else -6),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=7,
            linespacing=1.0,
            zorder=3,
            bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.8, "linewidth": 0},
        )


def _nics(count: int) -> str:
    return f"{count:,} NIC{'s' * (count != 1)}"


def _fit(axes: Axes, texts: dict[int, str], places: Places) -> bool:
    """Whether names beside their places would keep clear of one another."""
    spots = np.array([places[node] for node in texts])
    spots = (spots - spots.min(axis=0)) / np.maximum(np.ptp(spots, axis=0), 1e-9) * _inches(axes)
    lines = [text.split("\n") for text in texts.values()]
    sizes = np.array([(style.LETTER * max(map(len, own)), _LINE * (1 + len(own))) for own in lines])
    off = np.abs(spots[:, None] - spots) < (sizes[:, None] + sizes) / 2
    return int(off.all(axis=2).sum()) == len(texts)


def _inches(axes: Axes) -> NDArray[np.float64]:
    """Width and height between the outermost switches, about."""
    return np.array(axes.get_figure().get_size_inches()) - (0.6, 1.2)  # type: ignore[union-attr]  # of a figure
