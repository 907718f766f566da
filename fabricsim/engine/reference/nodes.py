"""What hosts and switches share: the order of events at a node, and the buffers that PFC and credits protect."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from fabricsim.engine.reference.packets import Incoming, Packet
from fabricsim.engine.reference.shared import Shared
from fabricsim.records.packet import CLASSES

ARRIVAL = 1
CONTROL = 2
AGENDA = 3
"""Added to RECEIVED, ALARM, ACKNOWLEDGE and PORT_DUE of `fabricsim.records.packet`."""

PAUSE = 0
RESUME = -1
CREDIT_UNIT = 64


def credits_for(wire: int) -> int:
    """Bytes of credits that a packet of `wire` bytes takes."""
    return -(-wire // CREDIT_UNIT) * CREDIT_UNIT


@dataclass
class Ingress:
    """What one class of one incoming link holds at a node."""

    above: int
    below: int
    headroom: int
    alpha: float
    returns_credits: bool
    bytes: int = 0
    pausing: bool = False
    held: int = 0


class Node:
    """A host or a switch; does what is due at one time in the canonical order."""

    def __init__(self, network: Shared, index: int) -> None:
        row = network.tables.nodes[index]
        self.network = network
        self.index = index
        self.number = int(row["number"])
        self.accounts = bool(row["accounts"])
        self.buffer = int(row["buffer"])
        self.used = 0
        self.ingress: dict[tuple[int, int], Ingress] = {}
        self._agenda: list[tuple[int, int, int, int, Callable[[], None]]] = []
        self._order = count()
        first = int(row["first_in"])
        for link in network.tables.ins[first : first + int(row["ins"])]:
            self._open_ingress(int(link))

    def _open_ingress(self, link: int) -> None:
        for traffic_class in range(CLASSES):
            row = self.network.tables.ingress[link * CLASSES + traffic_class]
            self.ingress[link, traffic_class] = Ingress(
                int(row["above"]), int(row["below"]), int(row["headroom"]), float(row["alpha"]), bool(row["credits"])
            )

    def plan(self, time: int, kind: int, target: int, action: Callable[[], None]) -> None:
        """Do `action` at `time` (ps), in the order of `kind` and `target` there."""
        heapq.heappush(self._agenda, (time, kind, target, next(self._order), action))
        self.network.wake(self.index, time)

    def act(self) -> None:
        """Do what is due now."""
        now = self.network.now
        while self._agenda and self._agenda[0][0] <= now:
            *_, action = heapq.heappop(self._agenda)
            action()

    def arrive(self, packet: Packet) -> None:
        """Take a packet that came by `packet.came_by`."""
        raise NotImplementedError

    def threshold(self, ingress: Ingress) -> float:
        """Bytes of `ingress` beyond which a PAUSE is sent."""
        if ingress.alpha == 0:
            return ingress.above
        return max(ingress.above, ingress.alpha * (self.buffer - self.used))

    def _resume_level(self, ingress: Ingress) -> float:
        if ingress.alpha == 0:
            return ingress.below
        return max(ingress.below, self.threshold(ingress) - ingress.below)

    def take_in(self, packet: Packet) -> None:
        """Count a packet that came by a link."""
        if self.accounts and packet.came_by is not None:
            self.ingress[packet.came_by.index, packet.traffic_class].bytes += packet.wire

    def pause_if_full(self, link: Incoming, traffic_class: int) -> None:
        """Send a PAUSE to the other end of `link` where too much of the class is here."""
        if not self.accounts:
            return
        ingress = self.ingress[link.index, traffic_class]
        if not ingress.pausing and ingress.bytes > self.threshold(ingress):
            ingress.pausing = True
            ingress.held = ingress.bytes
            link.reverse.send_control(traffic_class, PAUSE)

    def let_out(self, packet: Packet) -> None:
        """Forget a packet that came by a link and has left; RESUME and credits go back."""
        link = packet.came_by
        if link is None:
            return
        if self.accounts:
            ingress = self.ingress[link.index, packet.traffic_class]
            ingress.bytes -= packet.wire
            if ingress.pausing and ingress.bytes <= self._resume_level(ingress):
                ingress.pausing = False
                link.reverse.send_control(packet.traffic_class, RESUME)
        self.return_credits(packet)

    def return_credits(self, packet: Packet) -> None:
        """Give back the credits that a packet took on the link by which it came."""
        link = packet.came_by
        if link is not None and self.ingress[link.index, packet.traffic_class].returns_credits:
            link.reverse.send_control(packet.traffic_class, credits_for(packet.wire))
