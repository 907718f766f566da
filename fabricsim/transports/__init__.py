"""What the wire, the protocol stack and its host cost: presets, framing, flow models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.transports.base import FlowModel, socket_model, verbs_model
from fabricsim.transports.parameters import packet_framing

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.scenario.transport import Transport
    from fabricsim.transports.framing import Framing

TRANSPORTS: dict[str, Callable[[Transport, Framing], FlowModel]] = {
    "tcp": socket_model,  # over Ethernet, through the kernel's sockets
    "ipoib": socket_model,  # TCP over the InfiniBand link layer (IPoIB, datagram mode), through the kernel's sockets
    "infiniband": verbs_model,  # reliable connections
    "roce": verbs_model,  # RoCEv2: reliable connections over UDP and Ethernet
    "ideal": verbs_model,  # no headers, no protocol: for closed forms, bounds and comparisons with other simulators
}
"""Flow models by ``transport.kind``."""


def flow_model(transport: Transport) -> FlowModel:
    """Return the flow engine's view of a preset."""
    return TRANSPORTS[transport.kind](transport, packet_framing(transport))
