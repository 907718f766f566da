"""EQDS: Olteanu et al., "An edge-queued datagram service for all datacenter traffic", NSDI 2022, as csg-htsim has it.

Its kernels are those of NDP, whose `ahead` says that receivers grant credits before packets come.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from fabricsim.transports.laws.ndp import Ndp, acknowledge, lose, pull, ride, sent, start, time_out

__all__ = ["LAW", "acknowledge", "lose", "pull", "ride", "sent", "start", "time_out"]


class Eqds(Ndp):
    """EQDS (Olteanu et al., NSDI 2022), as csg-htsim has it.

    As `Ndp`, but for this: receivers grant credits at their pace without waiting for packets, up to ``initial_window``
    more than came; what is left of a sender's first window at the first answer is not sent.
    """

    initial_window: Annotated[float, Field(ge=1, le=1e6)] = 50.0

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Have receivers pull ahead."""
        return {**Ndp.columns(self, line_rate, packet), "ahead": self.initial_window}


LAW = Eqds
