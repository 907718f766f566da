"""Managed egress ports: traffic classes, PFC, credits, shared buffers, trimming."""

from collections import deque
from dataclasses import dataclass, field

from fabricsim.engine.reference.links import Link
from fabricsim.engine.reference.nodes import AGENDA, PAUSE, RESUME, Node, credits_for
from fabricsim.engine.reference.packets import Packet
from fabricsim.engine.reference.shared import Shared
from fabricsim.records.packet import CLASSES, PORT_DUE


@dataclass(eq=False)
class Queue:
    """One class of a port."""

    traffic_class: int
    weight: int
    credits: int
    alpha: float
    lossless: bool
    packets: deque[Packet] = field(default_factory=deque)
    deficit: int = 0
    bytes: int = 0
    waiting: int = 0  # serialisation time of its packets, ps
    paused: bool = False


class Port:
    """An egress port that decides at each departure what goes next."""

    def __init__(self, network: Shared, index: int, link: Link, node: Node) -> None:
        row = network.tables.ports[index]
        self.network = network
        self.index = index
        self.link = link
        self.node = node
        self.weighted = bool(row["weighted"])
        self.trimming = bool(row["trimming"])
        self.mark_late = bool(row["mark_late"])
        self.has_credits = int(row["credit_bytes"]) > 0
        self.turn = 0
        self._visited = False  # the class whose turn it is has had its weight
        self.queues = [self._queue(traffic_class) for traffic_class in range(int(row["classes"]))]
        self._due = -1
        self._paused_since = 0  # some class, ps

    def _queue(self, traffic_class: int) -> Queue:
        row = self.network.tables.queues[self.index * CLASSES + traffic_class]
        return Queue(traffic_class, int(row["weight"]), int(row["credits"]), float(row["alpha"]), bool(row["lossless"]))

    @property
    def waiting(self) -> int:
        """Serialisation time of all that waits, ps."""
        return sum(queue.waiting for queue in self.queues)

    def measure(self) -> None:
        """Work out how long what waits takes to leave, after the rate has changed."""
        for queue in self.queues:
            queue.waiting = sum(self.link.serialisation(packet.wire) for packet in queue.packets)

    def enqueue(self, packet: Packet) -> None:
        """Take a packet into its queue, or trim or drop it."""
        link = self.link
        if link.down:
            link.lose(packet)
            self.node.return_credits(packet)
            return
        drain = self._drain(packet)
        if self._overflows(packet, drain):
            self._trim_or_drop(packet)
        else:
            if not self.mark_late:
                link.mark(packet, drain)
            self._join(packet)

    def _drain(self, packet: Packet) -> int:
        return self.queues[packet.traffic_class].waiting + self.link.residual()

    def _exceeds_limit(self, packet: Packet, drain: int) -> bool:
        return drain + self.link.serialisation(packet.wire) > self.link.limit

    def _overflows(self, packet: Packet, drain: int) -> bool:
        node, queue = self.node, self.queues[packet.traffic_class]
        if self._exceeds_limit(packet, drain):
            return True
        if not queue.lossless:
            if node.buffer == 0:
                return False
            free = node.buffer - node.used
            return packet.wire > free or queue.bytes + packet.wire > queue.alpha * free
        if not node.accounts or packet.came_by is None:
            return False
        ingress = node.ingress[packet.came_by.index, packet.traffic_class]
        return ingress.pausing and ingress.bytes + packet.wire > ingress.held + ingress.headroom

    def _trim_or_drop(self, packet: Packet) -> None:
        # The copy in the log of a packet that cannot be saved is the packet as it came.
        wire, payload, traffic_class = packet.wire, packet.payload, packet.traffic_class
        if self.trimming and packet.carries_data:
            packet.trim()
            if not self._exceeds_limit(packet, self._drain(packet)):
                self.link.counters["trims"] += 1
                self._join(packet)
                return
            packet.trimmed = False
            packet.wire, packet.payload, packet.traffic_class = wire, payload, traffic_class
        self.link.drop(packet)
        self.node.return_credits(packet)

    def _join(self, packet: Packet) -> None:
        node, queue = self.node, self.queues[packet.traffic_class]
        self.link.note_depth(self._drain(packet) + self.link.serialisation(packet.wire))
        node.take_in(packet)
        if self._counts_in_buffer(packet):
            node.used += packet.wire
        queue.packets.append(packet)
        queue.bytes += packet.wire
        queue.waiting += self.link.serialisation(packet.wire)
        self.serve()
        if packet.came_by is not None:
            node.pause_if_full(packet.came_by, packet.traffic_class)

    def _counts_in_buffer(self, packet: Packet) -> bool:
        return self.node.buffer > 0 or (self.node.accounts and packet.came_by is not None)

    def control(self, traffic_class: int, amount: int) -> None:
        """Take a PAUSE, a RESUME or credits for one class."""
        queue = self.queues[traffic_class]
        before = self._is_paused()
        if amount == PAUSE:
            queue.paused = True
            self.link.counters["pauses"] += 1
        elif amount == RESUME:
            queue.paused = False
            if before and not self._is_paused():
                self.link.counters["paused"] += self.network.now - self._paused_since
        else:
            queue.credits += amount
        if self._is_paused() and not before:
            self._paused_since = self.network.now
        self.serve()

    def _is_paused(self) -> bool:
        return any(queue.paused for queue in self.queues)

    def serve(self) -> None:
        """Send what may go while the wire is free, and plan to go on."""
        while self.may_send_next():
            if self.link.free_at > self.network.now:
                self.plan_service(self.link.free_at)
                return
            self._send_next()

    def plan_service(self, time: int) -> None:
        """Serve again at `time`, ps."""
        if time != self._due:
            self._due = time
            self.node.plan(time, AGENDA + PORT_DUE, self.index, self.serve)

    def may_send_next(self) -> bool:
        """Whether something waits that may go when the wire is free."""
        return any(self._can_send(queue) for queue in self.queues)

    def allows(self, traffic_class: int, wire: int) -> bool:
        """Whether a packet of `wire` bytes of a class may go: it is not paused and has the credits."""
        queue = self.queues[traffic_class]
        return not queue.paused and (not self.has_credits or queue.credits >= credits_for(wire))

    def _can_send(self, queue: Queue) -> bool:
        return bool(queue.packets) and self.allows(queue.traffic_class, queue.packets[0].wire)

    def _send_next(self) -> None:
        queue = self._weighted_choice() if self.weighted else self._strict_choice()
        packet = queue.packets.popleft()
        queue.bytes -= packet.wire
        queue.waiting -= self.link.serialisation(packet.wire)
        if self.mark_late:
            self.link.mark(packet, queue.waiting)
        if self._counts_in_buffer(packet):
            self.node.used -= packet.wire
        self._send(packet, self.network.now)

    def _strict_choice(self) -> Queue:
        return next(queue for queue in self.queues if self._can_send(queue))

    def _weighted_choice(self) -> Queue:
        while True:
            queue = self.queues[self.turn]
            if not queue.packets:
                queue.deficit = 0
            elif self._can_send(queue):
                queue.deficit += 0 if self._visited else queue.weight
                self._visited = True
                if queue.deficit >= queue.packets[0].wire:
                    queue.deficit -= queue.packets[0].wire
                    return queue
            self.turn = (self.turn + 1) % len(self.queues)
            self._visited = False

    def send_past_queues(self, packet: Packet, ready: int) -> None:
        """Send a host's data packet, which waits in its flow and not here, from `ready` (ps) on."""
        if self.link.down:
            self.link.waste(packet, ready)
        else:
            self._send(packet, ready)

    def _send(self, packet: Packet, ready: int) -> None:
        queue = self.queues[packet.traffic_class]
        arrives = self.link.put_on_wire(packet, ready, queue.waiting)
        if self.has_credits and arrives:  # receivers make up for what is lost on the wire
            queue.credits -= credits_for(packet.wire)
        self.node.let_out(packet)
