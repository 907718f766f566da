"""What a transport tells the flow engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.records.packet import READ_AHEAD
from fabricsim.records.program import NEVER
from fabricsim.scenario.in_force import law_in_force
from fabricsim.topology.platform import ProtocolCosts

if TYPE_CHECKING:
    from fabricsim.scenario.transport import Transport
    from fabricsim.transports.framing import Framing


@dataclass(frozen=True)
class FlowModel:
    """A transport as the flow engine sees it.

    `costs`: units of each resource per payload byte.
    `latency`: one-way software and adapter latency, without cables and serialisation, ps.
    `overhead`: of the sender before each message, ps.
    `window`: initial congestion window in bytes; 0 if there is no slow start.
    `idle_restart`: idle time after which slow start begins anew, ps; `fabricsim.records.program.NEVER`: it does not.
    `interrupts`: whether the receiver waits for (moderated) interrupts rather than polls.
    `read_ahead`: bytes of a message that the adapter takes ahead of the wire; 0 if the transport paces its packets.
    """

    costs: ProtocolCosts
    latency: int
    overhead: int
    window: int
    idle_restart: int
    interrupts: bool
    read_ahead: int

    @property
    def stacks(self) -> int:
        """What the software of both hosts adds to a round trip as TCP sees it, ps; 0 if adapters acknowledge.

        Data and acknowledgement both pass the driver, the adapter, an interrupt and the kernel: that is `latency`. The
        `overhead` is that of the call that sends, which no acknowledgement waits for.
        """
        return 2 * self.latency if self.interrupts else 0


def socket_model(transport: Transport, framing: Framing) -> FlowModel:
    """Kernel sockets: a thread copies each byte, TCP starts slowly, interrupts wake the receiver."""
    return FlowModel(
        costs=_costs(transport, framing, staged=True),
        latency=transport.latency,
        overhead=transport.send_overhead,
        window=(transport.initial_window or 0) * framing.payload,
        idle_restart=NEVER if transport.idle_restart is None else transport.idle_restart,
        interrupts=True,
        read_ahead=_read_ahead(transport, framing),
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
        read_ahead=_read_ahead(transport, framing),
    )


def _read_ahead(transport: Transport, framing: Framing) -> int:
    return 0 if law_in_force(transport).paced else READ_AHEAD * framing.payload


def _costs(transport: Transport, framing: Framing, *, staged: bool) -> ProtocolCosts:
    return ProtocolCosts(
        wire=framing.wire / transport.efficiency,
        send_copy=transport.send_copy,
        receive_copy=transport.receive_copy,
        packet=framing.packet,
        staged=staged,
        proxy_threads=transport.proxy_threads,
        host=transport.host_efficiency,
    )
