"""A receiving host's pace of pulls (NDP, EQDS)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fabricsim.engine.reference.nodes import AGENDA
from fabricsim.engine.reference.packets import Packet
from fabricsim.records.packet import PULL, PULL_DUE

if TYPE_CHECKING:
    from fabricsim.engine.reference.hosts import Host
    from fabricsim.engine.reference.receivers import Receiver


class Pulls:
    """Pulls a packet of each flow in turn."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._round: deque[Receiver] = deque()
        self._at = 0  # no pull leaves before, ps

    def may_ride(self, receiver: Receiver) -> bool:
        """Whether a pull may leave now, on an answer."""
        return not self._round and self._host.network.now >= self._at and not receiver.law.ahead

    def rode(self, receiver: Receiver) -> None:
        """Note that one did."""
        self._at = self._host.network.now + int(receiver.law.pull_interval)

    def ask(self, receiver: Receiver, *, complete: bool) -> None:
        """Have a packet pulled for one that came; if a message is complete, at once all that wait for its flow."""
        receiver.pulls_due += 1
        if complete:
            if receiver in self._round:
                self._round.remove(receiver)
            if receiver.pulls_due > 0:
                self._send(receiver, receiver.pulls_due)
        elif receiver not in self._round and self._wanted(receiver) > 0:
            self._round.append(receiver)
            if len(self._round) == 1:
                self._go_on()

    @staticmethod
    def _wanted(receiver: Receiver) -> int:
        """Count the packets to be pulled: those due, and some ahead of what came, of those that are missing."""
        missing = int(receiver.sender.row.posted) - receiver.whole
        return receiver.pulls_due + max(min(int(receiver.law.ahead), missing), 0)

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
        receiver = self._round.popleft()
        self._at = now + int(receiver.law.pull_interval)
        if self._wanted(receiver) > 1:
            self._round.append(receiver)
        self._send(receiver, 1)
        if self._round:
            self._go_on()

    def _send(self, receiver: Receiver, count: int) -> None:
        receiver.pulls += count
        receiver.pulls_due -= count
        self._host.send_answer(
            Packet(
                flow=receiver.sender.index,
                kind=PULL,
                number=receiver.pulls,
                echo=0,
                stamp=self._host.network.now,
                entropy=receiver.pulls % max(int(receiver.law.entropies), 1),
                wire=int(receiver.law.ack_wire),
                payload=0,
                traffic_class=int(receiver.law.ack_class),
                cursor=receiver.sender.reverse_cursor,
            )
        )
