"""The receiving half of a flow: what is kept, and what is answered."""

from collections import deque

from fabricsim.engine.reference.nodes import AGENDA
from fabricsim.engine.reference.packets import Delivery, Packet
from fabricsim.engine.reference.pulls import Pulled, Pulls
from fabricsim.engine.reference.senders import Sender
from fabricsim.engine.reference.shared import Shared
from fabricsim.records.packet import ACK, ACKNOWLEDGE, CNP, NACK
from fabricsim.records.program import NEVER, NONE


class Receiver:
    """A flow at its target."""

    def __init__(self, network: Shared, sender: Sender, pulls: Pulls) -> None:
        self.network = network
        self.sender = sender
        self.law = sender.law
        self.host = sender.target
        self.messages: list[tuple[int, int]] = []  # (packets up to its end, owner)
        self.expected = 0  # all below this have arrived
        self.copies = 0  # packets that had arrived before
        self._delivered = 0  # messages
        self._above: set[int] = set()  # arrived, beyond `expected`
        self._highest = 0  # above all that have arrived
        self._pending: Packet | None = None  # the last one kept, if it is not acknowledged yet
        self._unacknowledged = 0
        self._due = NEVER
        self._quick = 0  # packets that are yet to be acknowledged at once
        self._kept_at = 0
        self._nacked = NONE
        self._nack_at = 0
        self._cnp_at = 0
        self._may_pull = False  # a pull may ride on the answer to the present packet
        self._rides = False  # and does
        self._pulls = pulls
        self._pulled = Pulled(sender)
        self._held: deque[tuple[int, Packet]] = deque()  # when an ACK leaves the stacks, and it

    def waiting(self) -> list[int]:
        """List whose messages are not delivered yet."""
        return [owner for _, owner in self.messages[self._delivered :]]

    def receive(self, packet: Packet) -> None:
        """Take a data packet, whole or trimmed, and have another one pulled for it."""
        before = self._delivered
        self._pulled.whole += not packet.trimmed
        self._may_pull = self.law.pull_interval > 0 and self._pulls.may_ride(self._pulled)
        self._rides = False
        self._take(packet)
        if self._rides:
            self._pulls.rode(self._pulled)
        elif self.law.pull_interval > 0:
            self._pulls.ask(self._pulled, complete=self._delivered > before)

    def _take(self, packet: Packet) -> None:
        if packet.marked:
            self._notify(packet)
        number = packet.number
        if number < self.expected or number in self._above:
            self._acknowledge_pending_of_other_mark(packet)
            self.copies += not packet.trimmed
            self._answer(ACK, packet)
        elif packet.trimmed and self.sender.selective:
            self._answer(NACK, packet)
        elif packet.trimmed or (number > self.expected and not self.sender.selective):
            self._report_gap(packet)
        else:
            self._acknowledge_pending_of_other_mark(packet)
            self._keep(packet)

    def _notify(self, packet: Packet) -> None:
        interval = self.law.cnp_interval
        if interval > 0 and self.network.now >= self._cnp_at:
            self._cnp_at = self.network.now + interval
            self._send(CNP, packet)

    def _report_gap(self, packet: Packet) -> None:
        """Answer what go-back-N throws away."""
        if self._nacked != self.expected or self.network.now >= self._nack_at:
            self._nacked = self.expected
            self._nack_at = self.network.now + self.law.nack_interval
            self._answer(NACK, packet)

    def _acknowledge_pending_of_other_mark(self, packet: Packet) -> None:
        if self._pending is not None and self._pending.marked != packet.marked:
            self._answer(ACK, self._pending)

    def _keep(self, packet: Packet) -> None:
        quick = self._is_quick()
        out_of_order = packet.number != self.expected or packet.number < self._highest
        self._highest = max(self._highest, packet.number + 1)
        self._above.add(packet.number)
        while self.expected in self._above:
            self._above.remove(self.expected)
            self.expected += 1
        complete = self._deliver()
        self._pending = packet
        self._unacknowledged += 1
        enough = self._unacknowledged >= self.law.ack_every
        if quick or out_of_order or complete or enough:
            self._answer(ACK, packet)
        elif self._due == NEVER and self.law.ack_delay > 0:
            self._due = self.network.now + self.law.ack_delay
            self.host.plan(self._due, AGENDA + ACKNOWLEDGE, self.sender.index, self._acknowledge_if_due)

    def _is_quick(self) -> bool:
        """Whether a packet that is kept now is one of the first, or after a pause; counts it."""
        now = self.network.now
        if self._highest == 0 or now - self._kept_at > self.law.minimum_timeout:
            self._quick = self.law.quick_acks
        self._kept_at = now
        quick = self._quick > 0
        self._quick -= quick
        return quick

    def _deliver(self) -> bool:
        before = self._delivered
        while self._delivered < len(self.messages) and self.messages[self._delivered][0] <= self.expected:
            owner = self.messages[self._delivered][1]
            self.network.completed.append(Delivery(self.network.now, self.sender.index, owner))
            self._delivered += 1
        return self._delivered > before

    def _acknowledge_if_due(self) -> None:
        while self._held and self._held[0][0] <= self.network.now:
            self.host.send_answer(self._held.popleft()[1])
        if self._pending is not None and self._due <= self.network.now:
            self._answer(ACK, self._pending)

    def _answer(self, kind: int, packet: Packet) -> None:
        """Send an ACK or NACK, which acknowledges all that was kept so far."""
        self._pending = None
        self._unacknowledged = 0
        self._due = NEVER
        self._send(kind, packet)

    def _send(self, kind: int, packet: Packet) -> None:
        answer = Packet(
            flow=self.sender.index,
            kind=kind,
            number=self.expected,
            echo=packet.number,
            stamp=packet.stamp,
            entropy=packet.entropy,
            wire=self.law.ack_wire,
            payload=0,
            traffic_class=self.law.ack_class,
            cursor=self.sender.reverse_cursor,
            marked=packet.marked and kind == ACK,
            readings=packet.readings,
        )
        if self._may_pull and not self._rides and (kind == NACK or (kind == ACK and self.law.stacks == 0)):
            answer.pulls = self._rides = True
        if kind == ACK and self.law.stacks > 0:
            self._held.append((self.network.now + self.law.stacks, answer))
            self.host.plan(self._held[-1][0], AGENDA + ACKNOWLEDGE, self.sender.index, self._acknowledge_if_due)
        else:
            self.host.send_answer(answer)
