"""Bills of materials: what a network consists of, priced from a list."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fabricsim.scenario.prices import Price, PriceList
from fabricsim.topology.inventory import Stock

_TO_BYTES = 1e9 / 8  # from Gb/s


@dataclass(frozen=True)
class Part:
    """So many alike pieces of a network.

    `kind`: ``switch``, ``transceiver``, ``cable`` or ``nic``. `name`: where they are. `gbps`: of their fastest port.
    `ports`: that a switch needs. `medium`, `metres`: of transceivers and cables.
    """

    kind: str
    name: str
    count: int
    gbps: float
    ports: int = 0
    medium: str = ""
    metres: float = 0.0

    def __str__(self) -> str:
        """Say what is to be bought."""
        if self.kind == "switch":
            return f"switch of {self.ports} x {self.gbps:.4g} Gb/s"
        length = f" of {self.metres:.4g} m" if self.kind == "cable" else ""
        return f"{self.kind}{f' {self.medium}' if self.medium else ''} of {self.gbps:.4g} Gb/s{length}"


class BillLine(NamedTuple):
    """A part and its price: cost, US dollars, and power, watts, of each; None if the list has no such piece."""

    part: Part
    cost: float | None
    power: float | None
    price: Price | None

    def told(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        count, price = self.part.count, self.price
        return {
            **asdict(self.part),
            "cost_each_usd": self.cost,
            "power_each_w": self.power,
            "cost_usd": None if self.cost is None else count * self.cost,
            "power_w": None if self.power is None else count * self.power,
            **{key: price and getattr(price, key) for key in ("source", "date", "certainty")},
        }


@dataclass(frozen=True)
class Bill:
    """All lines, by a list of that name, for so many GPUs."""

    prices: str
    gpus: int
    lines: tuple[BillLine, ...]

    @property
    def unpriced(self) -> list[Part]:
        """Parts that the list has no price of."""
        return [line.part for line in self.lines if line.cost is None]

    @property
    def cost(self) -> float | None:
        """US dollars; None if a price is missing."""
        return None if self.unpriced else sum(line.part.count * (line.cost or 0) for line in self.lines)

    @property
    def power(self) -> float | None:
        """Watts; None if a price is missing."""
        return None if self.unpriced else sum(line.part.count * (line.power or 0) for line in self.lines)

    def told(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        cost, power = self.cost, self.power
        return {
            "prices": self.prices,
            "gpus": self.gpus,
            "cost_usd": cost,
            "power_w": power,
            "cost_per_gpu_usd": None if cost is None else cost / self.gpus,
            "power_per_gpu_w": None if power is None else power / self.gpus,
            "unpriced": [f"{part.count:,} x {part}" for part in self.unpriced],
            "lines": [line.told() for line in self.lines],
        }


def parts_of(stock: Stock, radix: int | None = None) -> Iterator[Part]:
    """List what is bought for a network; `radix`: ports of its switches, if they are not just those in use."""
    for kind in stock.switches:
        yield Part("switch", kind["name"], kind["count"], kind["gbps"], max(radix or 0, kind["most_ports"]))
    for kind in stock.cables:
        rest = kind["gbps"], 0, kind["medium"], kind["metres"]
        if kind["medium"] != "copper":
            yield Part("transceiver", kind["between"], 2 * kind["count"], *rest)
        yield Part("cable", kind["between"], kind["count"], *rest)
    for kind in stock.adapters:
        yield Part("nic", "hosts", kind["count"], kind["gbps"])


def make_bill(parts: Iterable[Part], prices: PriceList, gpus: int) -> Bill:
    """Price all parts; those of which the list has no price have none."""
    return Bill(prices.name, gpus, tuple(_priced(part, prices) for part in parts if part.count))


def _priced(part: Part, prices: PriceList) -> BillLine:
    rate, times, more = part.gbps * _TO_BYTES, 1.0, 0.0
    price: Price | None
    if part.kind == "switch":
        price, times = prices.switch_of(part.ports, rate) or (None, 1.0)
    elif part.kind == "cable":
        price = cable = prices.cable_of(part.medium, rate, part.metres)
        more = cable.cost_per_metre * part.metres if cable else 0.0
    else:
        price = prices.nic_of(rate) if part.kind == "nic" else prices.transceiver_of(part.medium, rate)
    if price is None:
        return BillLine(part, None, None, None)
    return BillLine(part, times * price.cost + more, times * price.power, price)
