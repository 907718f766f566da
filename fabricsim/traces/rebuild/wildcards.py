"""Receives of any rank or any tag: which sends they take.

A replay has to know beforehand which message goes where. What receives with a named rank and tag leave goes to the
others: first to those that leave one of both open, then to those that leave both. Each takes what it can in the order
in which ranks sent it: the first message of each rank, in the order of ranks, then the second ones. If only one rank
with one tag comes into question that is what ran; else it is an assumption.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.trace import COMMUNICATION, Communication, Recording, Trace


class _Message(NamedTuple):
    """A send: which of its rank's to this receiver it is, counted from 0, the rank, its tag and bytes."""

    turn: int
    source: int
    tag: int
    size: int


_Wanted = tuple[int, int, int]  # rank, tag and bytes of a receive; NONE if any will do


def settled(trace: Trace) -> Trace:
    """Name rank and tag of the sends that receives of any rank or tag take.

    `trace`: of all ranks of a job, if there are such receives; its other peers that are not known stay so.
    Raises TraceError if no send is left for one.
    """
    if trace.form != "goal":  # elsewhere an unknown peer was not captured
        return trace
    open_ = [recording for recording in trace.recordings if any(map(_is_open, recording.communications))]
    if not open_:
        return trace
    wanted = {recording.rank for recording in open_}
    sent: dict[int, list[_Message]] = {rank: [] for rank in wanted}
    for recording in trace.recordings:
        turns: dict[int, int] = {}
        for _, what in _messages(recording, "send"):
            if what.peer in wanted:
                turns[what.peer] = turn = turns.get(what.peer, -1) + 1
                sent[what.peer].append(_Message(turn, recording.rank, what.tag, what.size))
    named = {recording.rank: _named(recording, sent[recording.rank]) for recording in open_}
    return replace(trace, recordings=tuple(named.get(one.rank, one) for one in trace.recordings))


def _is_open(what: Communication) -> bool:
    return what.operation == "recv" and NONE in {what.peer, what.tag}


def _messages(recording: Recording, operation: str) -> Iterator[tuple[int, Communication]]:
    """Yield the sends or receives of a rank in the order of the file, each with its node."""
    nodes = np.flatnonzero(recording.nodes["kind"] == COMMUNICATION)
    for node, number in zip(nodes.tolist(), recording.nodes["communication"][nodes].tolist(), strict=True):
        if recording.communications[number].operation == operation:
            yield node, recording.communications[number]


class _Post:
    """What is sent to one rank, until it is taken by one of the receives that are wanted."""

    def __init__(self, messages: Iterable[_Message], wanted: Iterable[_Wanted]) -> None:
        self._messages = sorted(messages)
        self._taken = [False] * len(self._messages)
        self._queues: dict[_Wanted, deque[int]] = {key: deque() for key in wanted}
        for number, (_, source, tag, size) in enumerate(self._messages):
            for key in ((source, tag, size), (source, NONE, size), (NONE, tag, size), (NONE, NONE, size)):
                if key in self._queues:
                    self._queues[key].append(number)

    def take(self, wanted: _Wanted) -> _Message | None:
        """Take the first message that fits, if there is one."""
        queue = self._queues[wanted]
        while queue and self._taken[queue[0]]:
            queue.popleft()
        if not queue:
            return None
        self._taken[queue[0]] = True
        return self._messages[queue[0]]


def _named(recording: Recording, sent: Sequence[_Message]) -> Recording:
    """Give a rank's recording with what its open receives take."""
    received = [(node, what, (what.peer, what.tag, what.size)) for node, what in _messages(recording, "recv")]
    post = _Post(sent, (wanted for _, _, wanted in received))
    communications = {what: number for number, what in enumerate(recording.communications)}
    column = recording.nodes["communication"].copy()
    streams: dict[_Wanted, list[tuple[int, int]]] = {}
    for left_open in range(3):  # by how much of it is open; what is named first
        for node, what, wanted in received:
            if wanted[:2].count(NONE) != left_open:
                continue
            message = post.take(wanted)
            if message is not None:
                found = what._replace(peer=message.source, tag=message.tag)
                column[node] = communications.setdefault(found, len(communications))
                streams.setdefault(wanted, []).append((message.source, message.tag))
            elif left_open:
                which = "of any rank" if what.peer == NONE else f"of rank {what.peer} with any tag"
                msg = f"rank {recording.rank} receives {what.size} bytes {which}, and no send to it is left for that"
                raise TraceError(recording.source, f"{msg}; give the schedules of all ranks")
    assumed = sum(len(some) for some in streams.values() if len({*some}) > 1)
    missing = (*recording.missing, f"which of several sends {assumed} receives of rank {recording.rank} took")
    nodes = recording.nodes.copy()
    nodes["communication"] = column
    return replace(
        recording, nodes=nodes, communications=tuple(communications), missing=missing if assumed else recording.missing
    )
