"""What a transport tells the flow engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.tables import NEVER
from fabricsim.topology.platform import ProtocolCosts

if TYPE_CHECKING:
    from fabricsim.spec.transport import Transport
    from fabricsim.transports.framing import Framing


@dataclass(frozen=True)
class FlowModel:
    """A transport as the flow engine sees it.

    Parameters
    ----------
    costs
        Units of each resource per payload byte.
    latency
        One-way software and adapter latency, without cables and serialisation, ps.
    overhead
        Of the sender before each message, ps.
    window
        Initial congestion window in bytes; 0 where there is no slow start.
    idle_restart
        Idle time after which slow start begins anew, ps; `fabricsim.tables.NEVER`: it does not.
    interrupts
        Whether the receiver waits for (moderated) interrupts rather than polls.
    """

    costs: ProtocolCosts
    latency: int
    overhead: int
    window: int
    idle_restart: int
    interrupts: bool


def socket_model(transport: Transport, framing: Framing) -> FlowModel:
    """Kernel sockets: a thread copies each byte, TCP starts slowly, interrupts wake the receiver."""
    return FlowModel(
        costs=_costs(transport, framing, staged=True),
        latency=transport.latency,
        overhead=transport.send_overhead,
        window=(transport.initial_window or 0) * framing.payload,
        idle_restart=NEVER if transport.idle_restart is None else transport.idle_restart,
        interrupts=True,
    )


def verbs_model(transport: Transport, framing: Framing) -> FlowModel:
    """RDMA verbs: the NIC moves the data, completions are polled."""
    return FlowModel(
        costs=_costs(transport, framing, staged=False),
        latency=transport.latency,
        overhead=transport.send_overhead,
        window=0,
        idle_restart=0,
        interrupts=False,
    )


def _costs(transport: Transport, framing: Framing, *, staged: bool) -> ProtocolCosts:
    return ProtocolCosts(
        wire=framing.wire / transport.efficiency,
        send_copy=transport.send_copy,
        receive_copy=transport.receive_copy,
        packet=framing.packet,
        staged=staged,
        proxy_threads=transport.proxy_threads,
    )
