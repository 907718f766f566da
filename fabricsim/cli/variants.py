"""What `compare` runs: scenarios times fabrics, transports, engines and settings of several values."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fabricsim.errors import InputError

MOST = 256
"""Runs of one comparison: a table of more tells nobody anything."""
_OPENING, _CLOSING = "[{(", "]})"


class Variant(NamedTuple):
    """A scenario as it is compared: what it is called by, value by value, and the settings that make it."""

    scenario: str
    labels: tuple[str, ...]
    settings: tuple[str, ...]


class Axis(NamedTuple):
    """Something that variants differ in: its name, and of each value what it is called and the settings for it."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


def split(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        depth += (letter in _OPENING) - (letter in _CLOSING) if not quote else 0
        if letter in "\"'" and quote in {"", letter}:
            quote = "" if quote else letter
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def axes(
    fabrics: Sequence[str], transports: Sequence[str], engines: Sequence[str], settings: Iterable[str]
) -> tuple[list[Axis], list[str]]:
    """Sort what was given into axes of several values, and settings that all variants have."""
    given: dict[str, list[tuple[str, tuple[str, ...]]]] = {
        "fabric": [(name, tuple(fabric_settings(name))) for name in fabrics],
        "transport": [(name, (f"transport={name}",)) for name in transports],
        "engine": [(name, (f"engine={name}",)) for name in engines],
    }
    found = [Axis(name, tuple(values)) for name, values in given.items() if values]
    fixed = []
    for text in settings:
        key, equals, value = text.partition("=")
        parts = split(value)
        values = list(dict.fromkeys(parts))
        if len(parts) > 1 and len(values) == 1 and equals:
            raise InputError(f"--set {text}: names one value only, {len(parts)} times; give different ones")
        if len(parts) > len(values) > 1 and equals:
            twice = next(each for each in values if parts.count(each) > 1)
            raise InputError(f"--set {text}: has {twice} more than once; keep one of them")
        if len(values) == 1 or not equals:
            fixed.append(text)
        else:
            found.append(Axis(key.strip(), tuple((each, (f"{key}={each}",)) for each in values)))
    return found, fixed


def fabric_settings(name: str) -> list[str]:
    """Say what makes a scenario's fabric that of a preset, a file, another scenario, or a topology without keys."""
    from fabricsim import extensions  # noqa: PLC0415  --help must not pay for it
    from fabricsim.scenario import library  # noqa: PLC0415  as above
    from fabricsim.scenario.fabric import TOPOLOGIES  # noqa: PLC0415  as above
    from fabricsim.scenario.load import load  # noqa: PLC0415  as above
    from fabricsim.scenario.suggest import did_you_mean  # noqa: PLC0415  as above
    from fabricsim.scenario.toml_text import settings  # noqa: PLC0415  as above

    presets, scenarios, known = library.names("fabrics"), library.names("scenarios"), list(TOPOLOGIES.all())
    if name in presets or name.endswith(".toml"):
        return [f"fabric={name}"]
    if name in scenarios:
        return settings({"fabric": load(name, with_job=False).resolved["fabric"]})
    if name in known or extensions.is_file(name):
        return [f'fabric={{topology="{name}"}}']
    hint = did_you_mean(name, [*presets, *known, *scenarios], f"there are {', '.join(presets)}")
    raise InputError(f"--fabric {name}: there is no fabric, topology or scenario of that name; {hint}")


def variants(scenarios: Sequence[str], found: Sequence[Axis], fixed: Sequence[str]) -> tuple[str, list[Variant]]:
    """Combine scenarios and all values; the last axis changes first.

    Returns: what variants differ in, for people, and the variants.
    Raises InputError if there are too few or too many.
    """
    several = [axis for axis in found if len(axis.values) > 1]
    named = ["scenario"] if len(scenarios) > 1 else []
    every = [
        Variant(
            scenario,
            (
                *([Path(scenario).stem] if named else []),
                *(value[0] for axis, value in zip(found, values, strict=True) if axis in several or len(found) == 1),
            ),
            (*fixed, *(text for value in values for text in value[1])),
        )
        for scenario in scenarios
        for values in itertools.product(*(axis.values for axis in found))
    ]
    if len(every) > MOST:
        raise InputError(f"these are {len(every)} runs; compare takes {MOST} at most: give fewer values")
    if len(every) == 1 and not any(axis.name != "engine" for axis in found):
        msg = "there is nothing to compare; give --transport A,B, --fabric A,B, --engine flow,packet, "
        msg += "--set key=a,b or several scenarios"
        msg += f" (--set {fixed[-1]} gives one value)" if fixed else ""
        raise InputError(msg)
    return " and ".join([*named, *(axis.name for axis in several)]) or found[0].name, every


def is_scenario(name: str) -> bool:
    """Whether an argument names a scenario, not a trace."""
    from fabricsim.scenario import library  # noqa: PLC0415  --help must not pay for it

    return name.endswith(".toml") or (name in library.names("scenarios") and not Path(name).exists())
