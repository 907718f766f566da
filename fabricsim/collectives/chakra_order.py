"""What the nodes of an algorithm's Chakra files wait for across ranks, and what they can and cannot have done.

The files do not say which part of the buffer a message carries. What no choice of parts could mend is found all the
same: messages without counterpart, ranks that wait for ever, a rank that nothing of another has reached, and one that
has sent or received too little.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, NoReturn

from fabricsim.collectives.chakra_files import RankFile
from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.chakra.schema import COMM_RECV, COMM_SEND

MOST_SHARDS = 4096
"""Equal parts of the buffer of which all messages must be made."""


class Nodes:
    """The nodes of all ranks, numbered one file after the other.

    `files`: of each rank.
    `works`: all nodes.
    `first`: number of the first node of each rank.
    `rank`: of each node.
    `before`: numbers of the nodes of the same file that each waits for.
    """

    def __init__(self, files: Sequence[RankFile]) -> None:
        self.files = files
        self.works = [work for file in files for work in file.works]
        self.first: list[int] = []
        self.rank: list[int] = []
        self.before: list[list[int]] = []
        for rank, file in enumerate(files):
            first = len(self.rank)
            self.first.append(first)
            self.rank += [rank] * len(file.works)
            self.before += [[first + place for place in work.before] for work in file.works]

    def refuse(self, node: int, problem: str) -> NoReturn:
        """Raise the error that names file and node."""
        rank = self.rank[node]
        self.files[rank].refuse(node - self.first[rank], problem)


class EqualParts(NamedTuple):
    """Messages in equal parts of the buffer.

    `shards`: parts of the buffer.
    `of`: parts of a message by its bytes.
    """

    shards: int
    of: dict[int, int]


def matched(nodes: Nodes) -> list[int]:
    """Find the send of each receive: the first of a pair and tag that is issued belongs to the first, and so on.

    Returns: of each node; NONE of those that do not receive.
    Raises TraceError if one has no counterpart, or they differ in their bytes, or nodes of a file wait for one another.
    """
    issued = {kind: dict[tuple[int, int, int], list[int]]() for kind in (COMM_SEND, COMM_RECV)}
    for node in _issued(nodes):
        work, rank = nodes.works[node], nodes.rank[node]
        if work.kind in issued:
            key = (rank, work.peer, work.tag) if work.kind == COMM_SEND else (work.peer, rank, work.tag)
            issued[work.kind].setdefault(key, []).append(node)
    sends, receives = issued[COMM_SEND], issued[COMM_RECV]
    found = [NONE] * len(nodes.works)
    for key in dict.fromkeys((*sends, *receives)):
        some, others = sends.get(key, []), receives.get(key, [])
        for send, receive in zip(some, others, strict=False):
            _require_same_bytes(nodes, send, receive)
            found[receive] = send
        if len(some) != len(others):
            _refuse_alone(nodes, key, some, others)
    return found


def _refuse_alone(nodes: Nodes, key: tuple[int, int, int], sends: Sequence[int], receives: Sequence[int]) -> NoReturn:
    """Name the first message of a pair and tag that only one of both has."""
    sender, receiver, tag = key
    number = min(len(sends), len(receives))
    if len(sends) > number:
        node, what, other = sends[number], "sends", f"{nodes.files[receiver].path} never receives"
    else:
        node, what, other = receives[number], "receives", f"{nodes.files[sender].path} never sends"
    way = f"from rank {sender} to {receiver} with tag {tag}"
    nodes.refuse(node, f"{what} message {number + 1} {way}, which {other}")


def _require_same_bytes(nodes: Nodes, send: int, receive: int) -> None:
    sent, received = nodes.works[send], nodes.works[receive]
    if sent.bytes != received.bytes:
        path = nodes.files[nodes.rank[send]].path
        nodes.refuse(receive, f"receives {received.bytes} bytes of what node {sent.id} of {path} sends as {sent.bytes}")


def _issued(nodes: Nodes) -> Iterable[int]:
    """Order the nodes of each file as they can be issued, the first in the file first."""
    if all(before < node for node, some in enumerate(nodes.before) for before in some):
        return range(len(nodes.works))
    after = _successors(nodes.before)
    missing = [len(some) for some in nodes.before]
    ready = [node for node, count in enumerate(missing) if not count]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for other in after[node]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, other)
    if len(order) < len(missing):
        node = _in_circle(nodes.before, missing)
        nodes.refuse(node, "waits for itself, by way of others; its dependencies form a circle")
    return order


def in_order(nodes: Nodes, sends: Sequence[int]) -> list[int]:
    """Order the nodes of all ranks so that each comes after those that it waits for, a receive after its send.

    Raises TraceError if ranks wait for one another for ever.
    """
    waits = [before if send == NONE else [*before, send] for before, send in zip(nodes.before, sends, strict=True)]
    after = _successors(waits)
    missing = [len(before) for before in waits]
    order = [node for node, count in enumerate(missing) if not count]
    for node in order:  # which grows
        for other in after[node]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    if len(order) < len(missing):
        node = _in_circle(waits, missing)
        nodes.refuse(node, "waits for itself, by way of other ranks: all of them receive before they send")
    return order


def _successors(waits: Sequence[Sequence[int]]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in waits]
    for node, before in enumerate(waits):
        for other in before:
            after[other].append(node)
    return after


def _in_circle(waits: Sequence[Sequence[int]], missing: Sequence[int]) -> int:
    """Find a node that waits for itself, among those that can never run: nodes that miss some that they wait for."""
    met = set[int]()
    node = next(node for node, count in enumerate(missing) if count)
    while node not in met:
        met.add(node)
        node = next(other for other in waits[node] if missing[other])
    return node


def parts(files: Sequence[RankFile], size: int) -> EqualParts:
    """Find the fewest equal parts of a buffer of which all messages are made, to the whole byte.

    Raises TraceError if a message is larger than the buffer, or there is no such number up to `MOST_SHARDS`.
    """
    bytes_: dict[int, None] = {}
    for file in files:
        for place, work in enumerate(file.works):
            if work.bytes > size:
                problem = f"has {work.bytes} bytes, more than the {size} of the collective that the files are for"
                file.refuse(place, problem)
            if work.kind == COMM_SEND:
                bytes_[work.bytes] = None
    if len(bytes_) <= 2 * MOST_SHARDS:  # each number of parts is rounded up or down
        for shards in range(1, MOST_SHARDS + 1):
            found = {count: round(count * shards / size) for count in bytes_}
            if all(part and abs(part * size - count * shards) < shards for count, part in found.items()):
                return EqualParts(shards, found)
    problem = f"sends parts of a buffer of {size} bytes that are no multiples of 1/2 to 1/{MOST_SHARDS} of it"
    raise TraceError(files[0].path, f"{problem}; say the size that the files are for, such as name.*.et@1MiB")


def check_reached(collective: str, nodes: Nodes, order: Sequence[int], sends: Sequence[int]) -> None:
    """Refuse an algorithm in which a rank ends without what depends on a rank that it needs.

    Raises TraceError: with the rank's file.
    """
    files = nodes.files
    ranks = len(files)
    known = [1 << rank for rank in nodes.rank]
    ends = [1 << rank for rank in range(ranks)]
    for node in order:
        held = known[node]
        for before in nodes.before[node]:
            held |= known[before]
        if sends[node] != NONE:
            held |= known[sends[node]]
        known[node] = held
        ends[nodes.rank[node]] |= held
    everyone = (1 << ranks) - 1
    needed = {"broadcast": [1] * ranks, "reduce": [everyone] + [0] * (ranks - 1)}.get(collective, [everyone] * ranks)
    for rank, (held, wanted) in enumerate(zip(ends, needed, strict=True)):
        if lacking := wanted & ~held:
            absent = (lacking & -lacking).bit_length() - 1
            problem = f"rank {rank} ends without anything of rank {absent}, which {collective} needs"
            raise TraceError(files[rank].path, f"{problem}: no chain of messages and dependencies leads from there")


def check_volume(collective: str, files: Sequence[RankFile], made: EqualParts) -> None:
    """Refuse an algorithm in which a rank sends or receives what its collective cannot do with.

    Every byte of a result that depends on others must come in, and every byte that others depend on must go out: of an
    all-reduce the whole buffer both ways, of a reduce-scatter, all-gather and all-to-all all but the rank's own part of
    it, or that part. A place of the buffer that comes in more often than there are different contents for it is one too
    many: a gathered buffer and a broadcast have one; an all-to-all has the blocks of all others, which a rank may pass
    on; a reduction has a contribution of each other rank, and the result.

    Raises TraceError: with the rank's file.
    """
    most = {"all_gather": 1, "broadcast": 1, "all_to_all": len(files) - 1}.get(collective, len(files))
    for rank, file in enumerate(files):
        least = _least(collective, rank, len(files))
        for kind, what, wanted in ((COMM_SEND, "sends", least[0]), (COMM_RECV, "receives", least[1])):
            count = sum(made.of[work.bytes] for work in file.works if work.kind == kind)
            problem = f"rank {rank} {what} {count}/{made.shards} of the buffer; no {collective} can"
            if count * len(files) < wanted * made.shards:
                raise TraceError(file.path, f"{problem} do with less than {wanted}/{len(files)}")
            if kind == COMM_RECV and count > most * made.shards:
                size = "the size that the files are for is larger than was said, or messages are there twice"
                raise TraceError(file.path, f"{problem} have a use for more than {most} times all of it: {size}")


def _least(collective: str, rank: int, ranks: int) -> tuple[int, int]:
    """Give the least that a rank sends and receives, in parts of the buffer of which there are as many as ranks."""
    rest = ranks - 1
    first = rank == 0
    return {
        "all_reduce": (ranks, ranks),
        "reduce_scatter": (rest, 1),
        "all_gather": (1, rest),
        "all_to_all": (rest, rest),
        "broadcast": (ranks if first else 0, 0 if first else ranks),
        "reduce": (0 if first else ranks, ranks if first else 0),
    }[collective]
