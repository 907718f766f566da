"""The simulated network as a whole: made from tables, run by SimPy."""

from collections.abc import Callable, Iterable
from typing import Any

from fabricsim.engine.packet.state import PacketState
from fabricsim.engine.reference.flows import NetworkParts
from fabricsim.engine.reference.hosts import Host, ManagedNic
from fabricsim.engine.reference.links import Link
from fabricsim.engine.reference.nodes import Node
from fabricsim.engine.reference.packets import Control, Delivery, Entry
from fabricsim.engine.reference.ports import Port
from fabricsim.engine.reference.pulls import Pulls
from fabricsim.engine.reference.receivers import Receiver
from fabricsim.engine.reference.rows import Rows
from fabricsim.engine.reference.senders import Sender
from fabricsim.engine.reference.stages import Endpoint, Server
from fabricsim.engine.reference.switches import Switch
from fabricsim.records.packet import HOST
from fabricsim.records.program import NONE


class Reference(NetworkParts):
    """The packet engine's semantics in SimPy, whose time is integer picoseconds.

    `tables`: the initial tables; they are left as they are.
    """

    def __init__(self, tables: PacketState) -> None:
        super().__init__(tables)
        self._posts: dict[int, list[Callable[[], None]]] = {}
        self._due: dict[int, set[int]] = {}  # nodes that have something to do, by time
        self.rows = Rows(tables.laws)
        self.servers, self.endpoints, self.flows, self.inboxes = [], [], [], []
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.links = [Link(self, index) for index in range(len(tables.links))]
        self.nodes = self._make_nodes()
        self.hosts = {node.index: node for node in self.nodes if isinstance(node, Host)}
        self._pulls = {index: Pulls(host) for index, host in self.hosts.items()}
        self._connect()
        self.take_in_flows()

    def take_in_flows(self) -> None:
        """Take in the flows, and the servers and endpoints, that have come into the tables."""
        tables, before = self.tables, len(self.senders)
        self.servers += [Server() for _ in tables.servers[len(self.servers) :]]
        self.endpoints += [Endpoint() for _ in tables.endpoints[len(self.endpoints) :]]
        self.rows.take_in(tables.flows[before:])
        senders = [Sender(self, index, self.rows, self.hosts) for index in range(before, len(self.rows.flows))]
        self.senders += senders
        self.receivers += [Receiver(self, sender, self._pulls[sender.target.index]) for sender in senders]
        self.flows += senders
        self.inboxes += self.receivers[before:]

    def _make_nodes(self) -> list[Node]:
        kinds = self.tables.nodes["kind"]
        return [Host(self, index) if kind == HOST else Switch(self, index) for index, kind in enumerate(kinds)]

    def _connect(self) -> None:
        for link, row in zip(self.links, self.tables.links, strict=True):
            link.source = self.nodes[int(row["source"])]
            link.target = self.nodes[int(row["target"])]
            if row["reverse"] != NONE:
                link.reverse = self.links[int(row["reverse"])]
            if row["port"] != NONE:
                kind = ManagedNic if isinstance(link.source, Host) else Port
                link.port = kind(self, int(row["port"]), link, link.source)

    def post(self, time: int, flow: int, size_bytes: int, owner: int) -> None:
        """Give `flow` a message of `size_bytes` at `time` (ps, not in the past)."""
        self._posts.setdefault(time, []).append(lambda: self._post(flow, size_bytes, owner))
        self.wake(self.senders[flow].source.index, time)

    def wake(self, node: int, time: int) -> None:
        """Have a node act at `time` (ps)."""
        if time not in self._due:
            self._due[time] = set()
            self.environment.timeout(time - self.environment.now).callbacks.append(self._act)
        self._due[time].add(node)

    def _act(self, _event: Any) -> None:  # noqa: ANN401  SimPy is not typed
        """Take messages in the order in which they were posted, then let nodes act in the order of their numbers.

        The order among nodes matters to NICs of one host that share servers, and to no other nodes.
        """
        for post in self._posts.pop(self.now, []):
            post()
        due = self._due[self.now]
        while due:
            node = min(due)
            due.remove(node)
            self.nodes[node].act()
        del self._due[self.now]

    def _post(self, flow: int, size_bytes: int, owner: int) -> None:
        sender, receiver = self.senders[flow], self.receivers[flow]
        packets = max(1, -(-size_bytes // sender.law.payload))
        receiver.messages.append((len(sender.payloads) + packets, owner))
        sender.post(size_bytes)

    def reroute(self, flows: Iterable[int]) -> None:
        """Have flows send their next packets by the ways that the tables now have for them."""
        for flow in flows:
            row = self.tables.flows[flow]
            self.rows.take_telemetry(row)
            self.senders[flow].take_way(row)

    def run(self, until: int | None = None) -> None:
        """Run until nothing is left to do, or up to time `until` (ps), which is left for the next run."""
        self.environment.run(until)

    @property
    def log(self) -> list[Entry]:
        """All packets put on a link or lost before it, by time and link."""
        return sorted(self.entries, key=lambda entry: (entry.time, entry.link))

    @property
    def deliveries(self) -> list[Delivery]:
        """The messages delivered, by time and flow."""
        return sorted(self.completed, key=lambda delivery: (delivery.time, delivery.flow))

    @property
    def controls(self) -> list[Control]:
        """The control frames sent, by time and link."""
        return sorted(self.sent_controls, key=lambda control: (control.time, control.link))

    @property
    def counters(self) -> list[dict[str, int]]:
        """Per link: packets, bytes and what befell them, as in `fabricsim.engine.reference.links`."""
        return [dict(link.counters) for link in self.links]
