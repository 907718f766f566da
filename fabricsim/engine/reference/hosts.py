"""Hosts: the NIC that serves flows in turn, and the servers between memory and wire."""

from collections import deque

from fabricsim.engine.reference.flows import Flow, NetworkParts
from fabricsim.engine.reference.links import Link
from fabricsim.engine.reference.nodes import AGENDA, Node
from fabricsim.engine.reference.packets import Packet
from fabricsim.engine.reference.ports import Port
from fabricsim.engine.reference.stages import pass_all
from fabricsim.records.packet import DATA, PORT_DUE, READ_AHEAD, RECEIVED


class Host(Node):
    """Sends and receives; its NIC takes a packet from each flow in turn."""

    network: NetworkParts

    def __init__(self, network: NetworkParts, index: int) -> None:
        super().__init__(network, index)
        self.round: deque[Flow] = deque()
        self._port_index = int(network.tables.nodes[index]["port"])
        self.link: Link = network.links[int(network.tables.ports[self._port_index]["link"])]
        self._due = -1
        self._departures: deque[int] = deque(maxlen=READ_AHEAD)  # of the last packets taken, ps

    def reconsider(self, sender: Flow) -> None:
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
        return pass_all(self.network.flows[packet.flow].way_out, packet.payload, self.network.now)

    def send_past_queues(self, port: Port) -> None:
        """Send a packet of the first flow of the round through a managed NIC."""
        packet = self.next_packet()
        ready = self._pass_way_out(packet)
        port.send_past_queues(packet, ready)
        self._note_departure(ready)

    def next_take(self) -> int:
        """When the next packet of the round's first flow may be taken, ps."""
        if self.round[0].law.device_queue:
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
        way_in = self.network.flows[packet.flow].way_in
        if packet.carries_data and way_in:
            endpoint = self.network.flows[packet.flow].endpoint
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
            time = pass_all(self.network.flows[packet.flow].way_in, packet.payload, self.network.now)
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
            self.network.inboxes[packet.flow].receive(packet)
        else:
            self.network.flows[packet.flow].receive(packet)


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
