"""A receiving host's pace of pulls (NDP, EQDS)."""

from collections import deque
from dataclasses import dataclass

from fabricsim.engine.reference.flows import Flow
from fabricsim.engine.reference.hosts import Host
from fabricsim.engine.reference.nodes import AGENDA
from fabricsim.engine.reference.packets import Packet
from fabricsim.records.packet import PULL, PULL_DUE


@dataclass(eq=False)
class Pulled:
    """How many packets of a flow its target has pulled."""

    flow: Flow
    count: int = 0
    due: int = 0  # packets yet to be pulled
    whole: int = 0  # data packets that came and were not trimmed


class Pulls:
    """Pulls a packet of each flow in turn."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._round: deque[Pulled] = deque()
        self._at = 0  # no pull leaves before, ps

    def may_ride(self, pulled: Pulled) -> bool:
        """Whether a pull may leave now, on an answer."""
        return not self._round and self._host.network.now >= self._at and not pulled.flow.law.ahead

    def rode(self, pulled: Pulled) -> None:
        """Note that one did."""
        self._at = self._host.network.now + pulled.flow.law.pull_interval

    def ask(self, pulled: Pulled, *, complete: bool) -> None:
        """Have a packet pulled for one that came; if a message is complete, at once all that wait for its flow."""
        pulled.due += 1
        if complete:
            if pulled in self._round:
                self._round.remove(pulled)
            if pulled.due > 0:
                self._send(pulled, pulled.due)
        elif pulled not in self._round and self._wanted(pulled) > 0:
            self._round.append(pulled)
            if len(self._round) == 1:
                self._go_on()

    @staticmethod
    def _wanted(pulled: Pulled) -> int:
        """Count the packets to be pulled: those due, and some ahead of what came, of those that are missing."""
        missing = int(pulled.flow.row.posted) - pulled.whole
        return pulled.due + max(min(int(pulled.flow.law.ahead), missing), 0)

    def _go_on(self) -> None:
        """Pull, or plan to."""
        if self._host.network.now >= self._at:
            self._pull_next()
        elif self._round:
            self._host.plan(self._at, AGENDA + PULL_DUE, self._host.index, self._pull_next)

    def _pull_next(self) -> None:
        now = self._host.network.now
        if not self._round or now < self._at:
            return
        pulled = self._round.popleft()
        self._at = now + pulled.flow.law.pull_interval
        if self._wanted(pulled) > 1:
            self._round.append(pulled)
        self._send(pulled, 1)
        if self._round:
            self._go_on()

    def _send(self, pulled: Pulled, count: int) -> None:
        pulled.count += count
        pulled.due -= count
        self._host.send_answer(
            Packet(
                flow=pulled.flow.index,
                kind=PULL,
                number=pulled.count,
                echo=0,
                stamp=self._host.network.now,
                entropy=pulled.count % max(pulled.flow.law.entropies, 1),
                wire=pulled.flow.law.ack_wire,
                payload=0,
                traffic_class=pulled.flow.law.ack_class,
                cursor=pulled.flow.reverse_cursor,
            )
        )
