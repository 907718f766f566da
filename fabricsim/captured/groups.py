"""Who is in the groups of ranks that were not captured: those of a captured rank, moved along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fabricsim.errors import TraceError
from fabricsim.tables import NONE

if TYPE_CHECKING:
    from fabricsim.traces.trace import Group, Recording, Trace

MOST_RANKS = 2**20
"""Of a job that is replayed."""
_DATA_PARALLEL = {"dp", "data", "default", "ddp", "fsdp"}
_OTHER_PARALLEL = {"tp", "tensor", "pp", "pipeline", "cp", "context", "sp", "sequence", "ep", "expert", "model"}


@dataclass(frozen=True)
class Cast:
    """Which recording each rank of the replayed job repeats.

    Attributes
    ----------
    captured
        Ranks of the job that was captured.
    replicas
        How many times the captured job is there, side by side, its data-parallel groups joined.
    of
        Recording of each rank of the captured job, an index into `Trace.recordings`; shape ``(captured,)``.
    assumptions
        What was assumed, a sentence each.
    """

    captured: int
    replicas: int
    of: tuple[int, ...]
    assumptions: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Ranks of the replayed job."""
        return self.captured * self.replicas


def assign(trace: Trace, scale_to: int | None = None, ranks: int | None = None) -> Cast:
    """Decide which recording each rank repeats.

    Parameters
    ----------
    trace
        What was captured.
    scale_to
        Ranks of the job to replay, a multiple of those of the captured one; as many where left out.
    ranks
        Ranks of the captured job, where the trace does not say that.

    Raises
    ------
    TraceError
        Where the size of the job is not known, or `scale_to` is no multiple of it.
    """
    world = _world(trace, ranks)
    if max(world, scale_to or 0) > MOST_RANKS:
        msg = f"is to be replayed on {max(world, scale_to or 0)} ranks; at most {MOST_RANKS} can be"
        raise TraceError(trace.recordings[0].source, f"{msg}; mend the ranks that it names, or scale to fewer")
    known = {recording.rank: number for number, recording in enumerate(trace.recordings)}
    if NONE in known:
        unnamed = known.pop(NONE)
        if known:
            msg = "does not say its rank, and other files do; name the files after their ranks, such as rank_0"
            raise TraceError(trace.recordings[unnamed].source, msg)
        known[0] = unnamed
    captured = tuple(sorted(known))
    of = tuple(known.get(rank, known[captured[rank % len(captured)]]) for rank in range(world))
    assumptions = []
    if len(known) < world:
        names = ", ".join(map(str, captured[:8])) + (", ..." if len(captured) > 8 else "")  # noqa: PLR2004
        assumptions.append(
            f"{len(known)} of {world} ranks were captured ({names}); the others are assumed to do the same"
        )
    replicas = 1
    if scale_to is not None:
        replicas = scale_to // world
        if scale_to < world or scale_to % world:
            msg = f"is of {world} ranks: it can be scaled to a multiple of that, not to {scale_to}"
            raise TraceError(trace.recordings[0].source, msg)
    if replicas > 1:
        assumptions.append(
            f"the captured job of {world} ranks is repeated {replicas} times, and its data-parallel groups are joined"
        )
    return Cast(world, replicas, of, tuple(assumptions))


def _world(trace: Trace, ranks: int | None) -> int:
    source = trace.recordings[0].source
    if ranks is not None and trace.world not in {NONE, ranks}:
        msg = f"is of a job of {trace.world} ranks, not of {ranks}; leave out --ranks"
        raise TraceError(source, msg)
    least = max(_named(recording) for recording in trace.recordings)
    world = ranks or (least if trace.world == NONE else trace.world)
    if least > world:
        msg = f"names rank {least - 1}, but the job has {world} ranks; mend one of the two"
        raise TraceError(source, msg)
    open_ended = any(map(_is_open, trace.recordings))
    if ranks is None and trace.world == NONE and (least < 1 or open_ended):
        raise TraceError(source, "does not say how many ranks the job has; say it with --ranks N")
    return world


def _named(recording: Recording) -> int:
    """One more than the highest rank that a recording names, or as many as its largest group has."""
    groups = (max(group.size, *(rank + 1 for rank in group.ranks), 0) for group in recording.groups)
    peers = (communication.peer + 1 for communication in recording.communications)
    return max(recording.rank + 1, *groups, *peers, 0)


def _is_open(recording: Recording) -> bool:
    """Whether something is done by a group of which neither ranks nor size are known."""
    collective = [what for what in recording.communications if what.operation not in {"send", "recv"}]
    return any(
        what.group == NONE or (not recording.groups[what.group].ranks and recording.groups[what.group].size == NONE)
        for what in collective
    )


class Team(NamedTuple):
    """The ranks of a group.

    Attributes
    ----------
    number
        The same for the same ranks in the same order.
    ranks
        In the order of the group.
    members
        The same, to ask who is among them.
    """

    number: int
    ranks: tuple[int, ...]
    members: frozenset[int]


class _Grid(NamedTuple):
    """How groups lie side by side: from one of their ranks to the next, and from one block of groups to the next."""

    stride: int
    span: int


class _Captured(NamedTuple):
    """A group of a recording, within the captured job; `spreads` says whether it grows with the replicas."""

    ranks: tuple[int, ...]
    members: frozenset[int]
    spreads: bool
    grid: _Grid | None


class Groups:
    """Finds the ranks of a group.

    Parameters
    ----------
    cast
        Which recording each rank repeats.

    Attributes
    ----------
    assumed
        What was assumed of groups so far, a sentence each.
    """

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.assumed: dict[str, None] = {}
        self._named: dict[int, bool] = {}  # recordings that call a group data-parallel
        self._blocks: dict[int, int] = {}  # of recordings, ranks of the largest block of neighbours
        self._teams: dict[tuple[int, ...], Team] = {}
        self._captured: dict[tuple[int, int], _Captured] = {}
        self._found: dict[tuple[int, int, int, int], Team] = {}

    def team(self, recording: Recording, index: int, rank: int) -> Team:
        """Give the group of `rank` that stands in the place of a group of `recording`.

        Parameters
        ----------
        recording
            What `rank` repeats.
        index
            Of the group in it; NONE is that of all ranks.
        rank
            Of the replayed job.

        Raises
        ------
        TraceError
            Where the file does not say who is in the group, and it cannot be known.
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

    def _of_recording(self, recording: Recording, index: int) -> _Captured:
        """Give a group of a recording, within the captured job."""
        key = (id(recording), index)
        if key not in self._captured:
            group = None if index == NONE else recording.groups[index]
            ranks = tuple(range(self.cast.captured)) if group is None else self._listed(recording, group)
            spreads = self.cast.replicas > 1 and (group is None or self._spreads(recording, group, ranks))
            self._captured[key] = _Captured(ranks, frozenset(ranks), spreads, _grid(ranks, self.cast.captured))
        return self._captured[key]

    def _team(self, ranks: tuple[int, ...]) -> Team:
        """Give the one team of these ranks."""
        if ranks not in self._teams:
            self._teams[ranks] = Team(len(self._teams), ranks, frozenset(ranks))
        return self._teams[ranks]

    def _listed(self, recording: Recording, group: Group) -> tuple[int, ...]:
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

    def _taken_to_be(self, recording: Recording, group: Group) -> tuple[int, ...]:
        """Assume the ranks of a group of which nothing is known.

        A data-parallel one has a rank of each of the largest blocks of neighbours, such as tensor-parallel groups, that
        are known; others have all ranks.
        """
        world = self.cast.captured
        if id(recording) not in self._blocks:
            blocks = (len(other.ranks) for other in recording.groups if _neighbours(other.ranks))
            self._blocks[id(recording)] = max(blocks, default=1)
        block = self._blocks[id(recording)]
        apart = _is_data_parallel(group) and block > 1 and world % block == 0
        first = max(recording.rank, 0) % block if apart else 0
        members = tuple(range(first, world, block if apart else 1))
        shown = ", ".join(map(str, members[:4])) + (", ..." if len(members) > 4 else "")  # noqa: PLR2004
        self.assumed[f"group {group.name!r} has the {len(members)} ranks {shown}, which the trace does not say"] = None
        return members

    def _spreads(self, recording: Recording, group: Group, members: tuple[int, ...]) -> bool:
        """Whether a group grows with the replicas: a data-parallel one, or where none is called so that of all."""
        if id(recording) not in self._named:
            self._named[id(recording)] = any(map(_is_data_parallel, recording.groups))
        if self._named[id(recording)]:
            return _is_data_parallel(group)
        return len(members) == self.cast.captured and not _words(group) & _OTHER_PARALLEL


def _is_data_parallel(group: Group) -> bool:
    return bool(_words(group) & _DATA_PARALLEL)


def _words(group: Group) -> set[str]:
    return set(f"{group.name} {group.description}".lower().replace("-", " ").replace("_", " ").split())


def _neighbours(ranks: tuple[int, ...]) -> bool:
    """Whether ranks follow one another and begin at a multiple of their number."""
    return len(ranks) > 1 and ranks == tuple(range(ranks[0], ranks[0] + len(ranks))) and ranks[0] % len(ranks) == 0


def _grid(members: tuple[int, ...], world: int) -> _Grid | None:
    """Give the grid in which groups like this one lie side by side; none where it is not regular."""
    ordered = sorted(members)
    stride = ordered[1] - ordered[0] if len(ordered) > 1 else 1
    span = stride * len(ordered)
    first = ordered[0]
    regular = stride > 0 and all(member == first + place * stride for place, member in enumerate(ordered))
    if not regular or first != first // span * span + first % stride or world % span:
        return None
    return _Grid(stride, span)


def _first_of_image(recording: Recording, group: Group, captured: _Captured, rank: int) -> int:
    """Move a group along to where `rank` is in it, as ranks are laid out in a grid; gives its lowest rank."""
    if captured.grid is None:
        shown = ", ".join(map(str, captured.ranks[:8]))
        msg = f"lists only ranks {shown} of groups like {group.name!r}, which are no regular grid; capture all ranks"
        raise TraceError(recording.source, msg)
    stride, span = captured.grid
    return rank // span * span + rank % stride
