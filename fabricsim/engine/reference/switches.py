"""Switches: which link a packet takes."""

from fabricsim.engine.reference.flows import NetworkParts
from fabricsim.engine.reference.links import Link
from fabricsim.engine.reference.nodes import Node
from fabricsim.engine.reference.packets import Packet
from fabricsim.records.packet import DATA, HOST
from fabricsim.records.program import NONE
from fabricsim.topology.shortest_paths import mix
from fabricsim.transports.dispatch import tell


class Switch(Node):
    """Forwards packets by their path, or by its own choice among the shortest ways."""

    network: NetworkParts

    def __init__(self, network: NetworkParts, index: int) -> None:
        super().__init__(network, index)
        self._hosts = int((network.tables.nodes["kind"] == HOST).sum())

    def arrive(self, packet: Packet) -> None:
        """Forward a packet."""
        link = self.next_link(packet)
        if link.port is None:
            link.transmit(packet, self.network.now)
        else:
            link.port.enqueue(packet)

    def next_link(self, packet: Packet) -> Link:
        """Link that a packet takes from here; its cursor moves on."""
        choices = self._choices(packet)
        flow = self.network.flows[packet.flow]
        if not flow.law.weighs or len(choices) == 1:
            return choices[0]
        rule = self.network.tables.dispatch.rules[flow.law.balance]
        weights = [tell(rule, "weigh", flow.record, place, link.drain_time()) for place, link in enumerate(choices)]
        return min(zip(choices, weights, strict=True), key=lambda pair: (pair[0].down, pair[1]))[0]

    def _choices(self, packet: Packet) -> list[Link]:
        """Links that a packet may take from here, beginning with the one that its hash says; its cursor moves on."""
        if packet.cursor != NONE:
            packet.cursor += 1
            return [self.network.links[int(self.network.tables.paths[packet.cursor - 1])]]
        flow = self.network.flows[packet.flow]
        links = self._closer_to(flow.target if packet.kind == DATA else flow.source)
        place = mix(mix(flow.key ^ packet.entropy) ^ mix(self.index + 1)) % len(links)
        return links[place:] + links[:place]

    def _closer_to(self, host: Node) -> list[Link]:
        tables = self.network.tables
        group = int(tables.group_of[self.number * self._hosts + host.number])
        members = tables.group_links[int(tables.groups[group]) : int(tables.groups[group + 1])]
        return [self.network.links[int(link)] for link in members]
