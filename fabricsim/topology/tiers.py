"""A network told in a line per tier of switches: how many, ports down and up, oversubscription."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fabricsim.scenario.network import REDUCER
from fabricsim.topology.wires import Wires

Indices = NDArray[np.int64]

_PLURALS = {"leaf": "leaves", "switch": "switches"}
_INSIDE = 2**20  # level of what is inside of switches
_FULL_NAMES = {name: f"{name} switch" for name in ("edge", "aggregation", "core")}


@dataclass(frozen=True)
class Tier:
    """Switches that are equally far from the NICs.

    `name`: what the switches are called, such as ``"leaf"``.
    `switches`: their nodes, shape ``(n,)``.
    `down`, `up`: wires from them towards the NICs and away from them; shape ``(wires,)`` each.
    """

    name: str
    switches: Indices
    down: Indices
    up: Indices


def tiers(wires: Wires, nics: int) -> list[Tier]:
    """Sort the switches of a network by their distance from the NICs, the nearest tier first.

    `nics`: how many of its first nodes are NICs.
    """
    level = _levels(wires, nics)
    here, there = level[wires.source], level[wires.target]
    found = []
    for number in range(1, int(level[level < _INSIDE].max(initial=0)) + 1):
        switches, of = np.flatnonzero(level == number), here == number
        down, up = np.flatnonzero(of & (there < number)), np.flatnonzero(of & (there > number) & (there < _INSIDE))
        found.append(Tier(_name(wires, switches, number), switches, down, up))
    return found


def _levels(wires: Wires, nics: int) -> Indices:
    """Cables from each node to the nearest NIC; -1 if there is no way, shape ``(nodes,)``."""
    level = np.full(len(wires.nodes), -1, np.int64)
    level[:nics] = 0
    level[[node for node, name in enumerate(wires.nodes[:nics]) if REDUCER in name]] = _INSIDE
    level[wires.lowest] = 1  # those that have no hosts are reached from above only
    reached = 0
    while np.any(level == reached):
        beyond = wires.target[level[wires.source] == reached]
        level[beyond[level[beyond] < 0]] = reached + 1
        reached += 1
    return level


def _name(wires: Wires, switches: Indices, number: int) -> str:
    """Find what all switches of a tier are called but for their numbers."""
    stems = {wires.nodes[switch].rstrip("0123456789") for switch in switches.tolist()}
    stem = stems.pop() if len(stems) == 1 else ""
    return _FULL_NAMES.get(stem, stem) if stem.isalpha() else f"tier {number} switch"


def _plural(name: str) -> str:
    first, space, last = name.rpartition(" ")
    return f"{first}{space}{_PLURALS.get(last, f'{last}s')}"


def describe(wires: Wires, nics: int) -> str:
    """Say what a network is, such as ``"8 leaves x 32 down (400 Gb/s) / 32 up (400 Gb/s), 1:1; 32 spines x 8 down"``.

    The ratio is the rate of all wires down over that of all wires up: above 1 a tier is oversubscribed. Rates are those
    of the slower direction of a cable.
    """
    wires = replace(wires, rate=np.minimum(wires.rate, wires.rate[wires.reverse]))
    return "; ".join(_describe_tier(wires, tier) for tier in tiers(wires, nics))


def _describe_tier(wires: Wires, tier: Tier) -> str:
    name = tier.name if len(tier.switches) == 1 else _plural(tier.name)
    down = f"{_ports(wires, tier, tier.down)} down{_rate(wires, tier.down)}"
    said = f"{len(tier.switches)} {name} x {down}"
    if not len(tier.up):
        return said
    share = float(wires.rate[tier.down].sum() / wires.rate[tier.up].sum())
    ratio = f"{share:.3g}:1" if share >= 1 else f"1:{1 / share:.3g}"
    return f"{said} / {_ports(wires, tier, tier.up)} up{_rate(wires, tier.up)}, {ratio}"


def _ports(wires: Wires, tier: Tier, some: Indices) -> str:
    counts = np.bincount(wires.source[some], minlength=len(wires.nodes))[tier.switches]
    return _span(f"{counts.min()}", f"{counts.max()}")


def _rate(wires: Wires, some: Indices) -> str:
    rates = wires.rate[some] * 8 / 1e9
    return f" ({_span(f'{rates.min():.4g}', f'{rates.max():.4g}')} Gb/s)" if len(rates) else ""


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def idle_tiers(wires: Wires, nics: int, used: Indices) -> list[str]:
    """Name the tiers (in the plural) above the lowest to which none of some wires lead.

    `used`: numbers of the wires that carry something, shape ``(n,)``.
    """
    reached = np.zeros(len(wires.nodes), bool)
    reached[wires.target[used]] = True
    return [_plural(tier.name) for tier in tiers(wires, nics)[1:] if not reached[tier.switches].any()]
