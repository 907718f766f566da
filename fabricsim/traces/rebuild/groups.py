"""Who is in the groups of ranks that were not captured: those of a captured rank, moved along."""

from typing import NamedTuple

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import shown
from fabricsim.traces.rebuild.cast import Cast
from fabricsim.traces.rebuild.grids import MODEL_PARALLEL, Grid, grid_of, is_data_parallel, words
from fabricsim.traces.trace import ProcessGroup, Recording


class Team(NamedTuple):
    """The ranks of a group.

    `number`: the same for the same ranks in the same order.
    `ranks`: in the order of the group.
    `members`: the same, to ask who is among them.
    """

    number: int
    ranks: tuple[int, ...]
    members: frozenset[int]


class _Captured(NamedTuple):
    """A group of a recording, within the captured job; `spreads` says whether it grows with the replicas."""

    ranks: tuple[int, ...]
    members: frozenset[int]
    spreads: bool
    grid: Grid | None


class GroupFinder:
    """Finds the ranks of a group.

    `cast`: which recording each rank repeats.
    `assumed`: what was assumed of groups so far, a sentence each.
    """

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.assumed: dict[str, None] = {}
        self._named: dict[int, bool] = {}  # recordings that call a group data-parallel
        self._blocks: dict[int, int] = {}  # of recordings, ranks of the largest block of neighbours
        self._teams: dict[tuple[int, ...], Team] = {}
        self._captured: dict[tuple[int, int], _Captured] = {}
        self._found: dict[tuple[int, int, int, int], Team] = {}
        self._peers: dict[tuple[int, int, int], int] = {}

    def team(self, recording: Recording, index: int, rank: int) -> Team:
        """Give the group of `rank` that stands in the place of a group of `recording`.

        `recording`: what `rank` repeats.
        `index`: of the group in it; NONE is that of all ranks.
        `rank`: of the replayed job.
        Raises TraceError if the file does not say who is in the group, and it cannot be known.
        """
        world = self.cast.captured
        replica, base = divmod(rank, world)
        captured = self._of_recording(recording, index)
        first = NONE  # of the image; what is found by it is found once, however many ranks there are
        if base != max(recording.rank, 0) and base not in captured.members:
            first = _first_of_image(recording, recording.groups[index], captured, base)
        replicas = range(self.cast.replicas) if captured.spreads else range(replica, replica + 1)
        key = (id(recording), index, replicas.start, first)
        if key not in self._found:
            moved = 0 if first == NONE else first - min(captured.ranks)
            ranks = tuple(other * world + rank + moved for other in replicas for rank in captured.ranks)
            self._found[key] = self._team(ranks)
        return self._found[key]

    def peer(self, recording: Recording, peer: int, rank: int) -> int:
        """Give the rank that is to `rank` what `peer` is to the captured one that it repeats.

        `peer`: to which it sends, or from which it receives.
        `rank`: of the replayed job; was not captured.
        Returns: NONE if no group holds both, in which `rank` has the place of the captured rank.
        """
        key = (id(recording), peer, rank)
        if key not in self._peers:
            self._peers[key] = self._peer(recording, peer, rank)
        return self._peers[key]

    def _peer(self, recording: Recording, peer: int, rank: int) -> int:
        own = max(recording.rank, 0)
        smaller = [
            (len(group.ranks), index)
            for index, group in enumerate(recording.groups)
            if len(group.ranks) < self.cast.captured and {own, peer} <= {*group.ranks}
        ]
        for _, index in sorted(smaller):
            captured = self._of_recording(recording, index)
            if captured.grid is None or captured.spreads:
                continue
            ranks = self.team(recording, index, rank).ranks
            if ranks.index(rank) == captured.ranks.index(own):
                return ranks[captured.ranks.index(peer)]
        return NONE

    def _of_recording(self, recording: Recording, index: int) -> _Captured:
        """Give a group of a recording, within the captured job."""
        key = (id(recording), index)
        if key not in self._captured:
            group = None if index == NONE else recording.groups[index]
            ranks = tuple(range(self.cast.captured)) if group is None else self._listed(recording, group)
            spreads = self.cast.replicas > 1 and (group is None or self._spreads(recording, group, ranks))
            self._captured[key] = _Captured(ranks, frozenset(ranks), spreads, grid_of(ranks, self.cast.captured))
        return self._captured[key]

    def _team(self, ranks: tuple[int, ...]) -> Team:
        """Give the one team of these ranks."""
        if ranks not in self._teams:
            self._teams[ranks] = Team(len(self._teams), ranks, frozenset(ranks))
        return self._teams[ranks]

    def _listed(self, recording: Recording, group: ProcessGroup) -> tuple[int, ...]:
        world = range(self.cast.captured)
        if group.ranks:
            return group.ranks
        if group.size == len(world) or (group.size == NONE and len(recording.groups) == 1):
            return tuple(world)
        if group.size == NONE:
            return self._taken_to_be(recording, group)
        msg = f"does not list the ranks of group {group.name!r} of {group.size}"
        msg += f'; give a JSON file {{"{group.name}": [0, 1, ...]}} beside it'
        raise TraceError(recording.source, msg)

    def _taken_to_be(self, recording: Recording, group: ProcessGroup) -> tuple[int, ...]:
        """Assume the ranks of a group of which nothing is known.

        A data-parallel one has a rank of each of the largest blocks of neighbours, such as tensor-parallel groups, that
        are known; others have all ranks.
        """
        world = self.cast.captured
        if id(recording) not in self._blocks:
            blocks = (len(other.ranks) for other in recording.groups if _neighbours(other.ranks))
            self._blocks[id(recording)] = max(blocks, default=1)
        block = self._blocks[id(recording)]
        apart = is_data_parallel(group) and block > 1 and world % block == 0
        first = max(recording.rank, 0) % block if apart else 0
        members = tuple(range(first, world, block if apart else 1))
        told = f"group {group.name!r} has the {len(members)} ranks {shown(members, 4)}, which the trace does not say"
        self.assumed[told] = None
        return members

    def _spreads(self, recording: Recording, group: ProcessGroup, members: tuple[int, ...]) -> bool:
        """Whether a group grows with the replicas: a data-parallel one, or if none is called so that of all."""
        if id(recording) not in self._named:
            self._named[id(recording)] = any(map(is_data_parallel, recording.groups))
        if self._named[id(recording)]:
            return is_data_parallel(group)
        return len(members) == self.cast.captured and not words(group) & MODEL_PARALLEL


def _neighbours(ranks: tuple[int, ...]) -> bool:
    """Whether ranks follow one another and begin at a multiple of their number."""
    return len(ranks) > 1 and ranks == tuple(range(ranks[0], ranks[0] + len(ranks))) and ranks[0] % len(ranks) == 0


def _first_of_image(recording: Recording, group: ProcessGroup, captured: _Captured, rank: int) -> int:
    """Move a group along to where `rank` is in it, as ranks are laid out in a grid; gives its lowest rank."""
    if captured.grid is None:
        some = ", ".join(map(str, captured.ranks[:8]))
        msg = f"lists only ranks {some} of groups like {group.name!r}, which are no regular grid; capture all ranks"
        raise TraceError(recording.source, msg)
    return captured.grid.first(rank)
