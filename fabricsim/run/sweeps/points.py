"""Points of a sweep: every value of some keys, ranges of them, points that are written out, and ones that are drawn."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fabricsim.errors import InputError
from fabricsim.scenario.suggest import did_you_mean, show
from fabricsim.scenario.swept import Sample, SweptScenario
from fabricsim.scenario.variation import stream

MOST = 100_000
"""Points of one sweep."""
_RANGE = ("from", "to", "step", "count", "factor", "scale")
_LEAF = {"from", "include"}
"""Keys of tables that are values: ranges, and presets of which some keys are changed."""
_EXACT = 1e-9
"""Share of a whole number by which one that is computed may miss it."""
_NEAR = 1e-3
"""By which a whole number may be missed at most, however large it is."""
_FEW = 8
"""Values of a list that is proposed."""
_QUANTITY = re.compile(r"\s*([+-]?\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?)\s*(\D\S*)\s*")


def flat(tables: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Give nested tables as dotted keys, which in TOML may be quoted or not."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        path = f"{place}{key}"
        if isinstance(value, dict) and value and not _LEAF & value.keys():
            found |= flat(value, f"{path}.")
        else:
            found[path] = value
    return found


def points(sweep: SweptScenario) -> list[dict[str, Any]]:
    """Combine what a sweep varies; the last key of the grid changes first.

    Returns: of each run the values of the keys that are varied.
    Raises InputError if a range is none, there are too many points, or one is there twice.
    """
    grid = {key: _values(f"grid.{key}", value) for key, value in flat(sweep.grid).items()}
    listed = [flat(point) for point in sweep.points] or [{}]
    for place, values in (*((f"grid.{key}", values) for key, values in grid.items()), ("points", listed)):
        _refuse_twice(place, values)
    drawn = [{}] if sweep.sample is None else _drawn(sweep.sample)
    count = math.prod([*map(len, grid.values()), len(listed), len(drawn)])
    if count > MOST:
        raise InputError(f"these are {count:,} runs, and a sweep takes {MOST:,} at most; draw some with [sample]")
    keys = [*grid, *dict.fromkeys(key for point in (*listed, *drawn[:1]) for key in point)]
    if len(keys) > len(set(keys)) or (drawn[0].keys() & {key for point in listed for key in point}):
        twice = next((key for key in keys if keys.count(key) > 1), keys[-1])
        raise InputError(f"{twice}: is varied twice; leave it in one of [grid], [[points]] and [sample]")
    every = [
        {**dict(zip(grid, values, strict=True)), **point, **sample}
        for point in listed
        for sample in drawn
        for values in itertools.product(*grid.values())
    ]
    if every == [{}]:
        raise InputError("nothing is varied: give keys with several values in [grid], in [[points]] or in [sample]")
    return every


def _refuse_twice(place: str, values: Sequence[Any]) -> None:
    """Refuse values of which one is there twice, which would be the same run."""
    seen: dict[str, int] = {}
    for number, value in enumerate(values):
        if (first := seen.setdefault(repr(value), number)) != number:
            what = show(value) if not isinstance(value, dict) else "what is written"
            raise InputError(f"{place}[{number}]: {what} is there already, as {place}[{first}]; take one out")


def _values(place: str, value: object) -> list[Any]:
    """Values of a list or range."""
    if isinstance(value, list | tuple):
        if not value:
            raise InputError(f"{place}: the list is empty; give it values")
        return list(value)
    if isinstance(value, dict) and "from" in value:
        first, last, unit = _ends(place, value)
        numbers = _numbers(place, value, first, last)
        if not unit and _is_whole(value):
            _refuse_fractions(place, value, numbers)
        return list(dict.fromkeys(_written(number, unit, value) for number in numbers))
    msg = f"{place}: {show(value)} is no list of values and no range; write [1, 2] or {{ from = 1, to = 8, step = 1 }}"
    raise InputError(msg)


def _is_whole(table: Mapping[str, Any]) -> bool:
    """Whether a range is one of whole numbers: its ends are, and its step if it has one."""
    return all(isinstance(table.get(key, 1), int) for key in ("from", "to", "step"))


def _refuse_fractions(place: str, table: Mapping[str, Any], numbers: Sequence[float]) -> None:
    """Refuse a range of whole numbers of which some are not."""
    off = ((number, abs(number - round(number))) for number in numbers)
    broken = next((number for number, by in off if by > min(_EXACT * max(abs(number), 1), _NEAR)), None)
    if broken is None:
        return
    first, last = table["from"], table["to"]
    kind = "factor" if "factor" in table else "count"
    fit = "" if kind == "factor" or table.get("scale") == "log" else f"count = {_fitting(last - first, table[kind])}, "
    listed = ", ".join(map(str, list(dict.fromkeys(map(round, numbers)))[:_FEW]))
    given = f"from {first} to {last} by {kind} = {table[kind]}"
    way_out = f"take {fit}a list such as [{listed}], or ends {first}.0 and {last}.0 if the key takes any number"
    raise InputError(f"{place}: {given} has {broken:.4g}, and its ends are whole numbers; {way_out}")


def _fitting(length: int, count: float) -> int:
    """Find the count of evenly spaced whole numbers over a length that is next to the one asked for."""
    counts = (each + 1 for each in range(1, min(length, MOST) + 1) if length % each == 0)
    return min(counts, key=lambda fit: (abs(fit - count), -fit))


def _ends(place: str, table: Mapping[str, Any]) -> tuple[float, float, str]:
    """Read the ends of a range, and the unit of both, empty without."""
    for key in table:
        if key not in _RANGE:
            msg = f"{place}.{key}: unknown key; {did_you_mean(key, _RANGE, 'known are ' + ', '.join(_RANGE))}"
            raise InputError(msg)
    if "to" not in table:
        raise InputError(f"{place}: a range needs its end; add to")
    (first, unit), (last, other) = (_number(f"{place}.{key}", table[key]) for key in ("from", "to"))
    if unit != other:
        raise InputError(f"{place}: {table['from']!r} and {table['to']!r} have different units; write both in one")
    if not first < last:
        raise InputError(f"{place}: from {table['from']!r} is not below to {table['to']!r}; swap them")
    return first, last, unit


def _number(place: str, value: object) -> tuple[float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value, ""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InputError(f'{place}: {show(value)} is no number and no quantity; write it like 4 or "100Gbps"')
    return float(match[1].replace("_", "")), match[2]


def _numbers(place: str, table: Mapping[str, Any], first: float, last: float) -> list[float]:
    """Numbers of a range by its ``step``, ``factor``, or ``count``."""
    given = [key for key in ("step", "factor", "count") if key in table]
    if len(given) != 1 or ("scale" in table and given != ["count"]):
        raise InputError(f"{place}: a range has one of step, factor and count, and with count perhaps a scale")
    (kind,) = given
    each = table[kind]
    least = {"step": 0.0, "factor": 1.0, "count": 1}[kind]
    if isinstance(each, bool) or not isinstance(each, int | float) or not least < each < math.inf:
        raise InputError(f"{place}.{kind}: {show(each)} does not do; give a number above {least:g}")
    if (kind == "factor" or table.get("scale") == "log") and first <= 0:
        raise InputError(f"{place}: from {show(table['from'])} must be above 0 if values grow by a factor")
    ways: dict[str, Callable[[], float]] = {
        "step": lambda: (last - first) / each,
        "factor": lambda: math.log(last / first) / math.log(each),
        "count": lambda: each - 1,
    }
    steps = ways[kind]()
    if steps + 1 > MOST:
        raise InputError(f"{place}: these are more than {MOST:,} values")
    shares = range(math.floor(steps + 1e-9) + 1)
    if kind == "count":
        return [_between(place, table, first, last, share / (each - 1)) for share in shares]
    return [first + share * each if kind == "step" else first * each**share for share in shares]


def _between(place: str, table: Mapping[str, Any], first: float, last: float, share: float) -> float:
    """Give the number at a share of the way from `first` to `last`, 0 to 1."""
    scale = table.get("scale", "linear")
    if scale not in {"linear", "log"}:
        raise InputError(f"{place}.scale: {show(scale)} is not one of linear, log")
    return float(first * (last / first) ** share) if scale == "log" else first + share * (last - first)


def _written(number: float, unit: str, table: Mapping[str, Any]) -> int | float | str:
    """Write a number as the ends of its range are written: whole if both are."""
    if unit:
        return f"{number:.9g}{unit}"
    return round(number) if _is_whole(table) else float(f"{number:.12g}")


def _drawn(sample: Sample) -> list[dict[str, Any]]:
    """Draw points, one in each of ``count`` strata of every key, whose order is random and of each key its own."""
    columns = {key: _column(f"sample.keys.{key}", value, sample, key) for key, value in flat(sample.keys).items()}
    if not columns:
        raise InputError("sample.keys: is empty; give it keys with ranges or lists")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _column(place: str, value: object, sample: Sample, key: str) -> list[Any]:
    random = stream(sample.seed, f"sample {key}")
    order = np.argsort(random.random(sample.count), kind="stable")
    shares = ((order + random.random(sample.count)) / sample.count).tolist()
    if isinstance(value, list | tuple):
        values = _values(place, value)
        return [values[int(share * len(values))] for share in shares]
    if not isinstance(value, dict) or "from" not in value:
        _values(place, value)
    table: dict[str, Any] = dict(value)  # type: ignore[call-overload]
    if given := {"step", "count", "factor"} & table.keys():
        raise InputError(f"{place}.{min(given)}: has no effect, as values are drawn; take it out")
    first, last, unit = _ends(place, table)
    if table.get("scale") == "log" and first <= 0:
        raise InputError(f"{place}: from {show(table['from'])} must be above 0 on a logarithmic scale")
    return [_written(_between(place, table, first, last, share), unit, table) for share in shares]
