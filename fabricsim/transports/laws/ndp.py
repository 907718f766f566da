"""NDP, whose receivers pull.

Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance",
SIGCOMM 2017. EQDS has the same kernels (`fabricsim.transports.laws.eqds`). A sender starts with a window of packets,
and sends another one for each PULL. The window is what it may still send, packets; ``epoch`` is how many pulls it has
heard of. PULLs carry how many there were, so that one that is lost or overtaken is made up for by the next.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fabricsim.jit.compile import kernel
from fabricsim.scenario.congestion import Factor, Law
from fabricsim.units import PS_PER_S


@kernel
def start(flow, law):
    """Let a first window go; its pulls bring as many packets again, so that no more than it is ever on its way."""
    flow.window = law.initial_window
    flow.threshold = law.initial_window if law.ahead > 0 else 0.0
    flow.rate = math.inf
    flow.epoch = 0


class Ndp(Law):
    """NDP (Handley et al., SIGCOMM 2017).

    A sender starts with ``initial_window`` packets; after them the receiver pulls one for each that came, whole or
    trimmed, from all its senders in turn, at the share ``pull_rate`` of its link's rate.
    """

    state: ClassVar = {"epoch": np.int64}  # pulls heard of
    pulled = True

    initial_window: Annotated[float, Field(ge=1, le=1e6)] = 15.0
    pull_rate: Factor = 0.99

    def columns(self, line_rate: float, packet: int) -> Mapping[str, float | None]:
        """Space the pulls of a receiver."""
        return {"pull_interval": PS_PER_S * packet / (line_rate * self.pull_rate)}


LAW = Ndp


@kernel
def sent(flow, law, wire):
    """Take the packet that was sent off what may be sent."""
    flow.window -= 1.0
    flow.threshold = max(flow.threshold - 1.0, 0.0)


@kernel
def pull(flow, law, number):
    """Hear that the receiver has sent `number` pulls so far."""
    if number > flow.epoch:
        flow.window = min(flow.window + (number - flow.epoch), law.initial_window)
        flow.epoch = number


@kernel
def ride(flow, law):
    """Hear of a pull that came with an ACK or NACK, which PULLs do not count."""
    flow.window = min(flow.window + 1.0, law.initial_window)


@kernel
def time_out(flow, law, now):
    """Let a first window go again: of what was lost without a trace no pull will come."""
    flow.window = law.initial_window


@kernel
def acknowledge(flow, law, now, packets, marked, rtt):
    """Keep the window, which follows pulls; with EQDS what is left of the first one is not sent any more."""
    flow.window -= flow.threshold
    flow.threshold = 0.0


@kernel
def lose(flow, law, now):
    """Do as on an acknowledgement: the receiver pulls for a trimmed packet, too."""
    flow.window -= flow.threshold
    flow.threshold = 0.0
