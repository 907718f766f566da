"""Load-balancing rules: what all have, and which there are."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fabricsim.extensions import Registry
from fabricsim.scenario.base import Spec
from fabricsim.scenario.congestion import Columns, Interval

__all__ = ["RULES", "Entropies", "Interval", "LoadBalancing"]

Entropies = Annotated[int, Field(ge=2, le=32_767)]
"""Numbers that a sender draws from."""


class LoadBalancing(Spec):
    """A rule by which a transport's packets spread over equally short ways: its keys, and what it keeps.

    Its module has one or both of two kernels. ``renew(flow, law, now)`` is asked at the sender before each packet
    whether to draw a new entropy, which switches hash together with the flow. ``weigh(law, place, drain)`` is asked at
    switches for each link that leads on, and the link of the least weight is taken.
    """

    parameters: ClassVar[Columns] = {}
    """As of `fabricsim.scenario.congestion.Law`; so is the rest."""
    state: ClassVar[Columns] = {}
    overtaking: ClassVar[bool] = True
    """Whether packets of a flow overtake one another."""

    one_path: ClassVar[bool] = False
    """Whether all packets of a flow take one way, without any kernel."""

    kind: str

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Work out columns as a law does."""
        del line_rate, packet
        return {}


RULES: Registry[type[LoadBalancing]] = Registry(
    "load_balancing", "fabricsim.transports.balancing", "BALANCING", LoadBalancing
)
"""All load-balancing rules: a subclass of `LoadBalancing` each."""
