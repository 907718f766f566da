"""What hosts and switches know of a flow, and of one another."""

from __future__ import annotations

from typing import Any, Protocol

from fabricsim.engine.reference.links import Link
from fabricsim.engine.reference.nodes import Node
from fabricsim.engine.reference.packets import Packet
from fabricsim.engine.reference.rows import Rows
from fabricsim.engine.reference.shared import Shared
from fabricsim.engine.reference.stages import Endpoint, HostStage, Server
from fabricsim.records.program import NONE


def first_choice(path: int) -> int:
    """Place in the table of paths of what the first switch is to take: the path begins with the host's link."""
    return path + 1 if path >= 0 else NONE


class Inbox(Protocol):
    """Where the packets of a flow go that have reached a host."""

    def receive(self, packet: Packet) -> None:
        """Take a packet."""


class Flow:
    """A flow, its way through its hosts included.

    `row`: its FLOW record.
    `record`, `law`: those of its law, as of `fabricsim.engine.reference.rows.Rows`: as kernels take it, and as numbers.
    """

    source: Node
    target: Node

    def __init__(self, network: NetworkParts, index: int, rows: Rows) -> None:
        self.row = rows.flows[index]
        number = int(self.row["law"])
        self.record, self.law = rows.laws[number], rows.values[number]
        self.index = index
        row = self.row
        self.key = int(row["key"])
        self.cursor = first_choice(int(row["path"]))
        self.reverse_cursor = first_choice(int(row["reverse_path"]))
        self.way_out = network.stages(int(row["first_stage"]), int(row["stages"]))
        self.way_in = network.stages(int(row["first_exit"]), int(row["exits"]))
        self.endpoint = int(row["endpoint"])
        self.data_class = self.law.data_class
        self.full_wire = int(row["wire"])

    def may_send(self) -> bool:
        """Whether there is something to send, and window and pace allow a packet now."""
        raise NotImplementedError

    def take(self) -> Packet:
        """Take the next packet."""
        raise NotImplementedError

    def receive(self, answer: Packet) -> None:
        """Take an answer."""
        raise NotImplementedError


class NetworkParts(Shared):
    """The network as its hosts and switches know it: links, flows and what flows pass, each by its number."""

    links: list[Link]
    servers: list[Server]
    endpoints: list[Endpoint]
    flows: list[Flow]
    inboxes: list[Inbox]

    def stages(self, first: int, count: int) -> list[HostStage]:
        """Return rows `first` to ``first + count`` of the table of stages, with their servers."""
        rows: Any = self.tables.stages[first : first + count] if first != NONE else []
        return [HostStage(self.servers[int(row["server"])], float(row["ps_per_byte"])) for row in rows]
