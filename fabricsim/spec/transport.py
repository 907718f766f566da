"""A transport preset: what the wire, the protocol stack and its host cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.congestion import Law
from fabricsim.spec.packet import LoadBalancing, Packet
from fabricsim.spec.quantity import Bytes, Duration, Rate, TimePerByte
from fabricsim.spec.switch import Switch


class Mpi(Spec):
    """Point-to-point protocol of an MPI library over this transport.

    Up to ``eager_limit`` a message is sent at once; above it the first ``eager_limit`` bytes go
    with the request, the receiver acknowledges, and the rest follows. ``eager_copy`` says that both
    sides copy eager bytes through a bounce buffer.
    """

    eager_limit: Bytes
    eager_copy: bool


class Transport(Spec):
    """One transport.

    Latencies are one way and without serialisation. ``send_copy`` and ``receive_copy`` are the CPU
    time that the thread moving the data spends per byte; zero where the NIC moves it. The kind
    ``ideal`` has no headers: a payload byte is a wire byte. ``packet``, ``congestion_control`` and
    ``load_balancing`` act in the packet engine only.
    """

    name: str
    kind: Literal["tcp", "ipoib", "infiniband", "roce", "ideal"]
    line_rate: Rate
    switch: Switch
    mtu: Annotated[int, Field(ge=256, le=65_536)]
    efficiency: Annotated[float, Field(ge=0.001, le=1)] = 1.0
    latency: Duration
    send_overhead: Duration = 0
    send_copy: TimePerByte = 0.0
    receive_copy: TimePerByte = 0.0
    proxy_threads: Annotated[int, Field(ge=1)] = 1
    initial_window: Annotated[int, Field(ge=1)] | None = None
    idle_restart: Duration | None = None
    mpi: Mpi | None = None
    packet: Packet | None = None
    congestion_control: Annotated[Law | None, Field(discriminator="law")] = None
    load_balancing: LoadBalancing | None = None
