"""Connections that links which failed for good have cut off: their senders would send again until the clock ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.spec.suggest import some_of
from fabricsim.tables import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabricsim.engine.packet_state import PacketState

_TIMEOUTS = 3
"""In a row, of every flow that waits, before it counts as cut off."""
_MOST_NAMED = 3


class _Look(NamedTuple):
    """What had been received, sent in vain and lost at one time: packets in sequence, timeouts by flow, packets."""

    received: int
    timeouts: list[int]
    lost: int


class CutOff:
    """Notices that nothing is received any more because links have failed for good.

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
        self._before: _Look | None = None

    def expect(self, link: int, begin: int) -> None:
        """Take note of a link that fails for good at `begin`, ps."""
        self._since[link] = min(begin, self._since.get(link, begin))

    @property
    def expected(self) -> bool:
        """Whether any link fails for good."""
        return bool(self._since)

    def explain(self) -> str | None:
        """Say what is cut off, where nothing was received while every flow that waits timed out again and again.

        None where something was received since the last call that gave another answer, or since none was made.
        """
        now, before = self._look(), self._before
        if before is None or now.received != before.received:
            self._before = now
            return None
        earlier = [*before.timeouts, *[0] * (len(now.timeouts) - len(before.timeouts))]
        waiting = self._waiting()
        tried = all(now.timeouts[flow] - earlier[flow] >= _TIMEOUTS for flow in waiting)
        return self.describe() if tried and now.lost > before.lost else None

    def describe(self) -> str | None:
        """Say which flows wait and which links have lost packets since they failed for good; None where none has."""
        links = {link: begin for link, begin in self._since.items() if self._lost(link)}
        waiting = self._waiting()
        if not links or not waiting:
            return None
        one = len(waiting) == 1
        return (
            f"nothing is received any more from {self._named(waiting)}, which {'sends' if one else 'send'} again and "
            f"again: {_listed(links, self._names)}; write fabric.failures.until, or ways that avoid the cable "
            "(fabric.paths)"
        )

    def _look(self) -> _Look:
        flows, receivers = self._network.flows, self._network.receivers
        lost = sum(self._lost(link) for link in self._since)
        return _Look(int(receivers["expected"].sum()), flows["timeouts"][: self._network.used["flows"]].tolist(), lost)

    def _lost(self, link: int) -> int:
        row = self._network.links[link]
        return int(row["errors"]) if row["down"] else 0

    def _waiting(self) -> list[int]:
        """Flows between hosts that have something to send which was not received."""
        count = self._network.used["flows"]
        flows, receivers = self._network.flows[:count], self._network.receivers[:count]
        waits = (flows["first_link"] != NONE) & (receivers["expected"] < flows["posted"])
        found: list[int] = np.flatnonzero(waits).tolist()
        return found

    def _named(self, waiting: Sequence[int]) -> str:
        flows = self._network.flows[list(waiting)]
        ways = zip(flows["first_link"].tolist(), flows["last_link"].tolist(), strict=True)
        pairs = [f"{_source(self._names[first])} to {_source(self._names[last])}" for first, last in ways]
        return some_of(list(dict.fromkeys(pairs)), _MOST_NAMED)


def _source(name: str) -> str:
    """Node that a link begins at."""
    return name.partition("->")[0]


def _listed(links: Mapping[int, int], names: Sequence[str]) -> str:
    down = [f"{names[link]} is down for good since {begin / 1e6:g} us" for link, begin in links.items()]
    return some_of(down, _MOST_NAMED)
