"""Collective calls counted: how many, of which sizes, and what they put on the wire.

The buffer of a call is what nccl-tests calls its size and does not depend on the algorithm. On the wire
each of ``n`` members sends at least ``2 (n - 1) / n`` of it in an all-reduce and ``(n - 1) / n`` in a
reduce-scatter, all-gather or all-to-all (nccl-tests, doc/PERFORMANCE.md), a ring exactly that; so all
members together send a whole multiple of ``n - 1`` times the buffer. In a ring exchange each sends it once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.workload.links import TURNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fabricsim.workload.compile import JobPlan
    from fabricsim.workload.program import Call, Program


class EqualCalls(NamedTuple):
    """Equal calls.

    `dimension`: the parallel dimension they belong to, such as ``"data"``.
    `collective`: what is done.
    `members`: ranks of each group.
    `size`: bytes of one call, as in `fabricsim.workload.program.Call`.
    `times`: how many.
    """

    dimension: str
    collective: str
    members: int
    size: int
    times: int

    @property
    def buffer(self) -> int:
        """Bytes of all buffers."""
        return self.size * self.times

    @property
    def wire(self) -> int:
        """Bytes that all members together send."""
        senders = self.members if self.collective == "ring_exchange" and self.members > 1 else self.members - 1
        return TURNS[self.collective] * senders * self.size * self.times


def kinds(program: Program) -> Iterator[tuple[Call, int]]:
    """Give the calls of a program, equal ones together, in order of their first appearance, and how many there are."""
    times = np.bincount(program.calls.kind, minlength=len(program.calls.kinds))
    return zip(program.calls.kinds, times.tolist(), strict=True)


def plan_kinds(plan: JobPlan) -> Iterator[tuple[Call, int]]:
    """Give the calls that one rank of each stage takes part in, equal ones together, and how many there are of each.

    All ranks of a stage do the same, so that every call stands for one of each group that its own is mapped to.
    """
    return kinds(plan.program(plan.placement.grid[:, 0, 0, 0].tolist()))


def plan_calls(plan: JobPlan) -> Iterator[EqualCalls]:
    """Count the calls of a job, those of all groups that do what those of `plan_kinds` do."""
    images: dict[tuple[str, tuple[int, ...]], int] = {}
    for call, count in plan_kinds(plan):
        key = (call.dimension, call.ranks)
        if key not in images:
            images[key] = len(plan.placement.images(*key))
        yield EqualCalls(call.dimension, call.collective, len(call.ranks), call.size, count * images[key])


@dataclass
class Volume:
    """Calls of one collective in one dimension.

    `sizes`: how many calls there are of each group size and size in bytes.
    `buffer`, `wire`: bytes of all buffers, and bytes that all ranks together send.
    """

    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    buffer: int = 0
    wire: int = 0

    @property
    def calls(self) -> int:
        """Number of calls."""
        return self.sizes.total()

    def histogram(self) -> dict[int, int]:
        """Count calls by size: the largest power of two that is no larger (0 for empty calls), ascending."""
        bins: Counter[int] = Counter()
        for (_, size), count in self.sizes.items():
            bins[1 << (size.bit_length() - 1) if size else 0] += count
        return dict(sorted(bins.items()))

    def extremes(self) -> tuple[int, int, int]:
        """Smallest, median (the lower of two) and largest size, bytes."""
        ordered = sorted((size, count) for (_, size), count in self.sizes.items())
        middle, seen, median = (self.calls + 1) // 2, 0, 0
        for size, count in ordered:
            if seen < middle:
                median = size
            seen += count
        return (ordered[0][0], median, ordered[-1][0]) if ordered else (0, 0, 0)


Volumes = dict[tuple[str, str], Volume]
"""By dimension and collective."""


def tally(calls: Iterable[EqualCalls]) -> Volumes:
    """Add up calls by dimension and collective, in order of their first appearance.

    Those of no bytes or of a single member are left out: nothing is sent.
    """
    volumes: Volumes = {}
    for each in calls:
        if each.wire:
            volume = volumes.setdefault((each.dimension, each.collective), Volume())
            volume.sizes[each.members, each.size] += each.times
            volume.buffer += each.buffer
            volume.wire += each.wire
    return volumes
