"""Switches, transceivers, cost and power of rail-only networks and of any-to-any Clos of the same radix."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from fabricsim.scenario.fabric import fabric_of
from fabricsim.scenario.network import Ends
from fabricsim.scenario.prices import PriceList, read_prices
from fabricsim.topology.bill import Bill, Part, make_bill
from fabricsim.topology.clos import Clos

GPUS = 32_768
CASES = tuple((radix, domain) for radix in (64, 128, 256) for domain in (8, 16, 32, 64, 128, 256))
"""Ports of a switch, and GPUs of a domain; each GPU has an adapter."""
IMPLIED, LISTED = "rail-only-implied", "list-400g"
"""Price lists of the library: what the published savings imply, all four of which come out by it; and found prices."""
_GBPS = 400.0


@dataclass(frozen=True)
class Counts:
    """What a network is made of; a cable has a transceiver at each end."""

    switches: int
    radix: int
    cables: int

    @property
    def transceivers(self) -> int:
        """Two for each cable."""
        return 2 * self.cables

    def bill(self, prices: str, gpus: int) -> Bill:
        """Price it by a list of the library; adapters are part of the hosts, and the length of cables is not known."""
        parts = (
            Part("switch", "network", self.switches, _GBPS, self.radix),
            Part("transceiver", "network", self.transceivers, _GBPS, medium="SR"),
            Part("cable", "network", self.cables, _GBPS, medium="SR"),
        )
        return make_bill(parts, _listed(prices), gpus)


@cache
def _listed(prices: str) -> PriceList:
    return read_prices(prices)


def rail_only(gpus: int, radix: int, domain: int) -> Counts:
    """Count a rail-only network; rails that are small enough share a switch."""
    ends = Ends(gpus // domain, domain)
    shared = max(1, min(domain, radix // ends.hosts))
    size = fabric_of({"topology": "rail-only", "radix": radix, "rails_per_switch": shared}).size(ends)
    assert size is not None  # noqa: S101  of generators alone
    return Counts(size.switches, radix, size.cables)


def clos(gpus: int, radix: int) -> Counts:
    """Count an any-to-any Clos; whether it is wired by rails does not matter."""
    half = radix // 2
    size = Clos(-(-gpus // half), half, radix).size(gpus, half)
    return Counts(size.switches, radix, size.cables)


def derived(ports: int, radix: int) -> tuple[int, int]:
    """Switches and transceivers of a non-blocking Clos by the formulas that the published savings imply."""
    tiers = next(tiers for tiers in range(1, 8) if radix**tiers / 2 ** (tiers - 1) >= ports)
    return (2 * tiers - 1) * ports // radix, 2 * tiers * ports


def derived_rail_only(gpus: int, radix: int, domain: int) -> tuple[int, int]:
    """Add up the same over the rails."""
    ports = gpus // domain
    tiers = next(tiers for tiers in range(1, 8) if radix**tiers / 2 ** (tiers - 1) >= ports)
    return (2 * tiers - 1) * gpus // radix, 2 * tiers * gpus


def savings() -> Iterator[tuple[float, ...]]:
    """Give radix, domain, and the share of cost and of power saved: by implied prices, and by listed ones."""
    for radix, domain in CASES:
        networks = rail_only(GPUS, radix, domain), clos(GPUS, radix)
        saved = []
        for prices in (IMPLIED, LISTED):
            ours, theirs = (network.bill(prices, GPUS) for network in networks)
            saved += [1 - (getattr(ours, of) or 0.0) / (getattr(theirs, of) or 0.0) for of in ("cost", "power")]
        yield radix, domain, *saved
