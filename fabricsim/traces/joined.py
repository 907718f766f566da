"""Kineto traces, which have times, with execution traces of the same ranks, which say what each communication moves.

The n-th communication that a rank has launched in one is the n-th in the other; where that does not fit, the n-th of
its operation is. Sizes that both say must be the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.rank_groups import strided
from fabricsim.traces.trace import COMMUNICATION, LAUNCH, Communication, Operation, ProcessGroup, Recording

_VAGUE = frozenset({"send_recv", "unknown"})  # operations that stand for others, where the kernel alone was captured
_EXCHANGES = frozenset({"all_to_all", "send", "recv", "gather", "scatter"})
"""What NCCL does with kernels of sends and receives."""
_ABOUT_MESSAGES = " communications ("  # in all that a Kineto recording misses of communications


def join(timed: Sequence[Recording], described: Sequence[Recording]) -> list[Recording]:
    """Complete communications of some recordings by what others of the same ranks say.

    `timed`: Kineto traces.
    `described`: execution traces of the same run, of some or all of these ranks.
    Raises TraceError if a rank has no Kineto trace, the two are of different iterations, or they contradict each other.
    """
    others = {recording.rank: recording for recording in described}
    ranks = {recording.rank for recording in timed}
    for rank, other in others.items():
        if rank not in ranks:
            raise TraceError(other.source, f"is of rank {rank}, which has no Kineto trace; give both of the same ranks")
    worlds = {recording.world for recording in timed} - {NONE}
    world = max(worlds, default=NONE)
    return [
        _completed(recording, others[recording.rank], world) if recording.rank in others else recording
        for recording in timed
    ]


def _completed(ours: Recording, theirs: Recording, world: int) -> Recording:
    if NONE not in {world, theirs.world} and world != theirs.world:
        msg = f"is of a job of {theirs.world} ranks, but {ours.source} of one of {world}; give the files of one run"
        raise TraceError(theirs.source, msg)
    nodes = ours.nodes.copy()
    groups, numbers = _groups(ours, theirs, world)
    found: dict[Communication, int] = {}
    partners = _partners(ours, theirs)
    unjoined = 0
    for node in np.flatnonzero(nodes["kind"] == COMMUNICATION).tolist():
        told = ours.communications[nodes["communication"][node]]
        partner = partners.get(node)
        if partner is not None:
            told = _merged(ours, theirs, told, partner, numbers)
            if nodes["sequence"][node] == NONE:
                nodes["sequence"][node] = theirs.nodes["sequence"][partner]
        unjoined += told.size == told.share == NONE and told.operation != "barrier"
        nodes["communication"][node] = found.setdefault(told, len(found))
    missing = [sentence for sentence in ours.missing if _ABOUT_MESSAGES not in sentence]
    if unjoined:
        missing.append(f"the size of {unjoined} communications: the execution trace has no such records")
    return replace(ours, nodes=nodes, groups=tuple(groups), communications=tuple(found), missing=tuple(missing))


def _groups(ours: Recording, theirs: Recording, world: int) -> tuple[list[ProcessGroup], list[int]]:
    """Give the groups of both, and the number of each of theirs."""
    groups, numbers = list(ours.groups), []
    for group in theirs.groups:
        ranks = group.ranks or (strided(world) if 0 < world == group.size else ())
        told = ProcessGroup(group.name, group.description, ranks, len(ranks) or group.size)
        same = next((number for number, one in enumerate(groups) if one.name == group.name), None)
        if same is None:
            same = len(groups)
            groups.append(told)
        own = groups[same]
        for what, one, other in (("ranks", own.ranks, told.ranks), ("size", own.size, told.size)):
            if one != other and one not in {(), NONE} and other not in {(), NONE}:
                msg = f"its group {group.name!r} has {what} {str(other)[:60]}, but {str(one)[:60]} in {ours.source}"
                raise TraceError(theirs.source, f"{msg}; give the files of one run")
        size = told.size if own.size == NONE else own.size
        groups[same] = ProcessGroup(own.name, own.description or told.description, own.ranks or told.ranks, size)
        numbers.append(same)
    return groups, numbers


def _partners(ours: Recording, theirs: Recording) -> dict[int, int]:
    """Find for each communication of ours that of theirs, as indices of nodes."""
    own, other = _launched(ours), _launched(theirs)
    if len(own) > len(other):  # of kernels that one record has launched, only the first has its bytes
        own = [node for node in own if ours.communications[ours.nodes["communication"][node]].size != 0]
    if len(own) == len(other) and all(
        _may_be(_operation(ours, one), _operation(theirs, two)) for one, two in zip(own, other, strict=True)
    ):
        return dict(zip(own, other, strict=True))
    partners: dict[int, int] = {}
    named = sorted({_operation(ours, node) for node in own} - _VAGUE)
    for operation in named:
        mine = [node for node in own if _operation(ours, node) == operation]
        others = [node for node in other if _operation(theirs, node) == operation]
        if len(mine) != len(others):
            msg = (
                f"has {len(others)} communications {operation}, but {ours.source} has {len(mine)} of them; "
                "capture both over the same iterations"
            )
            raise TraceError(theirs.source, msg)
        partners |= zip(mine, others, strict=True)
    vague = [node for node in own if _operation(ours, node) in _VAGUE]
    left = [node for node in other if _operation(theirs, node) not in named]
    # one kernel does all sends and receives of a group of them: then the numbers differ, and nothing can be said
    if len(vague) == len(left):
        partners |= zip(vague, left, strict=True)
    return partners


def _operation(recording: Recording, node: int) -> Operation:
    number = int(recording.nodes["communication"][node])
    return recording.communications[number].operation


def _may_be(timed: Operation, told: Operation) -> bool:
    """Whether a kernel that is known as `timed` can be of what was called as `told`."""
    if timed == "send_recv":
        return told in _EXCHANGES
    # a barrier of NCCL's is an all-reduce
    return timed in {told, "unknown"} or (timed, told) == ("all_reduce", "barrier")


def _launched(recording: Recording) -> list[int]:
    """Give the indices of communications in the order in which the host launched them."""
    nodes, edges = recording.nodes, recording.edges
    times: NDArray[np.int64] = nodes["start"].copy()
    kind: NDArray[np.int64] = nodes["kind"][edges["before"]]
    launches = edges[kind == LAUNCH]
    times[launches["after"]] = nodes["start"][launches["before"]]
    messages = np.flatnonzero(nodes["kind"] == COMMUNICATION)
    ordered: list[int] = messages[np.argsort(times[messages], kind="stable")].tolist()
    return ordered


def _merged(
    ours: Recording, theirs: Recording, told: Communication, partner: int, numbers: Sequence[int]
) -> Communication:
    """Complete a communication by its partner; `numbers` are those of the partner's groups."""
    other = theirs.communications[theirs.nodes["communication"][partner]]
    if NONE not in {told.size, other.size} and told.size != other.size and other.operation != "barrier":
        name = theirs.names[theirs.nodes["name"][partner]]
        msg = (
            f"a communication {name!r} is of {other.size} bytes, but of {told.size} in {ours.source}; "
            "capture both over the same iterations of one run"
        )
        raise TraceError(theirs.source, msg)
    group = numbers[other.group] if other.group != NONE else NONE
    size = other.size if told.size == NONE or other.operation == "barrier" else told.size
    return Communication(
        other.operation,
        group if told.group == NONE else told.group,
        size,
        told.datatype or other.datatype,
        other.peer if told.peer == NONE else told.peer,
        told.tag,
        told.sent or other.sent,
        told.received or other.received,
        share=max(told.share, other.share) if size == NONE else NONE,
    )
