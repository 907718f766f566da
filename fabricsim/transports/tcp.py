"""TCP over Ethernet through the kernel's socket interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.transports.base import FlowModel, socket_model
from fabricsim.transports.parameters import packet_framing

if TYPE_CHECKING:
    from fabricsim.scenario.transport import Transport


def flow_model(transport: Transport) -> FlowModel:
    """Return the flow engine's view of a TCP preset."""
    return socket_model(transport, packet_framing(transport))
