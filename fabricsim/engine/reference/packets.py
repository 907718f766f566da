"""What travels: packets, and what is noted of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fabricsim.records.packet import AGAIN, CLASS_SHIFT, DATA, HEADER_BYTES, MARKED, PULLS, TRIMMED


class Incoming(Protocol):
    """The link by which a packet came, as the node knows it if it is."""

    index: int

    @property
    def reverse(self) -> Incoming:
        """The other direction of the cable."""

    def send_control(self, traffic_class: int, amount: int) -> None:
        """Send a PAUSE, RESUME or credits."""


class Reading(NamedTuple):
    """In-band telemetry of one link, as in TELEMETRY."""

    time: int
    sent: int
    drain: int
    ps_per_byte: float


class Entry(NamedTuple):
    """A packet that was put on a link or lost before it, as in LOG."""

    time: int
    link: int
    flow: int
    number: int
    echo: int
    wire: int
    kind: int
    state: int
    fate: int


class Delivery(NamedTuple):
    """A message that has arrived in full (time in ps)."""

    time: int
    flow: int
    owner: int


class Control(NamedTuple):
    """A PAUSE (amount 0), RESUME (-1) or credit update (bytes) and when it was sent, ps."""

    time: int
    link: int
    traffic_class: int
    amount: int


@dataclass
class Packet:
    """One packet; an ACK, NACK or CNP repeats entropy, stamp and mark of the packet that caused it."""

    flow: int
    kind: int
    number: int  # of a data packet; otherwise the next number awaited
    echo: int  # of an answer: number of the packet that caused it; of data: its own number
    stamp: int  # when the data packet was taken from its flow, ps
    entropy: int
    wire: int
    payload: int
    traffic_class: int
    cursor: int  # place of its next link in the table of paths; NONE: routed at each switch
    may_be_marked: bool = False
    marked: bool = False
    trimmed: bool = False
    again: bool = False
    pulls: bool = False  # an ACK or NACK that pulls a packet, too
    came_by: Incoming | None = None  # the link on which it came to the node if it is
    readings: list[Reading] = field(default_factory=list)

    @property
    def state(self) -> int:
        """The bits of PACKET.state."""
        bits = MARKED * self.marked | TRIMMED * self.trimmed | AGAIN * self.again
        return bits | PULLS * self.pulls | self.traffic_class << CLASS_SHIFT

    @property
    def carries_data(self) -> bool:
        """Whether there is payload: only such packets are marked and trimmed."""
        return self.kind == DATA and not self.trimmed

    def trim(self) -> None:
        """Cut off the payload; what is left goes in class 0."""
        self.wire = min(self.wire, HEADER_BYTES)
        self.payload = 0
        self.trimmed = True
        self.traffic_class = 0
