"""What all parts of the network share: the tables, the clock, and notes of what happens."""

from collections import Counter
from typing import Any

import simpy
from numpy.typing import NDArray

from fabricsim.engine.packet.state import PacketState
from fabricsim.engine.reference.packets import Control, Delivery, Entry

Table = NDArray[Any]


class Shared:
    """What a part of the network may ask the network for."""

    def __init__(self, tables: PacketState) -> None:
        self.tables = tables
        self.environment = simpy.Environment()
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
