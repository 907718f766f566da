"""What all pictures share: one style at any width of paper, colours, figures without pyplot, units of axes, saving."""

from __future__ import annotations

import itertools
import logging
import re
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.units import PS_PER_S, human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

P = ParamSpec("P")

FULL_WIDTH = 7.0
"""Inches across both columns of a paper; one column has about 3.3."""
_WIDTH = ContextVar("width", default=FULL_WIDTH)
_RC: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "figure.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "pdf.fonttype": 42,
    "svg.hashsalt": "fabricsim",
}
"""Of all pictures: letters of 7 and 8 points, as journals ask for, whatever the width."""

COMPUTE_COLOUR = "#0072B2"
COMMUNICATION_COLOURS = ("#D55E00", "#E69F00", "#CC79A7", "#F0E442")
BUBBLE_COLOUR = "#D0D0D0"
MEASURED_COLOUR = HOST_COLOUR = "#666666"
PREDICTED_COLOUR = "#0072B2"
"""From the palette of Okabe and Ito (2008), which people with colour blindness can tell apart."""

SERIES_COLOURS = ("#332288", "#CC6677", "#117733", "#88CCEE", "#882255", "#DDCC77", "#AA4499", "#44AA99", "#999933")
"""Paul Tol's "muted" scheme, for more than a handful of categories; those first that show on white as thin lines."""
MARKERS = "osD^vPX"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "oooo", "++++", "||||")
"""Laid over the colours when those run out: as many as the messages of a pipeline have timers."""

DIMENSION_COLOURS = {
    **dict(zip(("data", "pipeline", "embedding", "tensor"), COMMUNICATION_COLOURS, strict=True)),
    "context": "#882255",
    "expert": "#CC6677",
}
"""Of parallel dimensions, in all pictures."""
_OTHER_DIMENSIONS = ("#AA4499", "#999933", "#DDCC77", "#117733", "#44AA99", "#88CCEE")
"""The rest of Tol's, those first that are unlike colours of computation."""
COMPUTE_COLOURS = {
    "forward-compute": COMPUTE_COLOUR,
    "backward-compute": "#56B4E9",
    "weight-compute": "#332288",
    "optimizer": "#009E73",
}
_OTHER_COMPUTE = (COMPUTE_COLOUR, "#009E73", "#56B4E9", *SERIES_COLOURS)
"""Colours of timers of computation; others get them by their number."""

_FEW_DECADES = 1000.0
"""Factor between the ends of a logarithmic axis up to which more than powers of ten are labelled."""
_SUFFIXES: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Formats, and what of their metadata would differ between runs and machines."""
LETTER = 0.056
"""Width of a letter of a legend in inches, in the mean."""
_LETTER, _LARGE_LETTER = 0.08, 0.135
"""Width of most letters of a title in inches, of small ones and of others, at most."""
_HANDLE = 0.36
"""Width of what stands beside it."""
_LINE = 0.15
"""Height of a line of a legend."""
_WORDS = 0.8
"""Height of title, ticks and label of an axis: letters keep their size."""
_MOST_SIZES = 11
"""Steps between the sizes that an axis names."""
_LONGEST_TEXT = 300
"""Letters that are drawn at most; more fit into no picture, and each letter that does not fit takes its time, too."""


@contextmanager
def paper(width: float) -> Iterator[None]:
    """Have pictures that are made meanwhile be `width` inches wide; letters keep their size."""
    before = _WIDTH.set(width)
    try:
        yield
    finally:
        _WIDTH.reset(before)


def picture(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make a function draw in the style of all pictures."""

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> Figure:
        _quieten()
        import matplotlib as mpl  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

        with mpl.rc_context(_RC):
            figure = draw(*args, **options)
            for axes in figure.axes:  # the ends of logarithmic axes come with the ticks, whose style is that of now
                axes.xaxis.get_ticklabels(), axes.yaxis.get_ticklabels()
            return figure

    return drawn


def _quieten() -> None:
    logger = logging.getLogger("matplotlib")
    if not logger.hasHandlers():  # else two lines on standard error say that no home keeps its fonts
        logger.setLevel(logging.ERROR)


def new_figure(height: float = 3.6, widest: float = FULL_WIDTH) -> Figure:
    """Make an empty figure as wide as the paper, whose parts keep clear of each other.

    `height`: inches at full width; less at less.
    `widest`: inches that it has at most.
    """
    _quieten()
    from matplotlib.figure import Figure  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    width = min(_WIDTH.get(), widest)
    drawn = max(height - _WORDS, 0.0) * (width / widest) ** 0.5
    return Figure(figsize=(width, min(height, _WORDS) + drawn), layout="constrained")


def narrow() -> bool:
    """Whether the paper is one column wide."""
    return _WIDTH.get() < 5.0  # noqa: PLR2004  inches, between one column and two


def two_panels(beside: float, below: float) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure of two panels beside each other, or below if it is narrow; of so many inches as of `new_figure`."""
    figure = new_figure(below if narrow() else beside)
    return figure, figure.subplots(2, 1) if narrow() else figure.subplots(1, 2)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF; the same figure gives the same bytes.

    `path`: file to write; its suffix decides the format.
    Raises ResultError if the suffix is another one, or the file cannot be written; nothing is left then.
    """
    import matplotlib as mpl  # noqa: PLC0415  matplotlib loads slowly, and only plots need it
    from matplotlib.text import Text  # noqa: PLC0415  as above
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415  as above

    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ResultError(f"{path}: cannot draw as {suffix or 'a file without suffix'}; use .png, .svg or .pdf")
    way_out = "name a file in a folder that exists and has room"
    with (
        whole(path, way_out, ResultError) as part,
        mpl.rc_context({**_RC, "text.parse_math": False}),
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
                broken = _broken(text.get_text(), figure.get_figwidth())
                text.set_text(re.sub(r"(?<!\\)\$", r"\\$", broken))
            else:
                text.set_parse_math(False)
        figure.savefig(part, format=suffix[1:], dpi=200, metadata=_SUFFIXES[suffix])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _broken(text: str, wide: float) -> str:
    """Break words that are longer than a line of so many inches: between words matplotlib does so itself."""
    lines, room = [""], wide
    for letter in text:
        room = wide if letter.isspace() else room - (_LETTER if letter.islower() else _LARGE_LETTER)
        if room < _LARGE_LETTER:
            lines.append("")
            room = wide
        lines[-1] += letter
    return "\n".join(lines)


def logarithmic(axis: Axis, lowest: float, highest: float) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2 and 5 of each decade, of which a short range has few.

    `axis`: of x or y, whose scale is logarithmic already.
    `lowest`, `highest`: what it shows; above 0.
    """
    from matplotlib.ticker import LogLocator  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if highest < _FEW_DECADES * lowest else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def size_axis(axes: Axes, sizes: Iterable[float], label: str) -> None:
    """Label a logarithmic axis of sizes in bytes with some of them, apart enough to be read: the largest always."""
    left = sorted(set(sizes), reverse=True)
    apart = (left[0] / left[-1]) ** (1 / _MOST_SIZES) * (1 - 1e-9)
    shown = left[:1]
    for size in left[1:]:
        if shown[-1] / size >= apart:
            shown.append(size)
    shown.reverse()
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [human_bytes(float(size)) for size in shown], rotation=30, ha="right")
    axes.minorticks_off()
    axes.set_xlabel(label)


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
    """Give each parallel dimension its colour: the usual ones always theirs, others what is left, by their names.

    `dimensions`: all of the runs that are drawn, so that all their pictures have the same colours.
    """
    others = sorted(set(dimensions) - DIMENSION_COLOURS.keys())
    left = dict(zip(others, itertools.cycle(_OTHER_DIMENSIONS), strict=False))
    of = DIMENSION_COLOURS | left
    return {name: of[name] for name in dimensions}


def series_look(number: int) -> tuple[str, str]:
    """Give colour and marker of a series of that number among many."""
    return SERIES_COLOURS[number % len(SERIES_COLOURS)], MARKERS[number % len(MARKERS)]


def evenly(count: int, most: int) -> list[int]:
    """Choose at most `most` of ``range(count)``, evenly spaced, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def timer_colours(
    timers: Sequence[str], dimension: dict[int, str], host: Sequence[int], dimensions: Sequence[str]
) -> list[tuple[str, str]]:
    """Give each timer its colour and hatch: those of collectives the colour of their dimension.

    `dimension`: of the collectives of a timer, by its number; `host`: timers of what hosts do.
    `dimensions`: of the run, as of `dimension_colours`.
    """
    of = dimension_colours(dimensions)
    own = {COMPUTE_COLOURS[timer] for timer in timers if timer in COMPUTE_COLOURS}
    others = [colour for colour in _OTHER_COMPUTE if colour not in own]
    looks = []
    for number, timer in enumerate(timers):
        again = 0 if timer in COMPUTE_COLOURS else number // len(others)
        colour = COMPUTE_COLOURS.get(timer, others[number % len(others)])
        if number in dimension:
            colour = of[dimension[number]]
            again = sum(dimension.get(other) == dimension[number] for other in range(number))
        elif number in host:
            colour, again = HOST_COLOUR, 0
        looks.append((colour, HATCHES[again % len(HATCHES)]))
    return looks


def shade(look: tuple[str, str]) -> str:
    """Give a darker or lighter colour for a colour and its hatch: for what is too many or too small for hatches."""
    again = HATCHES.index(look[1])
    step = (again + 1) // 2
    end = 255 * (again % 2 == 0)
    parts = (int(look[0][at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * step / (step + 1.2)):02x}" for part in parts)


def legend(figure: Figure, *, title: str | None = None, of: Axes | None = None) -> None:
    """Put one legend below all panels, in as many columns as fit, where it covers nothing; none without labels.

    `of`: axes whose labelled things it has, by default those of all, each label once.
    """
    found: dict[str, Any] = {}
    for axes in figure.axes if of is None else [of]:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if not found:
        return
    rows = _rows(list(found), figure.get_figwidth())
    figure.set_figheight(figure.get_figheight() + _LINE * (rows + (title is not None)))
    columns = -(-len(found) // rows)
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, title=title)


def _rows(labels: Sequence[str], wide: float) -> int:
    """Fewest rows of a legend in so many inches; it is filled by columns, each as wide as its longest label."""
    each = [_HANDLE + LETTER * max(map(len, label[:_LONGEST_TEXT].split("\n"))) for label in labels]
    return next(
        rows
        for rows in range(1, len(each) + 1)
        if rows == len(each) or sum(max(each[at : at + rows]) for at in range(0, len(each), rows)) <= wide
    )


def panel_title(axes: Axes, name: str, told: str = "") -> None:
    """Name a panel above its left end, and say something of it above its right one."""
    if narrow() and told:
        name, told = f"{name}, {told}", ""
    axes.set_title(name, loc="left", fontsize=7, pad=3)
    axes.set_title(told, loc="right", fontsize=7, pad=3)


def name_ranks(axes: Axes, names: Sequence[str], every: int) -> None:
    """Write ranks beside their rows, the first on top; `every`: how many ranks there are."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("Rank" if len(names) == every else f"Rank ({len(names)} of {every:,})")


def require_some(count: int, what: str, reason: str) -> None:
    """Refuse to draw an empty picture. Raises ResultError if `count` is 0."""
    if not count:
        raise ResultError(f"there is no {what} to draw; {reason}")
