"""What all plots share: colours, figures without pyplot, units of axes, saving."""

from __future__ import annotations

import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COMPUTE_COLOUR = "#0072B2"
COMMUNICATION_COLOURS = ("#D55E00", "#E69F00", "#CC79A7", "#F0E442")
HOST_COLOUR = "#56B4E9"
BUBBLE_COLOUR = "#D0D0D0"
MEASURED_COLOUR = "#666666"
PREDICTED_COLOUR = "#0072B2"
"""From the palette of Okabe and Ito (2008), which people with colour blindness can tell apart."""

SERIES_COLOURS = (
    "#332288",
    "#DDCC77",
    "#117733",
    "#88CCEE",
    "#CC6677",
    "#AA4499",
    "#44AA99",
    "#999933",
    "#882255",
)
"""Paul Tol's "muted" scheme, for more than a handful of categories; ordered so that neighbours differ in lightness."""
HATCHES = ("", "////", "....")
"""Laid over the colours when those run out."""

_MIN_WIDTH = 6.4
_FEW_DECADES = 1000.0
"""Factor between the ends of a logarithmic axis up to which more than powers of ten are labelled."""
_SUFFIXES = {".png", ".svg"}
_LONG_NAME = 16
"""Letters of a name that fits below a bar."""
_LONGEST_TEXT = 300
"""Letters that are drawn at most; more fit into no picture, and each letter that does not fit takes its time, too."""


def new_figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """Make an empty figure whose parts keep clear of each other; sizes in inches."""
    logger = logging.getLogger("matplotlib")
    if not logger.hasHandlers():  # else two lines on standard error say that no home keeps its fonts
        logger.setLevel(logging.ERROR)
    from matplotlib.figure import Figure  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    return Figure(figsize=(max(width, _MIN_WIDTH), height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG; the same figure gives the same bytes.

    `path`: file to write; its suffix decides the format.
    Raises ResultError if the suffix is another one, or the file cannot be written; nothing is left then.
    """
    import matplotlib as mpl  # noqa: PLC0415  matplotlib loads slowly, and only plots need it
    from matplotlib.text import Text  # noqa: PLC0415  as above
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415  as above

    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        msg = f"{path}: cannot draw as {suffix or 'a file without suffix'}; use .png or .svg"
        raise ResultError(msg)
    # dates, versions and random ids of elements would differ between runs and machines
    metadata: dict[str, Any] = {"Software": None} if suffix == ".png" else {"Date": None, "Creator": None}
    way_out = "name a file in a folder that exists and has room"
    with (
        whole(path, way_out, ResultError) as part,
        mpl.rc_context({"svg.hashsalt": "fabricsim", "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of letters that its font lacks, and names too long for the figure
        for formatter in {axis.get_major_formatter() for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)}:
            if isinstance(formatter, FuncFormatter):  # which gives ticks their names, again and again
                formatter.func = lambda *place, names=formatter.func: _cut(names(*place))
        for text in figure.findobj(Text):  # names may hold what would be a formula
            text.set_text(_cut(text.get_text()))
            if text.get_wrap():  # whose width matplotlib takes as that of a formula in any case
                text.set_text(re.sub(r"(?<!\\)\$", r"\\$", text.get_text()))
            else:
                text.set_parse_math(False)
        figure.savefig(part, format=suffix[1:], dpi=150, metadata=metadata)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def logarithmic(axis: Axis, lowest: float, highest: float) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2 and 5 of each decade, of which a short range has few.

    `axis`: of x or y, whose scale is logarithmic already.
    `lowest`, `highest`: what it shows; above 0.
    """
    from matplotlib.ticker import LogLocator  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if highest < _FEW_DECADES * lowest else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def time_unit(ps: float) -> tuple[str, float]:
    """Choose the unit of a time axis.

    `ps`: the longest time on the axis.
    Returns: name of the unit and its picoseconds.
    """
    for unit, scale in (("s", PS_PER_S), ("ms", 10**9), ("µs", 10**6)):
        if ps >= 2 * scale:
            return unit, float(scale)
    return "ns", 1e3


def dimension_colours(dimensions: Sequence[str]) -> dict[str, str]:
    """Give each parallel dimension its colour: the usual three always theirs, others what is left."""
    usual = ("data", "pipeline", "embedding")
    others = [dimension for dimension in dict.fromkeys(dimensions) if dimension not in usual]
    names = [*usual, *others]
    left = [*COMMUNICATION_COLOURS[len(usual) :], *SERIES_COLOURS]
    colours = [*COMMUNICATION_COLOURS[: len(usual)], *(left[index % len(left)] for index in range(len(others)))]
    return {name: colour for name, colour in zip(names, colours, strict=True) if name in dimensions}


def evenly(count: int, most: int) -> list[int]:
    """Choose at most `most` of ``range(count)``, evenly spaced, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def legend_beside(axes: Axes, *, reverse: bool = False, **options: Any) -> None:  # noqa: ANN401  matplotlib's own
    """Put the legend to the right of the axes, where it covers nothing.

    `axes`: if the labelled things are.
    `reverse`: last label first, the order in which bars are stacked.
    `options`: passed on to ``Axes.legend``.
    """
    if axes.get_legend_handles_labels()[0]:  # else matplotlib warns
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, reverse=reverse, **options)


def legend_above(axes: Axes) -> None:
    """Put the legend into one line above the axes, where it covers nothing and leaves them their width."""
    tight = {"columnspacing": 1.2, "handlelength": 1.5, "handletextpad": 0.5, "borderaxespad": 0.2}
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=9, frameon=False, **tight)


def name_bars(axes: Axes, names: Sequence[str]) -> None:
    """Write names below bars; turned if they would run into each other."""
    turned = max(map(len, names)) > _LONG_NAME
    axes.set_xticks(range(len(names)), names, rotation=30 if turned else 0, ha="right" if turned else "center")


def require_some(count: int, what: str, reason: str) -> None:
    """Refuse to draw an empty picture. Raises ResultError if `count` is 0."""
    if not count:
        msg = f"there is no {what} to draw; {reason}"
        raise ResultError(msg)
