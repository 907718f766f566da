"""Quantities with units, as users write them and as the code keeps them.

Inside fabricsim a quantity is a plain number in one base unit: bytes (``int``), seconds times
10^12 (integer picoseconds), bytes per second, seconds per byte, FLOP/s, metres (all ``float``).
``GB`` is 10^9 bytes and ``GiB`` is 2^30; ``Gbps`` counts bits and ``GBps`` bytes.

Each kind of quantity has a range that no real one leaves. It catches slips of the pen before they
become times beyond the 92 days at which the simulated clock ends.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

PS_PER_S = 1_000_000_000_000
PS_PER_US = 1_000_000
PS_PER_NS = 1_000

_FEW = 5  # units that are worth listing
_SI = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIME_PS = {"s": PS_PER_S, "ms": 10**9, "us": 10**6, "µs": 10**6, "ns": 10**3, "ps": 1}
_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*$")


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity.

    `name`: what it is called.
    `factors`: its units, each as a factor to the base unit.
    `example`: how one is written.
    `most`, `least`: the largest and the smallest that is accepted, as written.
    `integer`: whether it is kept as a whole number of base units.
    """

    name: str
    factors: dict[str, Decimal]
    example: str
    most: str
    least: str
    integer: bool = False


def _prefixed(unit: str, scale: Decimal | int = 1, *, binary: bool = False) -> dict[str, Decimal]:
    prefixes = {**_SI, **(_BINARY if binary else {})}
    return {f"{prefix}{unit}": Decimal(factor) * scale for prefix, factor in prefixes.items()}


BYTES = Dimension("size", _prefixed("B", binary=True), "25MiB", most="1PiB", least="0B", integer=True)
DURATION = Dimension(
    "time", {unit: Decimal(ps) for unit, ps in _TIME_PS.items()}, "5us", most="3600s", least="0s", integer=True
)
PERIOD = Dimension(
    "time",
    {"s": Decimal(1), "min": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400)},
    "90min",
    most="1e9h",
    least="0s",
)
RATE = Dimension(
    "rate",
    {
        **_prefixed("bps", Decimal(1) / 8),
        **_prefixed("bit/s", Decimal(1) / 8),
        **_prefixed("Bps", binary=True),
        **_prefixed("B/s", binary=True),
    },
    "100Gbps",
    most="1PBps",
    least="1Mbps",
)
TIME_PER_BYTE = Dimension(
    "time per byte",
    {f"{unit}/B": Decimal(ps) / PS_PER_S for unit, ps in _TIME_PS.items()},
    "0.2ns/B",
    most="8us/B",  # as slow as the slowest rate
    least="0ns/B",
)
FLOPS = Dimension(
    "arithmetic rate",
    {**_prefixed("FLOPS"), **_prefixed("flops"), **_prefixed("FLOP/s")},
    "312TFLOPS",
    most="1000PFLOPS",
    least="1GFLOPS",
)
LENGTH = Dimension(
    "length",
    {"m": Decimal(1), "km": Decimal(1000), "cm": Decimal("0.01")},
    "5m",
    most="20000km",  # half way round the Earth
    least="0m",
)


def parse(text: object, dimension: Dimension) -> int | float:
    """Read a quantity such as ``"100Gbps"``.

    `text`: what the user wrote. Only strings carry a unit; a bare number is refused.
    `dimension`: what is wanted; it decides the base unit of the answer.
    Returns: the quantity in the base unit of `dimension`, never negative.
    Raises ValueError if the unit is missing, unknown or of another dimension, or the number is outside the range of
        `dimension`.
    """
    value = _amount(text, dimension)
    if value < 0:
        raise ValueError(f"{text!r} is negative; a {dimension.name} is at least {dimension.least}")
    if value < _amount(dimension.least, dimension):
        raise ValueError(f"{text!r} is too small; a {dimension.name} is at least {dimension.least}")
    if value > _amount(dimension.most, dimension):
        raise ValueError(f"{text!r} is too large; a {dimension.name} is at most {dimension.most}")
    return round(value) if dimension.integer else float(value)


def _amount(text: object, dimension: Dimension) -> Decimal:
    """Multiply the number with its unit's factor."""
    example = f'write it like "{dimension.example}"'
    if not isinstance(text, str):
        msg = f"{text!r} has no unit; a {dimension.name} needs one, {example}"
        raise ValueError(msg)  # noqa: TRY004  pydantic turns only ValueError into a report
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit; {example}")
    unit = match[2] or ""
    if unit not in dimension.factors:
        listed = f" (units are {', '.join(dimension.factors)})" if len(dimension.factors) <= _FEW else ""
        what = f"unit {unit!r} is not a {dimension.name}{listed}" if unit else f"{text!r} has no unit"
        raise ValueError(f"{what}; {example}")
    try:
        return Decimal(match[1].replace("_", "")) * dimension.factors[unit]
    except ArithmeticError as error:  # an exponent of many digits
        raise ValueError(f"{text!r} is too large or too small; {example}") from error


def seconds(ps: int | float) -> float:
    """Picoseconds to seconds."""
    return ps / PS_PER_S


def human_bytes(count: float) -> str:
    """Bytes for people, in powers of 1024: ``human_bytes(1048576) == "1 MiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:  # noqa: PLR2004  the binary step itself
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def human_count(count: int, things: str) -> str:
    """Count things, which are named in the plural: ``human_count(1, "copies") == "1 copy"``."""
    one = f"{things[:-3]}y" if things.endswith("ies") else things.removesuffix("es" if things.endswith("ches") else "s")
    return f"{count:,} {one if count == 1 else things}"


def human_percent(share: float, digits: int = 1, *, signed: bool = False) -> str:
    """Write a share for reading, such as ``"12.3 %"``."""
    value = round(100 * share, digits) + 0.0  # which has no zero below zero
    return f"{value:{'+' if signed else ''}.{digits}f} %"


def human_seconds(value: float) -> str:
    """Seconds for people: ``human_seconds(0.0123) == "12.3 ms"``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns" if value else "0 s"
