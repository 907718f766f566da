"""Builds templates whose members do different things, step by step."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.base import Template, steps
from fabricsim.records.program import NONE


@dataclass
class _Row:
    """Columns of a ``STEP``."""

    wait: int = NONE
    needed: int = 0
    send: int = NONE
    shard: int = 0
    shards: int = 1
    into: int = 0
    reduce: int = 0
    run: int = 0
    every: int = 0


@dataclass
class Builder:
    """Gathers the steps of every lane; absolute shards only.

    `members`, `shards`, `strands`, `switches`, `scratch`: as of `fabricsim.collectives.base.Template`.
    """

    members: int
    shards: int
    strands: int = 1
    switches: tuple[int, ...] = ()
    scratch: int = 0
    _rows: dict[int, list[_Row]] = field(default_factory=dict)
    _inboxes: dict[tuple[int, int], int] = field(default_factory=dict)
    _outs: dict[tuple[int, int], int] = field(default_factory=dict)
    _count: dict[tuple[int, int], int] = field(default_factory=dict)
    _ins: dict[int, int] = field(default_factory=dict)
    _sends: dict[int, int] = field(default_factory=dict)

    def receive(  # noqa: PLR0913  the last two are rarely given, and by name only
        self, lane: int, source: int, into: int, shards: int = 1, *, reduce: bool = False, every: int = 0
    ) -> None:
        """Let a lane wait for a message of another, which it copies to its shards, or reduces with them.

        `every`: distance of the shards; they lie side by side if it is left out.
        """
        inbox = self._inbox(lane, source)
        self._count[lane, inbox] = self._count.get((lane, inbox), 0) + 1
        row = _Row(inbox, self._count[lane, inbox], into=into, reduce=shards if reduce else 0)
        row.run, row.every = (1, every) if every else (0, 0)
        self._rows.setdefault(lane, []).append(row)

    def send(self, lane: int, target: int, shard: int, shards: int = 1, *, every: int = 0) -> None:
        """Let a lane send shards to another; `every` as in `receive`."""
        if (lane, target) not in self._outs:
            self._outs[lane, target] = self._sends[lane] = self._sends.get(lane, -1) + 1
            self._inbox(target, lane)
        rows = self._rows.setdefault(lane, [])
        if not rows or rows[-1].send != NONE or rows[-1].every != every:  # a row has one distance
            rows.append(_Row())
        rows[-1].run, rows[-1].every = (1, every) if every else (0, 0)
        rows[-1].send, rows[-1].shard, rows[-1].shards = self._outs[lane, target], shard, shards

    def _inbox(self, lane: int, source: int) -> int:
        if (lane, source) not in self._inboxes:
            self._inboxes[lane, source] = self._ins[lane] = self._ins.get(lane, -1) + 1
        return self._inboxes[lane, source]

    @property
    def widest(self) -> int:
        """Connections of the lane that has most, in or out."""
        return 1 + max((*self._ins.values(), *self._sends.values()), default=0)

    def build(self) -> Template:
        """Freeze the template; equal scripts are stored once."""
        lanes = self.members * self.strands + len(self.switches)
        connections = np.full((lanes, max(self._sends.values(), default=0) + 1, 2), NONE, np.int32)
        sources = np.full((lanes, max(self._ins.values(), default=0) + 1), NONE, np.int32)
        for (lane, source), inbox in self._inboxes.items():
            sources[lane, inbox] = source
        for (lane, target), out in self._outs.items():
            connections[lane, out] = target, self._inboxes[target, lane]
        alike: dict[bytes, NDArray[np.void]] = {}
        scripts = [self._script(lane) for lane in range(lanes)]
        return Template(
            tuple(alike.setdefault(script.tobytes(), script) for script in scripts),
            relative=False,
            members=self.members,
            shards=self.shards,
            connections=connections,
            sources=sources,
            strands=self.strands,
            switches=self.switches,
            scratch=self.scratch,
        )

    def _script(self, lane: int) -> NDArray[np.void]:
        rows = self._rows.get(lane, [])
        table = steps(len(rows))
        for column in ("wait", "needed", "send", "shard", "shards", "into", "reduce", "run", "every"):
            table[column] = [getattr(row, column) for row in rows]
        table["per_turn"] = [0 if row.wait == NONE else self._count[lane, row.wait] for row in rows]
        return table
