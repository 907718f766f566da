"""A small training job in tensor, pipeline and data parallel, by hand, for any order of the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import OVERLAPPED_STREAM
from fabricsim.workload.builder import ProgramBuilder
from fabricsim.workload.program import Call, CollectiveName, GroupSet, Program

MEGABYTE = 10**6
US = 10**6  # ps


@dataclass(frozen=True, eq=False)
class Training:
    """A `Plan`: passes forward and backward through the stages, each with a tensor collective, then gradients.

    ``order`` names the dimensions from the slowest to the fastest in the numbers of the ranks.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    order: str = "PDT"
    tensor_bytes: int = MEGABYTE
    pipeline_bytes: int = MEGABYTE
    data_bytes: int = MEGABYTE
    tensor_collective: CollectiveName = "all_reduce"
    micro_batches: int = 2
    durations: tuple[int, ...] = (50 * US,)
    overlap: bool = False
    asked: list[int] = field(default_factory=list)  # how many ranks were written out each time

    @property
    def ranks(self) -> int:
        """How many."""
        return self.tensor * self.pipeline * self.data

    @cached_property
    def grid(self) -> NDArray[np.int32]:
        """Rank by stage, replica and place in the tensor group."""
        degrees = {"T": self.tensor, "P": self.pipeline, "D": self.data}
        ranks = np.arange(self.ranks, dtype=np.int32).reshape([degrees[name] for name in self.order])
        return ranks.transpose([self.order.index(name) for name in "PDT"])

    @property
    def colours(self) -> NDArray[np.int32]:
        """The stage of each rank."""
        colours = np.empty(self.ranks, np.int32)
        colours[self.grid] = np.arange(self.pipeline)[:, None, None]
        return colours

    @property
    def groups(self) -> tuple[GroupSet, ...]:
        """Tensor and data groups, and pairs of neighbouring stages in both directions."""
        grid = self.grid
        there, back = (
            np.stack([one.ravel(), other.ravel()], axis=1)
            for one, other in ((grid[:-1], grid[1:]), (grid[1:], grid[:-1]))
        )
        data = grid.transpose(0, 2, 1).reshape(-1, self.data)
        sets = [
            GroupSet(self.tensor_collective, "tensor", grid.reshape(-1, self.tensor), self.tensor_bytes),
            GroupSet("all_reduce", "data", data, self.data_bytes),
            GroupSet("reduce_scatter", "data", data, self.data_bytes),
            GroupSet("send_recv", "pipeline", there, self.pipeline_bytes),
            GroupSet("send_recv", "pipeline", back, self.pipeline_bytes),
        ]
        return tuple(groups for groups in sets if groups.members.size)

    def program(self, ranks: Sequence[int] | None) -> Program:
        """Write out the ops of some ranks, or of all."""
        chosen = range(self.ranks) if ranks is None else ranks
        self.asked.append(len(chosen))
        writer = _Writer(self, ProgramBuilder(["all"], self.ranks, ranks))
        for rank in chosen:
            writer.write(rank)
        return writer.builder.build()


@dataclass
class _Writer:
    plan: Training
    builder: ProgramBuilder
    calls: dict[tuple[object, ...], int] = field(default_factory=dict)

    def write(self, rank: int) -> None:
        plan = self.plan
        stage, replica, place = (int(axis[0]) for axis in np.nonzero(plan.grid == rank))
        duration = plan.durations[stage % len(plan.durations)]
        near = {
            side: int(plan.grid[side, replica, place]) for side in (stage - 1, stage + 1) if 0 <= side < plan.pipeline
        }
        pending: list[int] = []
        for direction in (1, -1):
            for batch in range(plan.micro_batches):
                self.send([near.get(stage - direction), rank], rank, batch)
                done = self.builder.compute(rank, duration, "all")
                if plan.tensor > 1 and direction > 0:
                    group = plan.grid[stage, replica]
                    self.join(plan.tensor_collective, "tensor", group, plan.tensor_bytes, rank, batch)
                self.send([rank, near.get(stage + direction)], rank, batch)
                if plan.overlap and plan.data > 1 and direction < 0:
                    pending = [self.beside(plan.grid[stage, :, place], rank, batch, [done, *pending])]
        if plan.data > 1:
            self.join("reduce_scatter", "data", plan.grid[stage, :, place], plan.data_bytes, rank, 0, pending)
        self.builder.compute(rank, US, "all", after=pending)

    def send(self, pair: list[int | None], rank: int, batch: int) -> None:
        ends = [end for end in pair if end is not None]
        if len(ends) > 1:
            self.join("send_recv", "pipeline", ends, self.plan.pipeline_bytes, rank, batch)

    def beside(self, group: NDArray[np.int32], rank: int, batch: int, after: Iterable[int]) -> int:
        call = self.call("all_reduce", "data", group, self.plan.data_bytes, batch)
        return self.builder.join(call, rank, "all", stream=OVERLAPPED_STREAM, after=after)

    def join(  # noqa: PLR0913, PLR0917  a call has as many parts
        self,
        collective: CollectiveName,
        dimension: str,
        group: Iterable[int],
        size: int,
        rank: int,
        number: int,
        after: Iterable[int] = (),
    ) -> None:
        self.builder.join(self.call(collective, dimension, group, size, number), rank, "all", after=after)

    def call(self, collective: CollectiveName, dimension: str, group: Iterable[int], size: int, number: int) -> int:
        key = (collective, dimension, tuple(int(rank) for rank in group), number)
        if key not in self.calls:
            self.calls[key] = self.builder.call(Call(collective, key[2], size, dimension))
        return self.calls[key]
