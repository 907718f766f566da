"""Packet spraying: Dixit et al., "On the Impact of Packet Spraying in Data Center Networks", INFOCOM 2013."""

from fabricsim.jit.compile import kernel
from fabricsim.scenario.balancing import Entropies, LoadBalancing


class Spray(LoadBalancing):
    """Each packet draws its way, as one of ``entropies`` numbers."""

    entropies: Entropies = 256


BALANCING = Spray


@kernel
def renew(flow, law, now):
    """Draw for each packet."""
    return True
