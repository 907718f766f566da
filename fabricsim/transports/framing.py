"""Headers on the wire, bytes.

Ethernet: IEEE 802.3. IPv4: RFC 791. TCP: RFC 9293, timestamps RFC 7323. InfiniBand: IBTA
specification volume 1, release 1.6, chapter 9; RoCEv2: its annex A17. IPoIB: RFC 4391, its
connected mode RFC 4755.
"""

from collections.abc import Callable
from dataclasses import dataclass

ETHERNET = 14 + 4 + 8 + 12  # header, frame check sequence, preamble, inter-frame gap
IPV4 = 20
UDP = 8
TCP = 20 + 12  # header and the timestamp option as Linux sends it
IPOIB = 4  # encapsulation
LRH = 8  # local route header
BTH = 12  # base transport header
DETH = 8  # datagram extended transport header
AETH = 4  # acknowledgement extended transport header
ICRC = 4  # invariant CRC
VCRC = 2  # variant CRC

IDEAL_ACK = 64
"""Wire bytes of an acknowledgement if there are no headers."""
DATAGRAM_MTU = 4092
"""Largest MTU of IPoIB's datagram mode: an InfiniBand packet of 4096 bytes less the encapsulation."""
SEGMENT = 4096
"""Bytes of a connected-mode message in one InfiniBand packet."""


@dataclass(frozen=True)
class Framing:
    """A full packet: its payload and what the wire carries for it, bytes.

    `overhead`: wire bytes beyond the payload.
    `ack`: wire bytes of an acknowledgement without data.
    """

    payload: int
    overhead: int
    ack: int = IDEAL_ACK

    @property
    def packet(self) -> int:
        """Wire bytes of a full packet."""
        return self.payload + self.overhead

    @property
    def wire(self) -> float:
        """Wire bytes per payload byte."""
        return self.packet / self.payload


def tcp(mtu: int) -> Framing:
    """TCP over Ethernet: ``tcp(1500)`` carries 1448 of 1538 bytes, 94.15 %.

    With timestamps an acknowledgement is longer than the smallest Ethernet frame.
    """
    headers = IPV4 + TCP + ETHERNET
    return Framing(mtu - IPV4 - TCP, headers, headers)


def ipoib(mtu: int) -> Framing:
    """TCP over IPoIB; the MTU is that of the IP packet (2044 in datagram mode on a 2048-byte link).

    Beyond `DATAGRAM_MTU` it is connected mode: the packet is a message of a reliable connection, which
    the adapter cuts into InfiniBand packets of `SEGMENT` bytes. It counts as one packet here, with the
    wire bytes of all.
    """
    headers = IPV4 + TCP + IPOIB
    if mtu <= DATAGRAM_MTU:
        datagram = headers + LRH + BTH + DETH + ICRC + VCRC
        return Framing(mtu - IPV4 - TCP, datagram, datagram)
    segments = -(-(mtu + IPOIB) // SEGMENT)
    connected = LRH + BTH + ICRC + VCRC
    return Framing(mtu - IPV4 - TCP, headers + segments * connected, headers + connected)


def infiniband(mtu: int) -> Framing:
    """Reliable connection within one subnet, without a global route header."""
    headers = LRH + BTH + ICRC + VCRC
    return Framing(mtu, headers, headers + AETH)


def roce(mtu: int) -> Framing:
    """RoCEv2 over untagged Ethernet."""
    headers = ETHERNET + IPV4 + UDP + BTH + ICRC
    return Framing(mtu, headers, headers + AETH)


def ideal(mtu: int) -> Framing:
    """No headers: a payload byte is a wire byte."""
    return Framing(mtu, 0)


FRAMINGS: dict[str, Callable[[int], Framing]] = {
    "tcp": tcp,
    "ipoib": ipoib,
    "infiniband": infiniband,
    "roce": roce,
    "ideal": ideal,
}
"""From MTU to framing, by ``transport.kind``."""
