"""A sweep from its index: tables, lines, heat maps, frontiers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.errors import InputError
from fabricsim.report import style
from fabricsim.report.axis_names import axis_name, number, value_name
from fabricsim.report.lines import frontier
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.units import human_count, human_percent, human_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from numpy.typing import NDArray
    from rich.console import RenderableType

    Rows = Sequence[Mapping[str, Any]]

HEADLINES = ("iteration_time_s", "makespan_s", "time_s")
"""What is drawn and ranked if nothing else is asked for: the first of these that there is."""
_COSTS = {"network_cost_per_gpu_usd": "US$/GPU", "network_power_per_gpu_w": "W/GPU"}
_REMARK = "price_remark"
_RATE = "tokens_per_s"
_HEADS = {
    **_COSTS,
    "iteration_time_s": "iteration",
    _RATE: "tokens/s",
    "exposed_communication_s": "exposed",
    "busbw_bytes_per_s": "busbw",
}
_SHOWN = (
    "iteration_time_s",
    _RATE,
    "makespan_s",
    "time_s",
    "mfu",
    "exposed_communication_s",
    "busbw_bytes_per_s",
    "slowdown_p99",
    *_COSTS,
)
_SPARED = ("exposed_communication_s", "mfu", "time_s", "makespan_s", "slowdown_p99", *reversed(_COSTS), *_SHOWN)
"""What is given up where the terminal is narrow, in this order."""
_TOKENS = "tokens"  # column of a search whose layouts differ in them
_MOST_ROWS = 20
_HEAD = 9  # characters of a heading's line
_MOST_BEST = 10
_MOST_LINES = 9
_MOST_LABELS = 24
_BESIDE = 1.0  # inches of a picture beside its axis of x
_TURNED = 0.2  # inches between names that are turned
_MANY = 20.0  # a range of more than this factor gets logarithmic colours
_MOST_FIGURES = 100  # cells of a heat map that are told
_DARK = 0.5  # share of white below which letters are white
_FEW = 5  # errors that are told
_NEAR = 0.05  # of the best layout


def swept_text(rows: Rows, varied: Sequence[str]) -> list[RenderableType]:
    """Give the table of the runs, the quickest first, per token if they differ in tokens, and the first errors."""
    done = [row for row in rows if row["status"] == "done"]
    said: list[RenderableType] = []
    if done:
        ranking = _RATE if _differ_in_tokens(done) else headline(done)
        done = sorted(done, key=lambda row: -row[ranking] if ranking == _RATE else row[ranking])
        differing = [key for key in varied if len({_told(row[key]) for row in done}) > 1] or varied
        told = [key for key in _SHOWN if key not in differing and any(row.get(key) is not None for row in done)]
        shown = [key for key in told if key != _RATE or ranking == _RATE]
        heads = {**_short(differing), **{key: _HEADS.get(key, key) for key in shown}}
        spared = [heads[key] for key in _SPARED if key in shown and key != ranking]
        title = f"{human_count(len(rows), 'runs')}, by {ranking}"
        said.append(_table(title, done[:_MOST_ROWS], heads, differing, spared))
        if len(done) > _MOST_ROWS:
            said.append(f"and {len(done) - _MOST_ROWS:,} more, in the index")
    said += _grouped([row for row in rows if row["status"] == "failed"], varied, "error", "failed")
    return said + _grouped([row for row in done if row.get(_REMARK)], varied, _REMARK, "no price")


def _grouped(rows: Rows, varied: Sequence[str], key: str, what: str) -> list[RenderableType]:
    """Tell the first errors or remarks, which are under `key`, each once with the first of its runs."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(", ".join(f"{key} = {_told(row[key])}" for key in varied))
    said: list[RenderableType] = [
        f"{what}: {places[0]}{f' and {len(places) - 1:,} more' * (len(places) > 1)}: {told}"
        for told, places in list(found.items())[:_FEW]
    ]
    more = "errors" if key == "error" else "remarks"
    return [*said, *([f"and {len(found) - _FEW:,} more {more}, in the index"] if len(found) > _FEW else [])]


def _differ_in_tokens(done: Rows) -> bool:
    """Whether iterations of runs have other numbers of tokens, so that the shortest need not be the quickest."""
    tokens = {round(row[_RATE] * row["iteration_time_s"]) if row.get(_RATE) else None for row in done}
    return len(tokens) > 1 and None not in tokens


def _table(
    title: str, rows: Rows, heads: Mapping[str, str], words: Sequence[str], spared: Sequence[str]
) -> RenderableType:
    """Make a table of some columns of the index.

    `heads`: headings, by the columns of the index.
    `words`: columns, at the head, whose values are words; others hold figures.
    `spared`: headings that are given up where the terminal is narrow, in this order.
    """
    from rich.markup import escape  # noqa: PLC0415  not needed for pictures

    from fabricsim.report.tables import FittedTable, titled  # noqa: PLC0415  as above

    first, *rest = heads
    folded = {key: escape(_folded(name) if key in words else name) for key, name in heads.items()}
    table = FittedTable(folded[first], [], least=spared, gap=0, elsewhere="the index has all")
    for key in rest:
        if key in words:
            table.add_column(folded[key], overflow="fold")
        else:
            table.add_column(folded[key], justify="right", no_wrap=True)
    for row in rows:
        table.add(*(_cell(row, key) for key in heads))
    return titled(title, table)


def _folded(key: str) -> str:
    """Break the name of a key between its words, so that a column of short values is narrow."""
    lines = [""]
    for word in key.replace("_", "_ ").split():
        if lines[-1] and len(lines[-1] + word) > _HEAD:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _short(keys: Sequence[str]) -> dict[str, str]:
    """Name keys by their last part, if it is that of one of them only."""
    ends = Counter(key.rpartition(".")[2] for key in keys)
    return {key: end if ends[end := key.rpartition(".")[2]] == 1 else key for key in keys}


def searched_text(
    rows: Rows, keys: Sequence[str], layouts: int, simulated: int, *, proposed: bool = False
) -> list[RenderableType]:
    """Give the table of the best layouts, and count the reasons for which others are out.

    `proposed`: whether there may be others, which were not looked at.
    """
    ranked = [row for row in rows if row["status"] == "done"]
    priced = [key for key in _COSTS if ranked and key in ranked[0]]
    heads = {**_short(keys), "bound_s": "bound", "iteration_time_s": "iteration"}
    heads |= {_RATE: _HEADS[_RATE]} if ranked and _TOKENS in ranked[0] else {}
    heads |= {"mfu": "mfu", "exposed_communication_s": "exposed"}
    heads |= {key: name for key, name in _COSTS.items() if key in priced}
    spared = [heads[key] for key in ("bound_s", *_SPARED) if key in heads and key != "iteration_time_s"]

    by = ", by tokens per second" if _RATE in heads else ""
    tables = [_table(f"Best layouts{by}", ranked[:_MOST_BEST], heads, keys, spared)]
    if priced:
        cheaper = [row for at, row in enumerate(ranked) if all(row[priced[0]] < one[priced[0]] for one in ranked[:at])]
        tables.append(_table("Best at each cost of the network", cheaper, heads, keys, spared))
    own = next((row for row in rows if row.get("own")), None)
    if own is not None:
        alone = len(ranked) == 1 and all(_kind(row) == _UNFIT for row in rows if row is not own)
        tables.append(_alone_text(rows) if alone else _own_text(own, ranked[0], keys))
    reasons = Counter(_kind(row) for row in rows if row["status"] != "done")
    counted = [f"{count:,} {reason}" for reason, count in reasons.most_common()]
    told = f"{layouts:,} layouts: {simulated:,} simulated; out: {', '.join(counted) or 'none'}"
    best = _spent(ranked[0], "iteration_time_s") if ranked else 0.0
    least = min((_spent(row, "bound_s") for row in rows if _WITHIN in row["error"]), default=best)
    if least < best:  # of cheaper networks the bounds may lie above
        most = f"has more than {1 / least:,.0f} tokens/s" if by else f"takes less than {human_seconds(least)}"
        told += (
            f"; no layout {most}, {human_percent(1 - least / best)} less{' time per token' * bool(by)} than the best"
        )
    return [*tables, told + "; others, which may be better, were not proposed" * proposed]


def _spent(row: Mapping[str, Any], key: str) -> float:
    """Give a time of a layout: for a token if layouts differ in their tokens, else for an iteration."""
    return float(row[key] or 0) / (row.get(_TOKENS) or 1)


def longer(own: Mapping[str, Any], best: Mapping[str, Any]) -> float:
    """Give what a layout of a search takes more than the best, per token if they differ in tokens, as a share."""
    return _spent(own, "iteration_time_s") / _spent(best, "iteration_time_s") - 1


_PARTS = {
    "compute": "compute_s",
    "exposed communication": "exposed_communication_s",
    "bubble": "bubble_s",
    "host": "host_s",
}


def _alone_text(rows: Rows) -> str:
    """Say that nothing was found beside the scenario's own layout, and the commonest reason."""
    errors = Counter(row["error"] for row in rows if row["status"] != "done")
    why = f"; the commonest reason of others: {errors.most_common(1)[0][0]}" if errors else ""
    return f"The scenario's own layout is the only one left{why}"


def _own_text(own: Mapping[str, Any], best: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Say how far the layout of the scenario is from the best, and in what they differ."""
    if own["status"] != "done":
        return f"The scenario's own layout is out: {own['error']}"
    if own is best:
        return "The scenario's own layout is the best."
    took, token = human_seconds(float(own["iteration_time_s"])), " per token" * (_TOKENS in own)
    said = f"The scenario's own layout takes {took}, {human_percent(longer(own, best))} longer{token} than the best"
    return f"{said}, which has {better(own, best, keys)}."


def better(own: Mapping[str, Any], best: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Say what the best layout of a search has in place of another one's, and what it takes less of for its tokens."""
    differing = [key for key in keys if _told(own[key]) != _told(best[key])]
    has = [f"{name} {_set(best[key])} in place of {_set(own[key])}" for key, name in _short(differing).items()]
    tokens = own.get(_TOKENS) or 1
    parts = {name: tokens * (_spent(best, key) - _spent(own, key)) for name, key in _PARTS.items()}
    least = float(own["iteration_time_s"]) / 1000
    takes = [
        f"{name} {'-' if more < 0 else '+'}{human_seconds(abs(more))}"
        for name, more in parts.items()
        if abs(more) >= least
    ]
    return f"{', '.join(has) or 'other settings'}{': ' * bool(takes)}{', '.join(takes)}"


def published_text(rows: Rows) -> list[RenderableType]:
    """Give the table of what searches found for published runs, and how many of their layouts are near the best."""
    from fabricsim.report.tables import FittedTable  # noqa: PLC0415  not needed for pictures

    columns = {"run": "run", "measured": "measured_s", "its layout": "own_s", "the best": "best_s", "longer": "longer"}
    _, *figures = columns
    table = FittedTable("run", figures, words=["what the best has"], least=["what the best has", "measured"])
    done = [row for row in rows if not row["error"]]
    for row in done:
        told = [human_percent(row[key]) if key == "longer" else _cell(row, key) for key in columns.values()]
        table.add(*told, row["better"])
    near = sum(row["longer"] <= _NEAR for row in done)
    said = (
        f"{len(done)} runs: the layouts of {near} are within {human_percent(_NEAR, 0)} of the best one that was found"
    )
    left = Counter(row["error"] for row in rows if row["error"])
    return [table, f"{said}.", *(f"not searched: {count}: {reason}" for reason, count in left.most_common())]


_WITHIN, _UNFIT = "within the gap of ", "that do not fit together"
_REASONS = {
    "needs ": "that do not fit into memory",
    "has no price": "whose network has no price",
    "costs ": "over what networks may cost or draw",
    _WITHIN: "whose bound is within the gap",
    "its turn did not come": "whose turn did not come",
    "takes ": "whose bound is above the best time",
}
"""Of layouts that are out, by the first of these that is in the reason."""


def _kind(row: Mapping[str, Any]) -> str:
    if row["status"] == "failed":
        return "that failed"
    return next((kind for said, kind in _REASONS.items() if said in row["error"]), _UNFIT)


def _told(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _cell(row: Mapping[str, Any], key: str) -> str:
    """Write a result with its unit, and a key as it was set."""
    value = row[key]
    if not isinstance(value, float):
        return _told(value)
    if key.endswith("_bytes_per_s"):
        return f"{value / 1e9:.4g} GB/s"
    if key in _COSTS or key.endswith("_per_s"):
        return f"{value:,.0f}"
    if key.endswith("_s"):
        return human_seconds(value)
    return human_percent(value) if key == "mfu" else _told(value)


def _set(value: object) -> str:
    return "no value set" if value is None else _told(value)


def headline(rows: Rows) -> str:
    """Name the result that counts most."""
    return next((key for key in HEADLINES if key in rows[0]), HEADLINES[0])


def pictures(
    rows: Rows, varied: Sequence[str], wanted: Sequence[Mapping[str, Any]], name: str
) -> Iterator[tuple[str, Figure]]:
    """Draw what is wanted, or what suits; by the name of the file.

    `rows`: of the index. `varied`: keys that the runs differ in.
    `wanted`: pictures as of `fabricsim.scenario.swept.Picture`. If empty, the headline is drawn over the one key that
        is varied, over the first with a line for each value of the second, or as a heat map if these are too many.
    Raises InputError if a picture names a column that the index does not have.
    """
    done = [row for row in rows if row["status"] == "done"]
    if not done:
        return
    for count, picture in enumerate(wanted or _suiting(done, varied), 1):
        if problem := _problem(done, picture):
            raise InputError(f"pictures[{count - 1}].{problem}")
        yield f"picture-{count}.png", _KINDS[picture["kind"]](done, picture, name)


def _problem(done: Rows, picture: Mapping[str, Any]) -> str:
    """Say which key of a picture names a column that is not there, or has words if numbers are drawn; or nothing."""
    for key in ("x", "y", "value", "by", "label"):
        column = picture.get(key)
        if column is not None and column not in done[0]:
            hint = did_you_mean(column, done[0], "columns are " + ", ".join(done[0]))
            return f"{key}: the index has no column {column!r}; {hint}"
        values = [row[column] for row in done if row[column] is not None] if column is not None else []
        if column is not None and not values:
            why = f": {done[0][_REMARK]}" if column in _COSTS and _REMARK in done[0] else ""
            return f"{key}: no run has a value of {column!r}{why}"
        if key in _NUMBERS[picture["kind"]] and (words := [value for value in values if number(value) is None]):
            return f"{key}: {column!r} has {words[0]!r}, which is no number; name another one"
    return ""


def _suiting(done: Rows, varied: Sequence[str]) -> list[dict[str, Any]]:
    ranking = headline(done)
    axes = [key for key in varied if len({_told(row[key]) for row in done}) > 1]
    numeric = sorted(axes, key=lambda key: number(done[0][key]) is None)
    if not axes or len(axes) > 2:  # noqa: PLR2004  a plane
        return []
    x = numeric[0]
    if len(axes) == 1:
        return [{"kind": "lines", "x": x, "y": ranking}]
    other = next(key for key in axes if key != x)
    if len({_told(row[other]) for row in done}) <= _MOST_LINES:
        return [{"kind": "lines", "x": x, "y": ranking, "by": other}]
    return [{"kind": "heat-map", "x": x, "y": other, "value": ranking}]


def _ticks(done: Rows, key: str) -> tuple[list[Any], list[float] | None]:
    """Values of a key in order, and their numbers if all have one."""
    values = list({_told(row[key]): row[key] for row in done}.values())
    numbers = [number(value) for value in values]
    if any(number is None for number in numbers):
        return values, None
    order = sorted(range(len(values)), key=lambda place: numbers[place] or 0.0)
    return [values[place] for place in order], [numbers[place] or 0.0 for place in order]


def _largest(done: Rows, key: str) -> float:
    return max((number(row[key]) or 0.0 for row in done), default=0.0)


def _name_values(axis: Axis, done: Rows, key: str) -> None:
    """Name the ticks of an axis of numbers; quantities of a scenario have their units."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    values, numbers = _ticks([row for row in done if row[key] is not None], key)
    if numbers is not None and any(isinstance(value, str) for value in values):
        axis.set_ticks(numbers, list(map(value_name, values)))
    else:
        axis.set_major_locator(MaxNLocator("auto", integer=all(isinstance(value, int) for value in values)))
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


@style.picture
def _lines(done: Rows, picture: Mapping[str, Any], name: str) -> Figure:
    x, y, by = picture["x"], picture["y"], picture.get("by")
    values, numbers = _ticks(done, x)
    place = {_told(value): number for value, number in zip(values, numbers or range(len(values)), strict=True)}
    figure, height = style.new_figure(3.2, widest=5.0), axis_name(y).up_to(_largest(done, y))
    axes = figure.subplots()
    for count, group in enumerate(_ticks(done, by)[0] if by else [None]):
        own = sorted(
            (place[_told(row[x])], (number(row[y]) or 0.0) * height.scale)
            for row in done
            if row[y] is not None and (by is None or _told(row[by]) == _told(group))
        )
        colour, marker = style.series_look(count)
        axes.plot(*zip(*own, strict=True), color=colour, marker=marker, label=value_name(group) if by else None)
    if numbers is not None and numbers[0] > 0 and numbers[-1] >= 8 * numbers[0]:
        axes.set_xscale("log")
    if len(values) <= _MOST_LABELS:
        names = list(map(value_name, values))
        turned = sum(map(len, names)) > (40 if style.narrow() else 60)  # letters that fit beside one another
        ticks = sorted(place.values())
        names = _readable(axes, ticks, names, turned=turned)
        axes.set_xticks(ticks, names, rotation=30 if turned else 0, ha="right" if turned else "center")
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    _name_values(axes.yaxis, done, y)
    axes.set(xlabel=str(axis_name(x)), ylabel=str(height), title=name)
    axes.grid(visible=True)
    if by:
        style.legend(figure, title=axis_name(by).name)
    return figure


def _readable(axes: Axes, ticks: Sequence[float], names: Sequence[str], *, turned: bool) -> list[str]:
    """Leave out the names of ticks that would run into those beside them; the first and last one stay."""
    scaled = np.log(ticks) if axes.get_xscale() == "log" else np.asarray(ticks, np.float64)
    wide = axes.get_figure().get_figwidth() - _BESIDE  # type: ignore[union-attr]  # it has one
    at = wide * (scaled - scaled[0]) / max(float(scaled[-1] - scaled[0]), 1e-300)

    def clear(one: int, other: int) -> bool:
        letters = (len(names[one]) + len(names[other])) / 2 + 1
        return bool(at[other] - at[one] >= (_TURNED if turned else letters * style.LETTER))

    last = len(names) - 1
    kept = [0]
    for place in range(1, last):
        if clear(kept[-1], place) and clear(place, last):
            kept.append(place)
    return [name if place in {*kept, last} else "" for place, name in enumerate(names)]


@style.picture
def _heat_map(done: Rows, picture: Mapping[str, Any], name: str) -> Figure:
    from matplotlib.colors import LogNorm  # noqa: PLC0415  matplotlib loads slowly, and only plots need it

    x, y, value = picture["x"], picture["y"], picture.get("value") or headline(done)
    shown = axis_name(value).up_to(_largest(done, value))
    columns, lines = (list(map(_told, _ticks(done, key)[0])) for key in (x, y))
    grid = np.full((len(lines), len(columns)), np.nan)
    drawn = [(each, row) for row in done if (each := number(row[value])) is not None]
    drawn.sort(key=lambda pair: pair[0], reverse=not shown.more_is_better)
    for each, row in drawn:  # of several in one cell, the best
        grid[lines.index(_told(row[y])), columns.index(_told(row[x]))] = each * shown.scale
    figure = style.new_figure(3.6, widest=5.0)
    axes = figure.add_subplot()
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    norm = LogNorm(low, high) if 0 < _MANY * low < high else None
    image = axes.imshow(grid, cmap="viridis_r", norm=norm, origin="lower", aspect="auto", interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, label=str(shown))
    if norm is not None:
        style.logarithmic(bar.ax.yaxis, low, high)
    axes.spines[:].set_visible(False)
    for place, labels, axis in ((columns, axes.set_xticks, x), (lines, axes.set_yticks, y)):
        kept = style.evenly(len(place), 8 if axis == x and style.narrow() else _MOST_LABELS)
        labels(kept, [value_name(place[index]) for index in kept])
        if axis == x and len(place) > _FEW:
            axes.tick_params(axis="x", labelrotation=30)
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
    axes.set(xlabel=str(axis_name(x)), ylabel=str(axis_name(y)), title=name)
    _write_figures(axes, image, grid)
    return figure


def _write_figures(axes: Axes, image: AxesImage, grid: NDArray[np.float64]) -> None:
    """Write the figure of each cell into it, if they are few and there is room."""
    told = {(line, column): f"{each:.3g}" for (line, column), each in np.ndenumerate(grid) if np.isfinite(each)}
    wide = axes.get_figure().get_figwidth() - 2 * _BESIDE  # type: ignore[union-attr]  # it has one
    longest = max(map(len, told.values()), default=0) + 1
    if grid.size > _MOST_FIGURES or longest * style.LETTER * grid.shape[1] > wide:
        return
    for (line, column), text in told.items():
        red, green, blue, _ = image.cmap(image.norm(grid[line, column]))
        dark = 0.3 * red + 0.6 * green + 0.1 * blue < _DARK
        axes.text(column, line, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")


@style.picture
def _frontier(done: Rows, picture: Mapping[str, Any], name: str) -> Figure:
    x, y, by, label = picture["x"], picture["y"], picture.get("by"), picture.get("label")
    across, up = (axis_name(key).up_to(_largest(done, key)) for key in (x, y))
    points = [
        (
            (number(row[x]) or 0.0) * across.scale,
            (number(row[y]) or 0.0) * up.scale,
            value_name(row[label]) if label else "",
            value_name(row[by]) if by else "runs",
        )
        for row in done
        if row[x] is not None and row[y] is not None
    ]
    more, groups = (across.more_is_better, up.more_is_better), axis_name(by).name if by else None
    figure = frontier(points, str(across), str(up), name, more=more, groups=groups)
    _name_values(figure.axes[0].xaxis, done, x)
    _name_values(figure.axes[0].yaxis, done, y)
    return figure


_KINDS = {"lines": _lines, "heat-map": _heat_map, "frontier": _frontier}
_NUMBERS = {"lines": ("y",), "heat-map": ("value",), "frontier": ("x", "y")}
"""What of a picture must be a column of numbers."""
