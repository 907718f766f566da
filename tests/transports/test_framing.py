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
