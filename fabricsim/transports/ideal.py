"""No headers and no protocol: for closed forms, upper bounds and comparisons with other simulators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.transports.base import FlowModel, verbs_model
from fabricsim.transports.parameters import packet_framing

if TYPE_CHECKING:
    from fabricsim.scenario.transport import Transport


def flow_model(transport: Transport) -> FlowModel:
    """Return the flow engine's view of a preset without headers."""
    return verbs_model(transport, packet_framing(transport))
