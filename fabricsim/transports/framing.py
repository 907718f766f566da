"""Headers on the wire, bytes.

Ethernet: IEEE 802.3. IPv4: RFC 791. TCP: RFC 9293, timestamps RFC 7323. InfiniBand: IBTA
specification volume 1, release 1.6, chapter 9; RoCEv2: its annex A17. IPoIB: RFC 4391.
"""

from __future__ import annotations

from dataclasses import dataclass

ETHERNET = 14 + 4 + 8 + 12  # header, frame check sequence, preamble, inter-frame gap
IPV4 = 20
UDP = 8
TCP = 20 + 12  # header and the timestamp option as Linux sends it
IPOIB = 4  # encapsulation
LRH = 8  # local route header
BTH = 12  # base transport header
DETH = 8  # datagram extended transport header
ICRC = 4  # invariant CRC
VCRC = 2  # variant CRC


@dataclass(frozen=True)
class Framing:
    """A full packet: its payload and what the wire carries for it, bytes."""

    payload: int
    overhead: int

    @property
    def packet(self) -> int:
        """Wire bytes of a full packet."""
        return self.payload + self.overhead

    @property
    def wire(self) -> float:
        """Wire bytes per payload byte."""
        return self.packet / self.payload


def tcp(mtu: int) -> Framing:
    """TCP over Ethernet: ``tcp(1500)`` carries 1448 of 1538 bytes, 94.15 %."""
    return Framing(mtu - IPV4 - TCP, IPV4 + TCP + ETHERNET)


def ipoib(mtu: int) -> Framing:
    """TCP over IPoIB datagram mode; the MTU is that of the IP packet (2044 on a 2048-byte link)."""
    return Framing(mtu - IPV4 - TCP, IPV4 + TCP + IPOIB + LRH + BTH + DETH + ICRC + VCRC)


def infiniband(mtu: int) -> Framing:
    """Reliable connection within one subnet, without a global route header."""
    return Framing(mtu, LRH + BTH + ICRC + VCRC)


def roce(mtu: int) -> Framing:
    """RoCEv2 over untagged Ethernet."""
    return Framing(mtu, ETHERNET + IPV4 + UDP + BTH + ICRC)
