from __future__ import annotations

import pytest

from fabricsim.transports import framing


# Expected wire bytes are added up by hand from the header sizes of the standards.
@pytest.mark.parametrize(
    ("made", "payload", "packet"),
    [
        (framing.tcp(1500), 1448, 1538),  # 1500 + 14 + 4 + 8 + 12
        (framing.tcp(9000), 8948, 9038),
        (framing.ipoib(2044), 1992, 2082),  # 2044 + 4 + 8 + 12 + 8 + 4 + 2
        (framing.ipoib(4092), 4040, 4130),  # the largest datagram: 4092 + 4 + 8 + 12 + 8 + 4 + 2
        (framing.ipoib(65520), 65468, 65940),  # 65520 + 4 in 16 packets of 4096 with 8 + 12 + 4 + 2 each
        (framing.ipoib(8188), 8136, 8244),  # 8188 + 4 fills two packets: 8192 + 2 * 26
        (framing.ipoib(8189), 8137, 8271),  # and one byte more begins a third: 8193 + 3 * 26
        (framing.ideal(4096), 4096, 4096),
        (framing.infiniband(4096), 4096, 4122),  # 8 + 12 + 4 + 2
        (framing.infiniband(256), 256, 282),
        (framing.roce(4096), 4096, 4178),  # 14 + 20 + 8 + 12 + 4 + 4 + 8 + 12
        (framing.roce(1024), 1024, 1106),
    ],
)
def test_a_full_packet_carries_its_headers(made: framing.Framing, payload: int, packet: int) -> None:
    assert (made.payload, made.packet) == (payload, packet)
    assert made.wire == packet / payload


def test_ethernet_tcp_reaches_the_known_share_of_the_line() -> None:
    assert 1 / framing.tcp(1500).wire == pytest.approx(0.9415, abs=5e-5)


# Ethernet 14 + 4 + 8 + 12, IPv4 20, TCP 32, UDP 8; LRH 8, BTH 12, AETH 4, DETH 8, ICRC 4, VCRC 2; IPoIB 4.
@pytest.mark.parametrize(
    ("made", "ack"),
    [
        (framing.tcp(1500), 38 + 20 + 32),
        (framing.ipoib(2044), 8 + 12 + 8 + 4 + 20 + 32 + 4 + 2),
        (framing.ipoib(65520), 8 + 12 + 4 + 20 + 32 + 4 + 2),
        (framing.roce(4096), 38 + 20 + 8 + 12 + 4 + 4),
        (framing.infiniband(4096), 8 + 12 + 4 + 4 + 2),
    ],
)
def test_an_acknowledgement_is_headers_alone(made: framing.Framing, ack: int) -> None:
    assert made.ack == ack


@pytest.mark.parametrize("made", [framing.tcp(1500), framing.roce(1024)])
def test_an_acknowledgement_on_ethernet_is_no_shorter_than_the_shortest_frame(made: framing.Framing) -> None:
    assert made.ack >= 64 + 8 + 12
