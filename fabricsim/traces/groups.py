"""Completes the groups of recordings by what a file beside them lists, and sizes that depend on it."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import shown, strided
from fabricsim.traces.trace import Communication, GroupList, ProcessGroup, Recording

ALL_RANKS = "all ranks"
"""Description of a group of all ranks of a job whose file does not say how many there are."""
ONE_HOST = "by hosts"
"""Description of a group of the ranks of a host, or of those with one place on all hosts, if neither is known."""


def united(lists: Collection[GroupList]) -> Mapping[str, tuple[int, ...]]:
    """Put lists together; groups that they do not list completely are left out.

    Raises TraceError if two say different things of one group.
    """
    known: dict[str, tuple[int, ...]] = {}
    for one in lists:
        for name, ranks in one.groups.items():
            other = known.get(name, ranks)
            if len(other) != len(ranks) or any(
                a != b and NONE not in {a, b} for a, b in zip(other, ranks, strict=True)
            ):
                raise TraceError(one.source, f"group {name!r} is of other ranks than in another list; give one list")
            known[name] = ranks if other is ranks else tuple(map(max, other, ranks))  # NONE is below any rank
    return {name: ranks for name, ranks in known.items() if NONE not in ranks}


def completed(recording: Recording, listed: Mapping[str, tuple[int, ...]], world: int) -> Recording:
    """Give groups their ranks, and communications the sizes that follow.

    `listed`: ranks of groups by name, as files beside the recordings say.
    `world`: ranks of the job; NONE if not known.
    Raises TraceError if a list contradicts the recording.
    """
    groups = tuple(_complete(recording, group, listed, world) for group in recording.groups)
    communications = tuple(_resolved(communication, groups, world) for communication in recording.communications)
    if groups == recording.groups and communications == recording.communications:
        return recording
    return replace(recording, groups=groups, communications=communications)


def _complete(
    recording: Recording, group: ProcessGroup, listed: Mapping[str, tuple[int, ...]], world: int
) -> ProcessGroup:
    ranks = listed.get(group.name)
    if ranks is not None:
        if group.ranks and group.ranks != ranks:
            own, given = shown(group.ranks, 8), shown(ranks, 8)
            msg = f"group {group.name!r} is of ranks {own}, but {given} in the list of groups"
            raise TraceError(recording.source, f"{msg}; give the list that belongs to the trace")
        return group._replace(ranks=ranks, size=len(ranks))
    if group.size == NONE and group.description == ALL_RANKS and world != NONE:
        return group._replace(ranks=strided(world), size=world)
    return group


def _resolved(communication: Communication, groups: tuple[ProcessGroup, ...], world: int) -> Communication:
    """Fill in what follows from the ranks of its group."""
    group = None if communication.group == NONE else groups[communication.group]
    communication = sized(communication, world if group is None else group.size)
    if group is not None and 0 <= communication.member < len(group.ranks):
        communication = communication._replace(peer=group.ranks[communication.member], member=NONE)
    return communication


def sized(communication: Communication, ranks: int) -> Communication:
    """Count the bytes of all ranks of a group if the file has those of one, and it is known how many there are."""
    if NONE in {communication.share, ranks}:
        return communication
    return communication._replace(size=communication.share * ranks, share=NONE)
