"""Flows that links which failed for good have cut off: their senders would send again until the clock ends."""

import numpy as np
from numpy.typing import NDArray

from fabricsim.engine.flow.outages import GIVEN_UP_AFTER
from fabricsim.engine.packet.state import PacketState
from fabricsim.records.packet import HOST


class CutOff:
    """Finds flows that time out again and again, and have no way left."""

    def __init__(self, network: PacketState) -> None:
        self._network = network
        self._before = np.zeros(0, np.int64)  # timeouts by flow, when last seen with no link down for good

    def count(self) -> None:
        """Take note of how often flows have timed out until now, when a link fails."""
        self._before = self._network.flows["timeouts"][: self._network.used["flows"]].copy()

    def find(self, down: set[int]) -> list[int]:
        """Find the flows that wait, have timed out often enough, and have no way left but over links that are down."""
        network = self._network
        if not down:
            return []
        timeouts = network.flows["timeouts"][: network.used["flows"]]
        since = timeouts - np.pad(self._before, (0, len(timeouts) - len(self._before)))
        return [flow for flow in unfinished(network) if since[flow] >= GIVEN_UP_AFTER and self._is_cut(flow, down)]

    def _is_cut(self, flow: int, down: set[int]) -> bool:
        network, row = self._network, self._network.flows[flow]
        if row["path"] >= 0:
            hops = int(row["hops"])
            return any(
                not down.isdisjoint(network.paths[first : first + hops].tolist())
                for first in (int(row["path"]), int(row["reverse_path"]))
            )
        there, back = (int(row["first_link"]), int(row["target"])), (int(row["last_link"]), int(row["source"]))
        return not (self._leads(*there, down) and self._leads(*back, down))

    def _leads(self, link: int, target: int, down: set[int]) -> bool:
        """Whether packets that go by a link may get to a host, where each switch chooses among the shortest ways."""
        network, seen, links = self._network, set[int](), [link]
        while links:
            link = links.pop()
            node = int(network.links["target"][link])
            if link in down or node in seen:
                continue
            if node == target:
                return True
            seen.add(node)
            links += self._choices(node, target).tolist()
        return False

    def _choices(self, node: int, target: int) -> NDArray[np.int32]:
        network = self._network
        numbers, hosts = network.nodes["number"], np.count_nonzero(network.nodes["kind"] == HOST)
        group = network.group_of[int(numbers[node]) * hosts + int(numbers[target])]
        return network.group_links[network.groups[group] : network.groups[group + 1]]


def unfinished(network: PacketState) -> list[int]:
    """List the flows between hosts that wait for an acknowledgement."""
    flows = network.flows[: network.used["flows"]]
    return np.flatnonzero((flows["first_link"] >= 0) & (flows["acknowledged"] < flows["posted"])).tolist()
