"""What the wire, the protocol stack and its host cost: presets, framing, flow models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.transports import ideal, infiniband, ipoib, roce, tcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.scenario.transport import Transport
    from fabricsim.transports.base import FlowModel

TRANSPORTS: dict[str, Callable[[Transport], FlowModel]] = {
    "tcp": tcp.flow_model,
    "ipoib": ipoib.flow_model,
    "infiniband": infiniband.flow_model,
    "roce": roce.flow_model,
    "ideal": ideal.flow_model,
}
"""Flow models by ``transport.kind``."""
