"""Collectives written out as sends and receives, by the algorithms of fabricsim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricsim.collectives import template
from fabricsim.errors import InputError
from fabricsim.records.program import NONE
from fabricsim.traces.export import MemberWork
from fabricsim.traces.trace import Communication

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from fabricsim.collectives.base import Template
    from fabricsim.workload.program import Call, Program

MOST_MESSAGES = 2**23
"""Of all collectives that are written out."""


@dataclass(frozen=True)
class _Message:
    """A message between two members; its slots are parts of the buffer, and `number` counts those of the pair."""

    sender: int
    receiver: int
    slots: tuple[int, ...]
    number: int


class Lowering:
    """Writes the collectives of a program out; see `fabricsim.traces.export.exported`.

    Each step of an algorithm waits for the message that it works on, and messages of a lane go in their order; the
    buffer goes in one piece over one channel. What reductions and copies take is left out.

    `program`: whose calls.
    `algorithms`: names of algorithms by collective, of those for which members are alike; if one is missing, the first
        of the collective, a ring if there is one.
    Raises InputError if an algorithm does not exist, or needs to know which members are on one host.
    """

    def __init__(self, program: Program, algorithms: Mapping[str, str]) -> None:
        self._calls = program.calls
        self._templates: dict[tuple[str, int], _Written] = {}
        self._bases: list[int] = []
        base = count = 0
        for call in program.calls:
            key = (call.collective, len(call.ranks))
            if key not in self._templates:
                _check_messages(len(call.ranks) ** 2, call)  # at the least, of a ring
                self._templates[key] = _Written(_template(call, algorithms.get(call.collective)))
            self._bases.append(base)
            base += self._templates[key].most
            count += self._templates[key].count
            _check_messages(count, call)

    def __call__(self, number: int, member: int) -> MemberWork:
        """Say what a member of a call does."""
        call = self._calls[number]
        written = self._templates[call.collective, len(call.ranks)]
        return written.part(call, member, self._bases[number])


def _check_messages(count: int, call: Call) -> None:
    if count > MOST_MESSAGES:
        msg = f"written out, a job with a {call.collective} of {len(call.ranks)} ranks has more than {MOST_MESSAGES}"
        msg += " messages; leave collectives whole, or take fewer iterations"
        raise InputError(msg)


def _template(call: Call, algorithm: str | None) -> Template:
    made = template(call.collective, len(call.ranks), algorithm)
    if made.switches:
        msg = f"{algorithm!r} for {call.collective} works in switches, which send and receive nothing; take another"
        raise InputError(msg)
    return made


class _Written:
    """The sends and receives of a template.

    `most`: messages of the pair of members that has most.
    `count`: messages of all.
    """

    def __init__(self, made: Template) -> None:
        self.shards, self.members = made.shards, made.members
        sent = self._sent(made)
        self._of: list[list[list[tuple[bool, _Message]]]] = [[] for _ in range(made.members)]
        for lane in range(made.lanes):
            self._of[made.owner(lane)].append(_steps(made, lane, sent))

    def _sent(self, made: Template) -> dict[tuple[int, int], list[_Message]]:
        """List the messages of each connection in order, by its sending lane and number."""
        counts: dict[tuple[int, int], int] = {}
        sent: dict[tuple[int, int], list[_Message]] = {}
        for lane in range(made.lanes):
            for step in made.script(lane):
                if step["send"] == NONE:
                    continue
                out = int(step["send"])
                pair = made.owner(lane), made.owner(int(made.connections[lane, out, 0]))
                number = counts.get(pair, 0)
                counts[pair] = number + 1
                sent.setdefault((lane, out), []).append(_Message(*pair, _slots(made, lane, step), number))
        self.most, self.count = max(counts.values(), default=0), sum(counts.values())
        return sent

    def part(self, call: Call, member: int, base: int) -> MemberWork:
        """Give the messages of a member, with their bytes."""
        messages: list[Communication] = []
        edges: list[tuple[int, int]] = []
        for lane in self._of[member]:
            last = {True: NONE, False: NONE}  # send and receive
            for sends, message in lane:
                place = len(messages)
                peer = call.ranks[message.receiver if sends else message.sender]
                size, tag = self._bytes(call.size, message.slots), base + message.number
                messages.append(Communication("send" if sends else "recv", NONE, size, peer=peer, tag=tag))
                # a send waits for what it passes on; a receive is ready for its message whatever becomes of sends
                edges += [(before, place) for before in sorted({last[sends], last[False]} - {NONE})]
                last[sends] = place
        return MemberWork(tuple(messages), tuple(edges))

    def _bytes(self, size: int, slots: tuple[int, ...]) -> int:
        cuts = [
            size * (slot % self.shards + 1) // self.shards - size * (slot % self.shards) // self.shards
            for slot in slots
        ]
        return sum(cuts)


def _steps(made: Template, lane: int, sent: dict[tuple[int, int], list[_Message]]) -> list[tuple[bool, _Message]]:
    """List what a lane sends (True) and receives, in order."""
    received: dict[int, int] = {}
    given: dict[int, int] = {}
    steps = []
    for step in made.script(lane):
        inbox, out = int(step["wait"]), int(step["send"])
        if inbox != NONE:
            source = int(made.sources[lane, inbox])
            connection = next(
                number
                for number, (other, box) in enumerate(made.connections[source].tolist())
                if (other, box) == (lane, inbox)
            )
            place = received.get(inbox, 0)
            received[inbox] = place + 1
            steps.append((False, sent[source, connection][place]))
        if out != NONE:
            place = given.get(out, 0)
            given[out] = place + 1
            steps.append((True, sent[lane, out][place]))
    return steps


def _slots(made: Template, lane: int, step: np.void) -> tuple[int, ...]:
    """List the parts of the buffer that a step sends."""
    first, run, every = int(step["shard"]), int(step["run"]), int(step["every"])
    first += made.owner(lane) if made.relative else 0
    places = range(int(step["shards"]))
    return tuple((first + (k if run == 0 else k // run * every + k % run)) % made.slots for k in places)
