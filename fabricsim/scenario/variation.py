"""How GPUs and hosts differ from what their presets say: by given factors, or by ones drawn from the seed."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from fabricsim.scenario.suggest import did_you_mean, show

Floats = NDArray[np.float64]

DISTRIBUTIONS = ("lognormal", "uniform", "exponential")
"""Of the factor by which something takes longer, with one parameter ``x``.

``exp(x z)`` with a standard normal ``z``; even between ``1 - x`` and ``1 + x``; ``1 + x e`` with a standard
exponential ``e``.
"""
LEAST, MOST = 0.001, 1000.0
"""Factors beyond which a slip of the pen, such as per cent, is likelier than a wish."""
_WIDEST = {"lognormal": 2.0, "uniform": 0.99, "exponential": 10.0}
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?")
_HALF = 0.5


class Range(NamedTuple):
    """Every ``step``-th number from ``first`` to ``last``."""

    first: int
    last: int
    step: int = 1

    @property
    def numbers(self) -> range:
        """The numbers."""
        return range(self.first, self.last + 1, self.step)


class Drawn(NamedTuple):
    """A distribution of `DISTRIBUTIONS`, and its parameter."""

    name: str
    width: float

    def factors(self, uniform: Floats) -> Floats:
        """Turn uniform numbers in [0, 1) into factors of time, by the inverse of the cumulative distribution."""
        if self.name == "uniform":
            return 1 + self.width * (2 * uniform - 1)
        if self.name == "exponential":
            return 1 - self.width * np.log1p(-uniform)
        return np.exp(self.width * _normal(uniform))

    def __str__(self) -> str:
        """Such as ``lognormal 0.02``."""
        return f"{self.name} {self.width:g}"


class Speeds(NamedTuple):
    """Speeds of GPUs or hosts, relative to their presets.

    `given`: ranges and their speed; later ones count. None is 1.
    `each`: one after the other, in place of these.
    `drawn`: in place of both: the speed is one over a factor of time.
    """

    given: tuple[tuple[Range, float], ...] = ()
    each: tuple[float, ...] = ()
    drawn: Drawn | None = None

    @property
    def last(self) -> int:
        """Highest number that is named; -1 if none is."""
        return max([len(self.each) - 1, *(place.last for place, _ in self.given if place.last < _EVERY)])

    def of(self, count: int, seed: int, name: str) -> Floats:
        """Give the speed of each of `count` ranks or hosts, shape ``(count,)``; `name` is that of the random stream."""
        if self.drawn is not None:
            return 1 / self.drawn.factors(stream(seed, name).random(count))
        speeds = np.ones(count)
        speeds[: len(self.each)] = self.each
        for place, speed in self.given:
            speeds[place.first : place.last + 1 : place.step] = speed
        return speeds


_EVERY = 2**40


def stream(seed: int, name: str) -> np.random.Generator:
    """Give the random stream of one consumer; streams of different names are independent.

    Only uniform doubles may be taken from it: how NumPy makes other variates of them differs between its versions.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *name.encode()])))


def _normal(uniform: Floats) -> Floats:
    """Invert the normal distribution to 4.5e-4 (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23)."""
    tail = np.maximum(np.minimum(uniform, 1 - uniform), 2.0**-54)
    t = np.sqrt(-2 * np.log(tail))
    above = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return cast("Floats", np.where(uniform < _HALF, -above, above))


def ranges(text: str) -> tuple[Range, ...]:
    """Read numbers of ranks or hosts such as ``"3"``, ``"0-7"``, ``"0-63/8"`` (every eighth) or ``"1,5-7"``.

    Raises ValueError if it is none of these; the message ends with the way out.
    """
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or (match[3] and not int(match[3])) or (match[2] and int(match[2]) < int(match[1])):
            msg = f"{show(text)} names no ranks or hosts; write them as 3, 0-7, 0-63/8 (every eighth) or 1,5-7"
            raise ValueError(msg)
        found.append(Range(int(match[1]), int(match[2] or match[1]), int(match[3] or 1)))
    return tuple(found)


def _factor(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise ValueError(f"{show(value)} is no speed; write a number such as 0.8, from {LEAST:g} to {MOST:g}")
    return float(value)


def _drawn(table: Mapping[str, object]) -> Drawn:
    """Read a table such as ``{ lognormal = 0.02 }``."""
    if len(table) != 1:
        raise ValueError(f"{show(dict(table))} is not one distribution; write it as {{ lognormal = 0.02 }}")
    (name, width), *_ = table.items()
    if name not in DISTRIBUTIONS:
        raise ValueError(f"{show(name)} is no distribution; {did_you_mean(str(name), DISTRIBUTIONS)}")
    most = _WIDEST[name]
    if isinstance(width, bool) or not isinstance(width, int | float) or not 0 < width <= most or math.isnan(width):
        raise ValueError(f"{name} = {show(width)} is out of range; write a number above 0 and up to {most:g}")
    return Drawn(name, float(width))


def _speeds(value: object) -> object:
    if isinstance(value, Speeds):
        return value
    if isinstance(value, list | tuple):
        return Speeds(each=tuple(map(_factor, value)))
    if not isinstance(value, dict):
        return Speeds(((Range(0, _EVERY), _factor(value)),))
    if set(value) & set(DISTRIBUTIONS) or not any(str(key)[:1].isdigit() for key in value):
        return Speeds(drawn=_drawn(value))
    pairs: Iterable[tuple[str, object]] = value.items()
    return Speeds(tuple((place, _factor(speed)) for text, speed in pairs for place in ranges(text)))


def _jitter(value: object) -> object:
    if isinstance(value, Drawn):
        return value
    if not isinstance(value, dict):
        msg = f"{show(value)} is no distribution; write it as {{ lognormal = 0.02 }}"
        raise ValueError(msg)  # noqa: TRY004  pydantic makes a mistake of a ValueError only
    return _drawn(value)


Speed = Annotated[Speeds, PlainValidator(_speeds)]
"""A number for all, a list with one for each, a table from ranges to numbers, or one distribution."""
Jitter = Annotated[Drawn, PlainValidator(_jitter)]
"""One distribution, such as ``{ lognormal = 0.02 }``."""


def _numbers(value: object) -> tuple[Range, ...]:
    if isinstance(value, str):
        return ranges(value)
    if isinstance(value, tuple | list) and all(isinstance(each, Range) for each in value):
        return tuple(value)
    raise ValueError(f'{show(value)} is no text; write it like "0-7" or "0,2,8-15"')


Numbers = Annotated[tuple[Range, ...], PlainValidator(_numbers)]
"""Ranks or hosts, such as ``"8-15"``."""
