"""Which captured rank each other rank does as.

Ranks of one pipeline stage do the same, and those with the same place in their tensor-, context- and expert-parallel
groups do so with the same part of a layer; data-parallel ranks differ in their data alone. If groups say nothing,
one captured rank per host stands for those behind it, and the ranks of a whole host for those of the others.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabricsim.traces.rank_groups import shown
from fabricsim.traces.rebuild.grids import PIPELINE, Grid, grid_of, is_data_parallel, words
from fabricsim.traces.trace import Recording

_SHOWN = 4  # names and ranks that an assumption lists


class Likeness(NamedTuple):
    """Whom ranks do as.

    `of`: the captured rank that each rank of the job does as, itself if it was captured; shape ``(ranks,)``.
    `assumption`: how that was found, a sentence; empty if all were captured.
    """

    of: tuple[int, ...]
    assumption: str


def resemble(recordings: Mapping[int, Recording], world: int) -> Likeness:
    """Find the captured rank that each rank of a job does as.

    It has the same place as the rank in most of the groups that all captured ranks have, those of a pipeline before
    others, the ones of distant ranks before those of neighbours.
    """
    captured = sorted(recordings)
    if len(captured) == world:
        return Likeness(tuple(captured), "")
    names = shown(captured, 2 * _SHOWN)
    said = f"{len(captured)} of {world} ranks were captured ({names}); "
    if len(captured) == 1:
        return Likeness((captured[0],) * world, f"{said}the others are assumed to do the same")
    layout = _layout(list(recordings.values()), world)
    finder = _Finder(captured, tuple(layout), world)
    of = tuple(rank if rank in recordings else finder.like(rank) for rank in range(world))
    chosen = f"others are assumed to do as the captured one {finder.chosen(list(layout.values()))}"
    return Likeness(of, f"{said}{chosen}: {_pairs(of)}")


def _layout(recordings: Sequence[Recording], world: int) -> dict[Grid, str]:
    """Find how groups lie in which the place of a rank matters, and what they are called; what matters most first."""
    found = [
        {
            grid: (bool(words(group) & PIPELINE), group.description or group.name)
            for group in recording.groups
            if 1 < len(group.ranks) < world and not is_data_parallel(group)
            if (grid := grid_of(group.ranks, world)) is not None
        }
        for recording in recordings
    ]
    common = [grid for grid in found[0] if all(grid in others for others in found)]
    common.sort(key=lambda grid: (not found[0][grid][0], -grid.stride, -grid.span))
    return {grid: found[0][grid][1] for grid in common}


class _Finder:
    """Finds the captured rank that is most like another one."""

    def __init__(self, captured: list[int], layout: tuple[Grid, ...], world: int) -> None:
        self.captured, self.layout = captured, layout
        count, first = len(captured), captured[0]
        self.is_block = captured[-1] - first == count - 1 and first % count == 0 and world % count == 0
        self._with: dict[tuple[Grid, int], set[int]] = {}
        for grid in layout:
            for rank in captured:
                self._with.setdefault((grid, grid.place(rank)), set()).add(rank)
        self._alike: dict[tuple[int, ...], list[int]] = {}

    def like(self, rank: int) -> int:
        """Give the captured rank that `rank` does as."""
        role = tuple(grid.place(rank) for grid in self.layout)
        if role not in self._alike:
            self._alike[role] = self._candidates(role)
        some = self._alike[role]
        before = max(bisect_right(some, rank) - 1, 0)
        if self.is_block:
            counterpart = self.captured[rank % len(self.captured)]
            place = max(bisect_right(some, counterpart) - 1, 0)
            before = place if some[place] == counterpart else before
        return some[before]

    def _candidates(self, role: tuple[int, ...]) -> list[int]:
        some = set(self.captured)
        for grid, place in zip(self.layout, role, strict=True):
            some = some & self._with.get((grid, place), set()) or some
        return sorted(some)

    def chosen(self, names: Sequence[str]) -> str:
        """Say which captured rank is chosen."""
        place = f"at their place in a block of {len(self.captured)}" if self.is_block else "before them"
        if not names:
            return place
        listed = ", ".join(repr(name[:40]) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        return f"with their places in groups {listed}, as far as there is one, of several that {place}"


def _pairs(of: Sequence[int]) -> str:
    """Say who does as whom."""
    others: dict[int, list[int]] = {}
    for rank, other in enumerate(of):
        if rank != other:
            others.setdefault(other, []).append(rank)
    pairs = [f"{shown(ranks, _SHOWN)} as {other}" for other, ranks in sorted(others.items())[:_SHOWN]]
    return "; ".join(pairs) + ("; ..." if len(others) > _SHOWN else "")
