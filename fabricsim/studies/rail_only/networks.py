"""Switches, transceivers, cost and power of rail-only networks and of any-to-any Clos of the same radix."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.scenario import library
from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.topology.clos import Clos

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUS = 32_768
CASES = tuple((radix, domain) for radix in (64, 128, 256) for domain in (8, 16, 32, 64, 128, 256))
"""Ports of a switch, and GPUs of a domain; each GPU has an adapter."""
COST_SHARE, POWER_SHARE = 0.75, 0.60
"""Share of switches in cost and power of the any-to-any network of `GPUS` and radix 64 that the published savings
imply: with it all four bounds come out. Derived from what it reproduces, and so no prediction."""


@dataclass(frozen=True)
class Bill:
    """What a network is made of; a cable has a transceiver at each end."""

    switches: int
    radix: int
    cables: int

    @property
    def transceivers(self) -> int:
        """Two for each cable."""
        return 2 * self.cables


@dataclass(frozen=True)
class Prices:
    """Cost in US dollars and power in watts of a switch's port and of a transceiver with its half of the fibre."""

    port_cost: float
    port_power: float
    transceiver_cost: float
    transceiver_power: float

    def cost(self, parts: Bill) -> float:
        """All switches and transceivers, US dollars."""
        return self.port_cost * parts.radix * parts.switches + self.transceiver_cost * parts.transceivers

    def power(self, parts: Bill) -> float:
        """Of all switches and transceivers, watts."""
        return self.port_power * parts.radix * parts.switches + self.transceiver_power * parts.transceivers


def prices(name: str = "list-400g") -> Prices:
    """Read a price list of the library."""
    table = tomllib.loads(library.path("prices", name).read_text(encoding="utf-8"))
    ports = table["switch"]["ports"]
    switch, transceiver = table["switch"], table["transceiver"]
    return Prices(switch["cost"] / ports, switch["power"] / ports, transceiver["cost"], transceiver["power"])


def rail_only(gpus: int, radix: int, domain: int) -> Bill:
    """Count a rail-only network; rails that are small enough share a switch."""
    ends = Ends(gpus // domain, domain)
    shared = max(1, min(domain, radix // ends.hosts))
    size = fabric_of({"topology": "rail-only", "radix": radix, "rails_per_switch": shared}).size(ends)
    assert size is not None  # noqa: S101  of generators alone
    return Bill(size.switches, radix, size.cables)


def clos(gpus: int, radix: int) -> Bill:
    """Count an any-to-any Clos; whether it is wired by rails does not matter."""
    half = radix // 2
    size = Clos(-(-gpus // half), half, radix).size(gpus, half)
    return Bill(size.switches, radix, size.cables)


def derived(ports: int, radix: int) -> tuple[int, int]:
    """Switches and transceivers of a non-blocking Clos by the formulas that the published savings imply."""
    tiers = next(tiers for tiers in range(1, 8) if radix**tiers / 2 ** (tiers - 1) >= ports)
    return (2 * tiers - 1) * ports // radix, 2 * tiers * ports


def derived_rail_only(gpus: int, radix: int, domain: int) -> tuple[int, int]:
    """Add up the same over the rails."""
    ports = gpus // domain
    tiers = next(tiers for tiers in range(1, 8) if radix**tiers / 2 ** (tiers - 1) >= ports)
    return (2 * tiers - 1) * gpus // radix, 2 * tiers * gpus


def savings() -> Iterator[tuple[int, int, float, float, float, float]]:
    """Give radix, domain, and the share of cost and of power saved: by implied shares, and by the price list."""
    listed = prices()
    for radix, domain in CASES:
        ours, theirs = rail_only(GPUS, radix, domain), clos(GPUS, radix)
        fewer = 1 - ours.switches / theirs.switches, 1 - ours.transceivers / theirs.transceivers
        cost, power = (share * fewer[0] + (1 - share) * fewer[1] for share in (COST_SHARE, POWER_SHARE))
        listed_cost, listed_power = (1 - of(ours) / of(theirs) for of in (listed.cost, listed.power))
        yield radix, domain, cost, power, listed_cost, listed_power
