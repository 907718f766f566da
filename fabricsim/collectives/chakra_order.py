"""What the nodes of an algorithm's Chakra files wait for across ranks, and what they can and cannot have done.

The files do not say which part of the buffer a message carries. What no choice of parts could mend is found all the
same: messages without counterpart, ranks that wait for ever, a rank that nothing of another has reached, and one that
has sent or received too little.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from fabricsim.errors import TraceError
from fabricsim.traces.chakra.schema import COMM_RECV, COMM_SEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fabricsim.collectives.chakra_files import RankFile

MOST_SHARDS = 4096
"""Equal parts of the buffer of which all messages must be made."""

T = TypeVar("T")

Place = tuple[int, int]
"""A rank, and the place of a node in its file."""


class Parts(NamedTuple):
    """Messages in equal parts of the buffer.

    Attributes
    ----------
    shards
        Parts of the buffer.
    of
        Parts of a message by its bytes.
    """

    shards: int
    of: dict[int, int]


def matched(files: Sequence[RankFile]) -> dict[Place, Place]:
    """Find the send of each receive: the first of a pair and tag that is issued belongs to the first, and so on.

    Raises
    ------
    TraceError
        Where one has no counterpart, or they differ in their bytes, or nodes of a file wait for one another.
    """
    issued = {kind: dict[tuple[int, int, int], deque[Place]]() for kind in (COMM_SEND, COMM_RECV)}
    for rank, file in enumerate(files):
        for place in _issued(file):
            work = file.works[place]
            if work.kind in issued:
                ends = (rank, work.peer) if work.kind == COMM_SEND else (work.peer, rank)
                issued[work.kind].setdefault((*ends, work.tag), deque()).append((rank, place))
    sends, receives = issued[COMM_SEND], issued[COMM_RECV]
    found = {}
    for key in dict.fromkeys((*sends, *receives)):
        some, others = sends.get(key, deque()), receives.get(key, deque())
        for send, receive in zip(some, others, strict=False):
            _require_same_bytes(files, send, receive)
            found[receive] = send
        if len(some) != len(others):
            _refuse_alone(files, key, some, others)
    return found


def _refuse_alone(
    files: Sequence[RankFile], key: tuple[int, int, int], sends: Sequence[Place], receives: Sequence[Place]
) -> NoReturn:
    """Name the first message of a pair and tag that only one of both has."""
    sender, receiver, tag = key
    number = min(len(sends), len(receives))
    if len(sends) > number:
        (rank, place), what, other = sends[number], "sends", f"{files[receiver].path} never receives"
    else:
        (rank, place), what, other = receives[number], "receives", f"{files[sender].path} never sends"
    way = f"from rank {sender} to {receiver} with tag {tag}"
    files[rank].refuse(place, f"{what} message {number + 1} {way}, which {other}")


def _require_same_bytes(files: Sequence[RankFile], send: Place, receive: Place) -> None:
    sent, received = (files[rank].works[place] for rank, place in (send, receive))
    if sent.bytes != received.bytes:
        problem = (
            f"receives {received.bytes} bytes of what node {sent.id} of {files[send[0]].path} sends as {sent.bytes}"
        )
        files[receive[0]].refuse(receive[1], problem)


def _issued(file: RankFile) -> list[int]:
    """Order the nodes of a file as they can be issued, the first in the file first."""
    after = _successors(range(len(file.works)), lambda place: file.works[place].before)
    missing = [len(work.before) for work in file.works]
    ready = [place for place, count in enumerate(missing) if not count]
    heapify(ready)
    order = []
    while ready:
        place = heappop(ready)
        order.append(place)
        for other in after.get(place, ()):
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, other)
    if len(order) < len(missing):
        place = _in_circle({place: file.works[place].before for place, count in enumerate(missing) if count})
        file.refuse(place, "waits for itself, by way of others; its dependencies form a circle")
    return order


def in_order(files: Sequence[RankFile], sends: dict[Place, Place]) -> list[Place]:
    """Order the nodes of all ranks so that each comes after those that it waits for, a receive after its send.

    Raises
    ------
    TraceError
        Where ranks wait for one another for ever.
    """
    waits = {
        (rank, place): [
            *((rank, before) for before in work.before),
            *([sends[rank, place]] if work.kind == COMM_RECV else []),
        ]
        for rank, file in enumerate(files)
        for place, work in enumerate(file.works)
    }
    after = _successors(waits, waits.__getitem__)
    missing = {place: len(before) for place, before in waits.items()}
    ready = deque(place for place, count in missing.items() if not count)
    order = []
    while ready:
        order.append(ready.popleft())
        for other in after.get(order[-1], ()):
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(order) < len(missing):
        rank, place = _in_circle({place: waits[place] for place, count in missing.items() if count})
        files[rank].refuse(place, "waits for itself, by way of other ranks: all of them receive before they send")
    return order


def _successors(nodes: Iterable[T], before: Callable[[T], Iterable[T]]) -> dict[T, list[T]]:
    after: dict[T, list[T]] = {}
    for node in nodes:
        for other in before(node):
            after.setdefault(other, []).append(node)
    return after


def _in_circle(stuck: dict[T, Sequence[T]]) -> T:
    """Find a node that waits for itself, among those that can never run."""
    met = set[T]()
    node = next(iter(stuck))
    while node not in met:
        met.add(node)
        node = next(other for other in stuck[node] if other in stuck)
    return node


def parts(files: Sequence[RankFile], size: int) -> Parts:
    """Find the fewest equal parts of a buffer of which all messages are made, to the whole byte.

    Raises
    ------
    TraceError
        Where a message is larger than the buffer, or there is no such number up to `MOST_SHARDS`.
    """
    bytes_: dict[int, Place] = {}
    for rank, file in enumerate(files):
        for place, work in enumerate(file.works):
            if work.bytes > size:
                problem = f"has {work.bytes} bytes, more than the {size} of the collective that the files are for"
                file.refuse(place, problem)
            if work.kind == COMM_SEND:
                bytes_.setdefault(work.bytes, (rank, place))
    if len(bytes_) <= 2 * MOST_SHARDS:  # each number of parts is rounded up or down
        for shards in range(1, MOST_SHARDS + 1):
            found = {count: round(count * shards / size) for count in bytes_}
            if all(part and abs(part * size - count * shards) < shards for count, part in found.items()):
                return Parts(shards, found)
    problem = f"sends parts of a buffer of {size} bytes that are no multiples of 1/2 to 1/{MOST_SHARDS} of it"
    raise TraceError(files[0].path, f"{problem}; say the size that the files are for, such as name.*.et@1MiB")


def check_reached(collective: str, files: Sequence[RankFile], order: list[Place], sends: dict[Place, Place]) -> None:
    """Refuse an algorithm in which a rank ends without what depends on a rank that it needs.

    Raises
    ------
    TraceError
        With the rank's file.
    """
    ranks = len(files)
    known: dict[Place, int] = {}
    ends = [1 << rank for rank in range(ranks)]
    for rank, place in order:
        work = files[rank].works[place]
        held = 1 << rank
        for before in work.before:
            held |= known[rank, before]
        if work.kind == COMM_RECV:
            held |= known[sends[rank, place]]
        known[rank, place] = held
        ends[rank] |= held
    everyone = (1 << ranks) - 1
    needed = {"broadcast": [1] * ranks, "reduce": [everyone] + [0] * (ranks - 1)}.get(collective, [everyone] * ranks)
    for rank, (held, wanted) in enumerate(zip(ends, needed, strict=True)):
        if lacking := wanted & ~held:
            absent = (lacking & -lacking).bit_length() - 1
            problem = f"rank {rank} ends without anything of rank {absent}, which {collective} needs"
            raise TraceError(files[rank].path, f"{problem}: no chain of messages and dependencies leads from there")


def check_volume(collective: str, files: Sequence[RankFile], made: Parts) -> None:
    """Refuse an algorithm in which a rank sends or receives what its collective cannot do with.

    Every byte of a result that depends on others must come in, and every byte that others depend on must go out: of an
    all-reduce the whole buffer both ways, of a reduce-scatter, all-gather and all-to-all all but the rank's own part of
    it, or that part. A place of the buffer that comes in more often than there are different contents for it is one too
    many: a gathered buffer and a broadcast have one; an all-to-all has the blocks of all others, which a rank may pass
    on; a reduction has a contribution of each other rank, and the result.

    Raises
    ------
    TraceError
        With the rank's file.
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
