"""Flowlet switching: Kandula et al., "Dynamic Load Balancing Without Packet Reordering", CCR 37(2), 2007.

The sender draws, not the switch: packets of one flowlet have one entropy.
"""

from typing import ClassVar

import numpy as np

from fabricsim.jit.compile import kernel
from fabricsim.records.program import NEVER
from fabricsim.scenario.balancing import Entropies, Interval, LoadBalancing


class Flowlet(LoadBalancing):
    """The flow draws one of ``entropies`` numbers after each gap in which it sends nothing for ``flowlet_gap``."""

    parameters: ClassVar = {"flowlet_gap": np.int64}  # ps
    overtaking = False

    entropies: Entropies = 256
    flowlet_gap: Interval = 100_000_000


BALANCING = Flowlet


@kernel
def renew(flow, law, now):
    """Draw after a gap."""
    return flow.last_send != NEVER and now - flow.last_send > law.flowlet_gap
