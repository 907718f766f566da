"""One rank's ops, added in the order in which it launches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.tables import OVERLAPPED_STREAM
from fabricsim.workload.program import Call
from fabricsim.workload.work import Exchange, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabricsim.spec.cluster import Gpu
    from fabricsim.workload.placement import Placement
    from fabricsim.workload.program import CollectiveName, ProgramBuilder
    from fabricsim.workload.stages import Timed


class Lane:
    """Adds the ops of one rank to a builder.

    Parameters
    ----------
    builder
        Takes the ops.
    placement
        Gives the rank's groups.
    rank
        Whose ops they are.
    gpu
        How much computing slows beside a collective.
    """

    def __init__(self, builder: ProgramBuilder, placement: Placement, rank: int, gpu: Gpu) -> None:
        self.builder = builder
        self.placement = placement
        self.rank = rank
        self._slowdown = gpu.overlap_slowdown
        self._groups: dict[str, tuple[int, ...]] = {}
        self._outstanding: list[int] = []
        self._computing = 0
        self._timer = ""

    def group(self, dimension: str) -> tuple[int, ...]:
        """Return the rank's group of a dimension; of ``"tensor"``, ``"context"``, ``"data"`` or ``"expert"``."""
        if dimension not in self._groups:
            self._groups[dimension] = self.placement.group(dimension, self.rank)
        return self._groups[dimension]

    def last(self) -> tuple[int, ...]:
        """Return the ops that the rank's next one waits for."""
        self.flush()
        return self.builder.last(self.rank)

    def wait(self, ops: Iterable[int]) -> None:
        """Let the rank's next op wait for further ones."""
        self.flush()
        self.builder.wait(self.rank, ops)

    def compute(self, duration: int, timer: str) -> None:
        """Keep the rank busy for `duration` ps; spans that follow one another become one op."""
        if timer != self._timer:
            self.flush()
        self._computing += duration
        self._timer = timer

    def flush(self) -> None:
        """Add the op of the spans so far: whoever adds to the builder directly wants them there."""
        if self._computing:
            self.builder.compute(self.rank, self._computing, self._timer)
            self._computing = 0

    def add(self, items: Iterable[Timed], timer: str, *, slowed: bool = False) -> None:
        """Add spans of computing and exchanges; `slowed` says that something else goes on beside them."""
        for item in items:
            if isinstance(item, int):
                beside = slowed or bool(self._outstanding)
                self.compute(round(item * self._slowdown) if beside else item, timer)
            elif isinstance(item, Wait):
                self.wait(self._outstanding)
                self._outstanding = []
            else:
                self._exchange(item, timer)

    def _exchange(self, item: Exchange, timer: str) -> None:
        group = self.group(item.dimension)
        if len(group) == 1:
            return
        if not item.asynchronous:
            self.join(item.collective, item.dimension, group, item.size, timer)
            return
        after = (*self._outstanding[-1:], *self.last())
        self._outstanding.append(self.beside(item.collective, item.dimension, group, item.size, timer, after=after))

    def join(  # noqa: PLR0913  what a call is
        self,
        collective: CollectiveName,
        dimension: str,
        group: tuple[int, ...],
        size: int,
        timer: str,
        *,
        after: Iterable[int] = (),
    ) -> int:
        """Take part in the next call of a group, and wait for it; returns the op."""
        self.flush()
        call = self.builder.next_call(self.rank, Call(collective, group, size, dimension))
        return self.builder.join(call, self.rank, timer, after=after)

    def beside(  # noqa: PLR0913  what a call is
        self,
        collective: CollectiveName,
        dimension: str,
        group: tuple[int, ...],
        size: int,
        timer: str,
        *,
        after: Iterable[int],
    ) -> int:
        """Take part in the next call of a group once `after` are done, and go on beside it; returns the op."""
        self.flush()
        call = self.builder.next_call(self.rank, Call(collective, group, size, dimension))
        return self.builder.join(call, self.rank, timer, stream=OVERLAPPED_STREAM, after=after)
