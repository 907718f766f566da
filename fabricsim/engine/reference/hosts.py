"""Hosts: the NIC that serves flows in turn, and the servers between memory and wire."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fabricsim.engine.reference.nodes import AGENDA, Node
from fabricsim.engine.reference.ports import Port
from fabricsim.engine.reference.pulls import Pulls
from fabricsim.records.packet import DATA, PORT_DUE, READ_AHEAD, RECEIVED
from fabricsim.records.program import NONE

if TYPE_CHECKING:
    from fabricsim.engine.reference.links import Link
    from fabricsim.engine.reference.network import Reference
    from fabricsim.engine.reference.packets import Packet
    from fabricsim.engine.reference.senders import Sender


@dataclass
class Server:
    """A resource of a host that serves packets one after the other."""

    free_at: int = 0
    busy: int = 0  # ps
    bytes: int = 0  # payload


@dataclass
class Stage:
    """A server on a flow's way through a host."""

    server: Server
    ps_per_byte: float

    def time_alone(self, payload: int) -> int:
        """Time to serve `payload` bytes if nothing else is there, ps."""
        return math.floor(payload * self.ps_per_byte + 0.5)

    def pass_through(self, payload: int, time: int, now: int) -> int:
        """Serve `payload` bytes, given now, that are here at `time`; returns when that is done, ps."""
        duration = self.time_alone(payload)
        self.server.free_at = max(now, self.server.free_at) + duration
        self.server.busy += duration
        self.server.bytes += payload
        return max(time + duration, self.server.free_at)


def pass_all(stages: list[Stage], payload: int, time: int) -> int:
    """Serve `payload` bytes at each stage in turn, from `time` on; returns when the last is done, ps."""
    now = time
    for stage in stages:
        time = stage.pass_through(payload, time, now)
    return time


def times_alone(stages: list[Stage], payload: int) -> list[int]:
    """Time of each stage to serve `payload` bytes if nothing else is there, ps."""
    return [stage.time_alone(payload) for stage in stages]


@dataclass
class Endpoint:
    """A GPU or a host's memory: packets on their way to it through its host."""

    packets: deque[Packet] = field(default_factory=deque)
    waiting: deque[Packet] = field(default_factory=deque)  # for the servers
    received_at: int = 0  # the last of `packets`, ps


class Host(Node):
    """Sends and receives; its NIC takes a packet from each flow in turn."""

    def __init__(self, network: Reference, index: int) -> None:
        super().__init__(network, index)
        self.round: deque[Sender] = deque()
        self._port_index = int(network.tables.nodes[index]["port"])
        self.link: Link = network.links[int(network.tables.ports[self._port_index]["link"])]
        self.pulls = Pulls(self)
        self._due = -1
        self._departures: deque[int] = deque(maxlen=READ_AHEAD)  # of the last packets taken, ps

    def reconsider(self, sender: Sender) -> None:
        """Let a flow whose state has changed join the round, or leave it."""
        inside = sender in self.round
        if sender.may_send() == inside:
            return
        if inside:
            self.round.remove(sender)
        else:
            self.round.append(sender)
        self.serve()

    def serve(self) -> None:
        """Send what may be sent now, and plan to go on."""
        if self.link.port is not None:
            self.link.port.serve()
            return
        while self.round:
            time = self.next_take()
            if self.network.now < time:
                self._plan_service(time)
                return
            packet = self.next_packet()
            ready = self._pass_way_out(packet)
            if self.link.down:
                self.link.waste(packet, ready)
            else:
                self.link.transmit(packet, ready)
            self._note_departure(ready)

    def _plan_service(self, time: int) -> None:
        if time != self._due:
            self._due = time
            self.plan(time, AGENDA + PORT_DUE, self._port_index, self.serve)

    def next_packet(self) -> Packet:
        """Take a packet from the first flow of the round, which may join its end."""
        sender = self.round.popleft()
        packet = sender.take()
        if sender.may_send():
            self.round.append(sender)
        return packet

    def _pass_way_out(self, packet: Packet) -> int:
        return pass_all(self.network.senders[packet.flow].way_out, packet.payload, self.network.now)

    def send_past_queues(self, port: Port) -> None:
        """Send a packet of the first flow of the round through a managed NIC."""
        packet = self.next_packet()
        ready = self._pass_way_out(packet)
        port.send_past_queues(packet, ready)
        self._note_departure(ready)

    def next_take(self) -> int:
        """When the next packet of the round's first flow may be taken, ps."""
        if self.round[0].law["device_queue"]:
            return 0
        if not self.round[0].way_out:
            return self.link.free_at
        return self._departures[0] if len(self._departures) == READ_AHEAD else 0

    def _note_departure(self, ready: int) -> None:
        self._departures.append(max(ready, self.link.free_at))

    def send_answer(self, packet: Packet) -> None:
        """Send an ACK, NACK, CNP or PULL."""
        if self.link.port is not None:
            self.link.port.enqueue(packet)
        else:
            self.link.transmit(packet, self.network.now)

    def arrive(self, packet: Packet) -> None:
        """Take a packet; one with payload passes the servers first, and is in the receive buffer until then."""
        link, traffic_class = packet.came_by, packet.traffic_class
        self.take_in(packet)
        if self.accounts:
            self.used += packet.wire
        way_in = self.network.senders[packet.flow].way_in
        if packet.carries_data and way_in:
            endpoint = self.network.senders[packet.flow].endpoint
            self.network.endpoints[endpoint].waiting.append(packet)
            self._serve_waiting(endpoint)
        else:
            self._receive(packet)
        if link is not None:
            self.pause_if_full(link, traffic_class)

    def _serve_waiting(self, endpoint: int) -> None:
        """Give packets that wait to the servers, which hold a number of them."""
        there = self.network.endpoints[endpoint]
        while there.waiting:
            if len(there.packets) == READ_AHEAD:
                return
            packet = there.waiting.popleft()
            time = pass_all(self.network.senders[packet.flow].way_in, packet.payload, self.network.now)
            there.packets.append(packet)
            there.received_at = max(time, there.received_at)
            self.plan(there.received_at, AGENDA + RECEIVED, endpoint, lambda: self._receive_first(endpoint))

    def _receive_first(self, endpoint: int) -> None:
        self._receive(self.network.endpoints[endpoint].packets.popleft())
        self._serve_waiting(endpoint)

    def _receive(self, packet: Packet) -> None:
        if self.accounts:
            self.used -= packet.wire
        self.let_out(packet)
        if packet.kind == DATA:
            self.network.receivers[packet.flow].receive(packet)
        else:
            self.network.senders[packet.flow].receive(packet)


class ManagedNic(Port):
    """A host's managed port: what waits in its queues goes first, then data from the flows."""

    node: Host

    def serve(self) -> None:
        """Send what waits and may go, behind what was taken; take data as soon as it can be at the wire in time."""
        while self.may_send_next():
            self._send_next()
        while self._may_take_data():
            time = self.node.next_take()
            if self.network.now < time:
                self.plan_service(time)
                return
            self.node.send_past_queues(self)

    def _may_take_data(self) -> bool:
        if not self.node.round:
            return False
        first = self.node.round[0]
        return self.allows(first.data_class, first.full_wire)


def stages_of(network: Reference, first: int, count: int) -> list[Stage]:
    """Return rows `first` to ``first + count`` of the table of stages, with their servers."""
    rows: Any = network.tables.stages[first : first + count] if first != NONE else []
    return [Stage(network.servers[int(row["server"])], float(row["ps_per_byte"])) for row in rows]
