"""Flows that links which failed for good have cut off: their senders would send again until the clock ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabricsim.records.packet import HOST
from fabricsim.scenario.suggest import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fabricsim.engine.packet.state import PacketState

_TIMEOUTS = 3
"""Since a link failed for good, before a sender gives up a flow that no way is left for."""
_MOST_NAMED = 3


class CutOff:
    """Finds flows that time out again and again, and have no way left.

    Parameters
    ----------
    network
        Its tables.
    names
        Of its links, for messages.
    """

    def __init__(self, network: PacketState, names: Sequence[str]) -> None:
        self._network, self._names = network, names
        self._since: dict[int, int] = {}
        self._before = np.zeros(0, np.int64)  # timeouts by flow, when last seen with no link down for good

    def expect(self, link: int, begin: int) -> None:
        """Take note of a link that fails for good at `begin`, ps."""
        self._since[link] = min(begin, self._since.get(link, begin))

    @property
    def expected(self) -> bool:
        """Whether any link fails for good."""
        return bool(self._since)

    def find(self) -> list[int]:
        """Find the flows that wait, have timed out `_TIMEOUTS` times, and have no way left."""
        network = self._network
        timeouts = network.flows["timeouts"][: network.used["flows"]]
        down = {link for link in self._since if network.links["down"][link]}
        if not down:
            self._before = timeouts.copy()
            return []
        since = timeouts - np.pad(self._before, (0, len(timeouts) - len(self._before)))
        return [flow for flow in unfinished(network) if since[flow] >= _TIMEOUTS and self._is_cut(flow, down)]

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

    def describe(self, flows: Iterable[int] | None = None) -> str | None:
        """Say which flows (all that wait) are cut off by links that lose packets for good; None if none does."""
        links = {link: begin for link, begin in self._since.items() if self._loses(link)}
        waiting = unfinished(self._network) if flows is None else list(flows)
        if not links or not waiting:
            return None
        return (
            f"nothing is received any more from {self._named(waiting)}, which {_verb(waiting)} again and "
            f"again: {_listed(links, self._names)}; write fabric.failures.until, or ways that avoid the cable "
            "(fabric.paths)"
        )

    def _loses(self, link: int) -> bool:
        row = self._network.links[link]
        return bool(row["down"] and row["errors"])

    def _named(self, waiting: Sequence[int]) -> str:
        flows = self._network.flows[list(waiting)]
        ways = zip(flows["first_link"].tolist(), flows["last_link"].tolist(), strict=True)
        pairs = [f"{_source(self._names[first])} to {_source(self._names[last])}" for first, last in ways]
        return some_of(list(dict.fromkeys(pairs)), _MOST_NAMED)


def unfinished(network: PacketState) -> list[int]:
    """List the flows between hosts that wait for an acknowledgement."""
    flows = network.flows[: network.used["flows"]]
    found: list[int] = np.flatnonzero((flows["first_link"] >= 0) & (flows["acknowledged"] < flows["posted"])).tolist()
    return found


def _verb(flows: Sequence[int]) -> str:
    return "sends" if len(flows) == 1 else "send"


def _source(name: str) -> str:
    """Node that a link begins at."""
    return name.partition("->")[0]


def _listed(links: Mapping[int, int], names: Sequence[str]) -> str:
    down = [f"{names[link]} is down for good since {begin / 1e6:g} us" for link, begin in links.items()]
    return some_of(down, _MOST_NAMED)
