"""A transport preset: what the wire, the protocol stack and its host cost."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fabricsim.scenario.balancing import RULES, LoadBalancing
from fabricsim.scenario.base import OneOf, Spec
from fabricsim.scenario.congestion import LAWS, Law
from fabricsim.scenario.packet import PacketSpec
from fabricsim.scenario.quantity import Bytes, Duration, Rate, TimePerByte
from fabricsim.scenario.switch import SwitchSpec


class Mpi(Spec):
    """Point-to-point protocol of an MPI library over this transport.

    Up to ``eager_limit`` a message is sent at once; above it the first ``eager_limit`` bytes go
    with the request, the receiver acknowledges, and the rest follows. ``eager_copy`` says that both
    sides copy eager bytes through a bounce buffer. ``latency`` is one way, without cables, switches and serialisation;
    it takes the place of the NIC's ``mpi_latency`` and ``mpi_inline_latency``.
    """

    eager_limit: Bytes
    eager_copy: bool
    latency: Duration | None = None


class NcclProtocol(Spec):
    """What a message of one of NCCL's protocols costs between two hosts besides the bytes on its way.

    ``latency`` is one way, without cables, switches and serialisation: kernel flags, proxy threads, software and
    adapter. It takes the place of the transport's or NIC's latency, of the send overhead, of interrupt moderation and
    of the step time that NCCL's cost model has. ``ring_latency`` takes the place of ``latency`` in rings, whose kernels
    are others; NCCL's own table has a latency of a hop for each algorithm, too. ``byte_latency`` is added for each byte
    of the message: proxies forward a step only when all of it is there, and so store and forward what the wire
    otherwise overlaps.
    """

    latency: Duration
    ring_latency: Duration | None = None
    byte_latency: TimePerByte = 0.0


class Nccl(Spec):
    """NCCL's messages over this transport, by protocol, as `fabricsim calibrate` measures them.

    ``step`` is the fixed time of a message whose protocol is not measured, in the place of that of NCCL's table: if
    messages go by a plugin, its progress takes as long by LL as by Simple. Messages above ``handshake_above`` bytes
    wait for a round trip first, in which the receiver says where they go, or asks for them; 0 is never.
    """

    step: Duration | None = None
    handshake_above: Bytes = 0
    ll: NcclProtocol | None = None
    ll128: NcclProtocol | None = None
    simple: NcclProtocol | None = None


def _with_kind(table: object) -> object:
    return {"kind": "ecmp", **table} if isinstance(table, dict) else table


class Transport(Spec):
    """One transport.

    Latencies are one way and without serialisation. ``send_copy`` and ``receive_copy`` are the CPU
    time that the thread moving the data spends per byte; zero if the NIC moves it. ``efficiency`` and
    ``host_efficiency`` are the shares of what framing leaves of the wire, and packets of the hosts' PCIe links, that
    transfers reach; the latter is above 1 if packets carry more than the model counts. The kind
    ``ideal`` has no headers: a payload byte is a wire byte. ``packet``, ``congestion_control`` and
    ``load_balancing`` act in the packet engine; flows know whether senders are paced, and timeouts after failures.
    """

    name: str
    kind: Literal["tcp", "ipoib", "infiniband", "roce", "ideal"]
    line_rate: Rate
    switch: SwitchSpec
    mtu: Annotated[int, Field(ge=256, le=65_536)]
    efficiency: Annotated[float, Field(ge=0.001, le=1)] = 1.0
    host_efficiency: Annotated[float, Field(ge=0.001, le=1.25)] = 1.0
    latency: Duration
    send_overhead: Duration = 0
    send_copy: TimePerByte = 0.0
    receive_copy: TimePerByte = 0.0
    proxy_threads: Annotated[int, Field(ge=1)] = 1
    initial_window: Annotated[int, Field(ge=1)] | None = None
    idle_restart: Duration | None = None
    mpi: Mpi | None = None
    nccl: Nccl | None = None
    packet: PacketSpec | None = None
    congestion_control: Annotated[Law | None, OneOf("law", LAWS.all)] = None
    load_balancing: Annotated[LoadBalancing | None, OneOf("kind", RULES.all), BeforeValidator(_with_kind)] = None
