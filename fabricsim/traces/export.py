"""Programs as traces, for other simulators to read."""

from __future__ import annotations

from itertools import accumulate, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabricsim.errors import InputError
from fabricsim.records.program import COLLECTIVE, COMPUTE, NONE
from fabricsim.traces import trace as types
from fabricsim.traces.trace import Communication, Operation, Recording, RecordingBuilder, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fabricsim.workload.program import CallList, Program

_ROOTED = {"broadcast", "reduce"}
_MESSAGES = {"send_recv", "ring_exchange"}


class MemberWork(NamedTuple):
    """What one member of a call does.

    `edges`: pairs of them, by their places, of which the second waits for the first.
    """

    messages: tuple[Communication, ...]
    edges: tuple[tuple[int, int], ...] = ()


def exported(program: Program, name: str, parts: Callable[[int, int], MemberWork] | None = None) -> Trace:
    """Make a trace of a program.

    Ops keep their order, and wait for one another by their dependencies alone. A group has its parallel dimension as
    description. A ``send_recv`` becomes a send and a receive, a ``ring_exchange`` one of each per rank, with the number
    of the call among such calls as tag.

    `program`: of which every rank has ops.
    `name`: for messages.
    `parts`: from the number of a call and of a member of it to what that one does; by default one communication, but
        for messages between two ranks.
    Raises InputError if an op of one rank waits for one of another, which no trace of one rank can say.
    """
    whole = parts or _Whole(program.calls).part
    order = np.argsort(program.ops["rank"], kind="stable")
    ends = np.cumsum(np.bincount(program.ops["rank"], minlength=program.ranks))
    recordings = tuple(
        _Rank(program, name, rank, whole).recording(ops)
        for rank, ops in enumerate(np.split(order, ends[:-1]))
        if len(ops)
    )
    return Trace("program", recordings, program.ranks)


def lowering_losses(trace: Trace) -> tuple[str, ...]:
    """Say what of a trace is not in the program that it is rebuilt as."""
    checks = {
        "times at which operations began are left out": any(
            np.any(each.nodes["start"] != NONE) for each in trace.recordings
        ),
        "marks of iterations are left out": any(each.steps.size for each in trace.recordings),
    }
    return tuple(sentence for sentence, happens in checks.items() if happens)


class _Whole:
    """Leaves collectives whole."""

    def __init__(self, calls: CallList) -> None:
        self.calls = calls
        counts = accumulate((call.collective in _MESSAGES for call in calls), initial=0)
        self.tags = list(counts)[:-1]  # so that each send finds its receive
        numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.groups = [numbers.setdefault((call.dimension, call.ranks), len(numbers)) for call in calls]

    def part(self, number: int, member: int) -> MemberWork:
        """Say what a member of a call does."""
        call, tag = self.calls[number], self.tags[number]
        ranks = call.ranks
        if call.collective == "send_recv":
            operation: Operation = "recv" if member else "send"
            return MemberWork((Communication(operation, NONE, call.size, peer=ranks[1 - member], tag=tag),))
        if call.collective == "ring_exchange":
            following = ranks[(member + 1) % len(ranks)]
            sent = Communication("send", NONE, call.size, peer=following, tag=tag)
            return MemberWork((sent, Communication("recv", NONE, call.size, peer=ranks[member - 1], tag=tag)))
        root = ranks[0] if call.collective in _ROOTED else NONE
        return MemberWork((Communication(call.collective, self.groups[number], call.size, peer=root),))


class _Rank:
    """Makes the recording of one rank."""

    def __init__(self, program: Program, name: str, rank: int, parts: Callable[[int, int], MemberWork]) -> None:
        self.program, self.rank, self.parts = program, rank, parts
        self.builder = RecordingBuilder(name)
        self.lane = self.builder.lane("any", "")

    def recording(self, ops: NDArray[np.int64]) -> Recording:
        """Add ops, given by their places in the program."""
        nodes = {op: self._nodes(op) for op in ops.tolist()}
        for op, (_, ends) in nodes.items():
            first, count = (int(self.program.ops[key][op]) for key in ("first_successor", "successors"))
            for successor in self.program.successors[first : first + count].tolist():
                if successor not in nodes:
                    msg = f"{self.builder.source}: an operation of rank {self.rank} is waited for by another rank"
                    msg += "; only programs whose ranks meet in communications become traces"
                    raise InputError(msg)
                for end, head in product(ends, nodes[successor][0]):
                    self.builder.edge(end, head)
        return self.builder.build(self.rank, self.program.ranks)

    def _nodes(self, place: int) -> tuple[list[int], list[int]]:
        """Add the nodes of an op; gives those that begin it and those that end it."""
        op = self.program.ops[place]
        name = self.program.timers[op["timer"]]
        if op["kind"] != COLLECTIVE:
            kind = types.COMPUTE if op["kind"] == COMPUTE else types.HOST
            node = [self.builder.node(kind, self.lane, name, duration=int(op["duration"]))]
            return node, node
        number = int(op["call"])
        part = self.parts(number, int(op["member"]))
        if not part.messages:  # such as of a group of one: what waits for it goes on at once
            node = [self.builder.node(types.HOST, self.lane, name, duration=0)]
            return node, node
        nodes = [
            self.builder.node(types.COMMUNICATION, self.lane, name, communication=self._grouped(what, number))
            for what in part.messages
        ]
        for before, after in part.edges:
            self.builder.edge(nodes[before], nodes[after])
        begun = {nodes[after] for _, after in part.edges}
        passed = {nodes[before] for before, _ in part.edges}
        return [node for node in nodes if node not in begun], [node for node in nodes if node not in passed]

    def _grouped(self, what: Communication, number: int) -> Communication:
        """Put the number of a group in this recording in the place of that in the program."""
        if what.group == NONE:
            return what
        call = self.program.calls[number]
        group = self.builder.group(str(what.group + 1), call.dimension, call.ranks, len(call.ranks))
        return what._replace(group=group)
