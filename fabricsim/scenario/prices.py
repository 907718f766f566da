"""Price lists: what a user may write of what switches, transceivers, cables and adapters cost and draw."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from fabricsim.errors import InputError
from fabricsim.scenario import library
from fabricsim.scenario.base import Spec
from fabricsim.scenario.model import Positive
from fabricsim.scenario.quantity import Length, Rate
from fabricsim.scenario.source import parse, read_text
from fabricsim.scenario.suggest import did_you_mean, show
from fabricsim.scenario.validated import validated

Medium = Literal["copper", "SR", "DR", "FR", "LR", "coherent"]


def _checked_date(text: str) -> str:
    if not re.fullmatch(r"\d{4}(-\d\d){0,2}", text, re.ASCII):
        raise ValueError(f"{show(text)} is no date; write it like 2024-08")
    return text


_Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Price(Spec):
    """What a piece costs, US dollars, and draws, watts; who says so, as of when, and how certain that is."""

    cost: _Amount
    power: _Amount
    source: Annotated[str, Field(min_length=1)]
    date: Annotated[str, AfterValidator(_checked_date)]
    certainty: Literal["E", "T", "U"]


P = TypeVar("P", bound=Price)


class SwitchPrice(Price):
    """A switch with so many ports; if ``scales_to`` is given, others with up to so many cost as much per port."""

    ports: Positive
    rate: Rate
    scales_to: Positive | None = None


class TransceiverPrice(Price):
    """A transceiver for some media."""

    rate: Rate
    media: Annotated[list[Medium], Field(min_length=1)]


class CablePrice(Price):
    """A cable of some media of up to ``length``, without transceivers; of any rate if none is given."""

    rate: Rate | None = None
    media: Annotated[list[Medium], Field(min_length=1)]
    length: Length | None = None
    cost_per_metre: _Amount = 0.0


class NicPrice(Price):
    """An adapter; of any rate if none is given."""

    rate: Rate | None = None


class PriceList(Spec):
    """All prices of a list. Of several that fit, the cheapest counts."""

    name: str
    switch: list[SwitchPrice] = Field(default_factory=list)
    transceiver: list[TransceiverPrice] = Field(default_factory=list)
    cable: list[CablePrice] = Field(default_factory=list)
    nic: list[NicPrice] = Field(default_factory=list)

    def switch_of(self, ports: int, rate: float) -> tuple[SwitchPrice, float] | None:
        """Find a switch with at least so many ports, or else one that scales to them; with how many of it that is."""
        own = [price for price in self.switch if _is(price.rate, rate)]
        if (whole := cheapest([price for price in own if price.ports >= ports])) is not None:
            return whole, 1.0
        scaled = cheapest([price for price in own if (price.scales_to or 0) >= ports])
        return None if scaled is None else (scaled, ports / scaled.ports)

    def transceiver_of(self, medium: str, rate: float) -> TransceiverPrice | None:
        """Find a transceiver."""
        return cheapest([one for one in self.transceiver if medium in one.media and _is(one.rate, rate)])

    def cable_of(self, medium: str, rate: float, metres: float) -> CablePrice | None:
        """Find a cable that is long enough."""
        return cheapest(
            [
                one
                for one in self.cable
                if medium in one.media and _is(one.rate, rate) and (one.length is None or one.length >= metres)
            ]
        )

    def nic_of(self, rate: float) -> NicPrice | None:
        """Find an adapter."""
        return cheapest([one for one in self.nic if _is(one.rate, rate)])


def cheapest(fitting: Sequence[P]) -> P | None:
    """Take the cheapest, of equals the one that draws least."""
    return min(fitting, key=lambda price: (price.cost, price.power), default=None)


def _is(listed: float | None, rate: float) -> bool:
    return listed is None or math.isclose(listed, rate, rel_tol=1e-6)


def read_prices(given: str) -> PriceList:
    """Read a price list, one of the library by its name or a file.

    Raises InputError if there is none, ScenarioError if it has mistakes.
    """
    path = Path(given)
    if path.is_dir() and given not in library.names("prices"):
        raise InputError(f"prices {given}: is a folder; name the TOML file in it")
    if not path.is_file():
        if given not in library.names("prices"):
            known = library.names("prices")
            hint = did_you_mean(given, known, f"name a TOML file, or one of {', '.join(known)}")
            raise InputError(f"prices {given}: there is no such file or list; {hint}")
        path = library.path("prices", given)
    return validated(parse(read_text(path), str(path)), PriceList, "the price list")
