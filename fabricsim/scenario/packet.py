"""What only the packet engine asks of a transport: how packets are cut, acknowledged and recovered."""

from typing import Annotated, Literal

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.congestion import Interval
from fabricsim.scenario.quantity import Bytes, Duration

Class = Annotated[int, Field(ge=0, le=7)]
"""Traffic class or virtual lane, counted from 0."""
PacketBytes = Annotated[Bytes, Field(ge=1, le=65_536)]
"""Size of a packet, or of a part of one, bytes."""

SOCKET_KINDS = ("tcp", "ipoib")
"""Transports that go through the kernel's sockets, and so through host memory."""
MOST_JOINED = 256
"""Packets of a message that an InfiniBand adapter acknowledges at once: MLX5_IB_ACK_REQ_FREQ of Linux, 2^8."""
MAXIMUM_PACKETS = 2**23
"""Packets that may be outstanding if no window is given: half of a 24-bit packet sequence number (IBTA)."""


class PacketSpec(Spec):
    """Packets and loss recovery; what is left out has the default of the transport's kind.

    ``payload`` and ``header`` take the place of what framing and MTU give, to reproduce other
    simulators; the flow engine uses them, too. ``maximum_window`` is the receive window or what the
    sender may hold, whichever is less. With ``device_queue`` all that windows allow goes into the queue
    of the host's device at once, as from a kernel without pacing, and acknowledgements wait behind it;
    ``device_mark`` is the step of ECN there.
    """

    recovery: Literal["go-back-n", "selective"] | None = None
    payload: PacketBytes | None = None
    header: Annotated[Bytes, Field(ge=0, le=4096)] | None = None
    ack_wire: Annotated[Bytes, Field(ge=16, le=4096)] | None = None
    ack_every: Annotated[int, Field(ge=1, le=1024)] | None = None
    ack_delay: Duration | None = None
    quick_acks: Annotated[int, Field(ge=0, le=1024)] | None = None
    reordering: Annotated[int, Field(ge=1, le=65_536)] | None = None
    nack_interval: Interval | None = None
    initial_timeout: Interval | None = None
    minimum_timeout: Interval | None = None
    maximum_timeout: Interval | None = None
    maximum_window: Annotated[Bytes, Field(gt=0)] | None = None
    handshake: Annotated[int, Field(ge=0, le=16)] = 0
    device_queue: bool = False
    device_mark: Annotated[Bytes, Field(gt=0)] | None = None
    data_class: Class = 0
    ack_class: Class = 0


_SOCKETS = PacketSpec.model_validate(
    {
        "recovery": "selective",  # SACK, RFC 2018
        "ack_every": 2,  # RFC 9293, section 3.8.6.3
        "ack_delay": "40ms",  # Linux, TCP_DELACK_MIN
        "quick_acks": 16,  # Linux, TCP_MAX_QUICKACKS
        "reordering": 3,  # RFC 5681, section 3.2
        "nack_interval": "500us",  # with go-back-N
        "initial_timeout": "1s",  # RFC 6298; Linux, TCP_TIMEOUT_INIT
        "minimum_timeout": "200ms",  # Linux, TCP_RTO_MIN
        "maximum_timeout": "120s",  # Linux, TCP_RTO_MAX
        "maximum_window": "4MiB",  # Linux, where autotuning of the send buffer ends (tcp_wmem)
    }
)
_VERBS = PacketSpec.model_validate(
    {
        "recovery": "go-back-n",  # IBTA, reliable connections
        "ack_every": 1,
        "ack_delay": "0us",
        "quick_acks": 0,
        "reordering": 3,  # with selective recovery
        "nack_interval": "500us",  # ns-3 model of the HPCC authors
        "initial_timeout": "67108.864us",  # 4.096 us * 2^14, common in drivers; a queue pair's is fixed
        "minimum_timeout": "67108.864us",
        "maximum_timeout": "67108.864us",
    }
)
_IDEAL = PacketSpec.model_validate(
    {
        "recovery": "go-back-n",
        "ack_every": 1,
        "ack_delay": "0us",
        "quick_acks": 0,
        "reordering": 3,
        "nack_interval": "500us",
        "initial_timeout": "100ms",  # beyond any queue: nothing is lost on an ideal switch but by errors and failures
        "minimum_timeout": "100ms",
        "maximum_timeout": "1s",
    }
)

DEFAULTS = {"tcp": _SOCKETS, "ipoib": _SOCKETS, "infiniband": _VERBS, "roce": _VERBS, "ideal": _IDEAL}
"""Settings of `PacketSpec` that were left out, by kind of transport."""
