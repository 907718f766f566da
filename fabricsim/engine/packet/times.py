"""What single packets take over idle wires, by which flows and routes are set up."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.packet import HEADER_BYTES
from fabricsim.units import PS_PER_S


class PacketTimes:
    """Times of packets of one transport on ways over idle wires.

    They are looked up in plain lists: for the handful of wires of a way an array takes longer. Most ways of a network
    are alike, wire by wire, and what they take is worked out once.
    """

    def __init__(self, links: NDArray[np.void], law: np.void) -> None:
        self._payload, self._overhead = int(law["payload"]), int(law["overhead"])
        self._handshakes = int(law["handshake"])
        self._network_rtt, self._stacks = float(law["network_rtt"]), float(law["stacks"])
        self._packet = _crossing(links, self._payload + self._overhead)
        self._ack = _crossing(links, int(law["ack_wire"]))
        self._delay: list[int] = links["delay"].tolist()
        self._per_byte: list[float] = links["ps_per_byte"].tolist()
        self._cut_through: list[int] = links["cut_through"].tolist()
        alike: dict[tuple[int, float, int], int] = {}
        columns = zip(self._delay, self._per_byte, self._cut_through, strict=True)
        self._kind = [alike.setdefault(link, len(alike)) for link in columns]
        self._flows: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]], Mapping[str, float]] = {}
        self._routes: dict[tuple[tuple[int, ...], tuple[float, ...]], Mapping[str, float]] = {}

    def _kinds_of(self, way: Sequence[int]) -> tuple[int, ...]:
        kind = self._kind
        return tuple([kind[link] for link in way])

    def of_flow(self, way: Sequence[int], back: Sequence[int], servers: Sequence[float]) -> Mapping[str, float]:
        """Columns of ``FLOW`` that the times on its way, and on that of its acknowledgements, decide.

        `servers`: as of `of_route`. A packet is acknowledged behind them, so they are in the round trip.
        """
        key = self._kinds_of(way), self._kinds_of(back), tuple(servers)
        if key not in self._flows:
            self._flows[key] = self._of_flow(way, back, servers)
        return self._flows[key]

    def _of_flow(self, way: Sequence[int], back: Sequence[int], servers: Sequence[float]) -> Mapping[str, float]:
        acknowledged = sum([self._ack[link] for link in back])
        hosts = self._stacks + int(self._payload * _sum(servers))
        return {
            "wire": self._payload + self._overhead,
            "line_rate": PS_PER_S / self._per_byte[way[0]],
            "base_rtt": self._network_rtt or sum([self._packet[link] for link in way]) + acknowledged + hosts,
            "connect": self._handshakes * (sum([self._ack[link] for link in way]) + acknowledged),
        }

    def of_route(self, way: Sequence[int], servers: Sequence[float]) -> Mapping[str, float]:
        """Columns of ``ROUTE`` that `fabricsim.engine.program.transfer.time_alone` needs.

        `servers`: time per payload byte of each server before and after them, ps.
        """
        key = self._kinds_of(way), tuple(servers)
        if key not in self._routes:
            self._routes[key] = self._of_route(way, servers)
        return self._routes[key]

    def _of_route(self, way: Sequence[int], servers: Sequence[float]) -> Mapping[str, float]:
        per_byte = _sum([self._per_byte[link] for link in way if not self._cut_through[link]])
        return {
            "packet": self._payload,
            "framing": self._overhead,
            "base_time": sum([self._delay[link] for link in way]) + per_byte * self._overhead,
            "byte_time": per_byte + _sum(servers),
            "header_time": _sum([self._per_byte[link] for link in way if self._cut_through[link]]),
        }


def _sum(times: Sequence[float]) -> float:
    """Add as NumPy does: the order of Python's `sum` is one of its version."""
    return float(np.add.reduce(times)) if times else 0.0


def _crossing(links: NDArray[np.void], size: int) -> list[int]:
    """Time until a packet, or only its header on a cut-through link, is at the far end of each link, ps."""
    forwarded = np.where(links["cut_through"] == 1, min(size, HEADER_BYTES), size)
    times = np.floor(forwarded * links["ps_per_byte"] + 0.5) + links["delay"]
    return times.astype(np.int64).tolist()  # type: ignore[no-any-return]  # of integers
