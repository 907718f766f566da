"""What all parts of the network share: the tables, the clock, and notes of what happens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import simpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fabricsim.engine.reference.packets import Control, Delivery, Entry
    from fabricsim.transports.dispatch import Dispatch

    Table = NDArray[Any]


class NetworkTables(Protocol):
    """What the engines are given: one table per kind of record of `fabricsim.records.packet`."""

    @property
    def dispatch(self) -> Dispatch: ...  # noqa: D102  laws and load-balancing rules by number
    @property
    def world(self) -> Table: ...  # noqa: D102  columns are told in fabricsim.records.packet
    @property
    def nodes(self) -> Table: ...  # noqa: D102
    @property
    def ins(self) -> Table: ...  # noqa: D102
    @property
    def links(self) -> Table: ...  # noqa: D102
    @property
    def ports(self) -> Table: ...  # noqa: D102
    @property
    def queues(self) -> Table: ...  # noqa: D102
    @property
    def ingress(self) -> Table: ...  # noqa: D102
    @property
    def paths(self) -> Table: ...  # noqa: D102
    @property
    def group_of(self) -> Table: ...  # noqa: D102
    @property
    def groups(self) -> Table: ...  # noqa: D102
    @property
    def group_links(self) -> Table: ...  # noqa: D102
    @property
    def flows(self) -> Table: ...  # noqa: D102
    @property
    def laws(self) -> Table: ...  # noqa: D102
    @property
    def stages(self) -> Table: ...  # noqa: D102
    @property
    def servers(self) -> Table: ...  # noqa: D102
    @property
    def endpoints(self) -> Table: ...  # noqa: D102


class Shared:
    """What a part of the network may ask the network for."""

    def __init__(self, tables: NetworkTables, environment: simpy.Environment | None) -> None:
        self.tables = tables
        self.environment = environment or simpy.Environment()
        self.seed = int(tables.world[0]["seed"])
        self.entries: list[Entry] = []
        self.completed: list[Delivery] = []
        self.sent_controls: list[Control] = []
        self.hops: Counter[int] = Counter()  # packets put on links, by kind

    @property
    def now(self) -> int:
        """Simulated time, ps."""
        return int(self.environment.now)

    def wake(self, node: int, time: int) -> None:
        """Have a node act at `time` (ps)."""
        raise NotImplementedError
