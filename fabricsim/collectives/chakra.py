"""Algorithms as Chakra files, one per rank, as ASTRA-sim takes them (``all-reduce-implementation-custom``).

What each rank does is a graph. It is laid out in strands, rows of nodes of which each waits for the one before; where
a node waits for one of another strand, it takes a token from it. The bytes of messages stand for parts of the buffer
and so follow the size of a call, where ASTRA-sim sends what the file says whatever the call
(``CustomAlgorithm::issue``). Which parts they are a file does not say; see `fabricsim.collectives.chakra_order` for
what is checked nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.collectives import chakra_files
from fabricsim.collectives.base import alone
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.chakra_order import check_reached, check_volume, in_order, matched, parts
from fabricsim.collectives.semantics import check_messages
from fabricsim.errors import InputError, TraceError
from fabricsim.spec import collectives as spec
from fabricsim.traces.chakra.schema import COMM_RECV, COMM_SEND, COMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.collectives.base import Template
    from fabricsim.collectives.chakra_files import RankFile, Work
    from fabricsim.collectives.chakra_order import Parts, Place

MOST_STRANDS = 256
"""Strands of a rank."""
MOST_LANES = 2**13
"""Strands of all ranks together."""
MOST_ENDS = 2**22
"""Strands of all ranks, times the connections of the one that has most."""

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")
"""What an algorithm may carry out."""

_PS_PER_S = 10**12


@dataclass(frozen=True)
class Description:
    """An algorithm for one group.

    Attributes
    ----------
    template
        What each rank does.
    most
        Parts of the buffer in the largest message, of which there are ``template.shards``.
    reduction_rate
        Bytes/s of the computations that follow receives, all together; 0 where they take no time.
    """

    template: Template
    most: int
    reduction_rate: float


@lru_cache(maxsize=16)
def read(name: str, collective: str, members: int) -> Description:
    """Read an algorithm.

    Parameters
    ----------
    name
        As `fabricsim.spec.collectives.chakra_files` takes it.
    collective
        What it is to carry out.
    members
        Ranks of the group, which are those of the files.

    Raises
    ------
    InputError
        Where the files are for something else, do not fit together, or cannot carry out the collective.
    """
    try:
        named = spec.chakra_files(name)
    except ValueError as error:
        msg = f"{name}: {error}"
        raise InputError(msg) from error
    if named is None or collective not in COLLECTIVES:
        msg = f"{name}: Chakra files may describe {', '.join(COLLECTIVES)}, and not {collective}"
        raise InputError(msg)
    if members == 1:
        return Description(alone(), 1, 0.0)
    files = chakra_files.read(named.pattern, members)
    for file in files:
        if file.collective not in {"", collective}:
            raise TraceError(file.path, f"is for {file.collective}, not for {collective}")
    sends = matched(files)
    order = in_order(files, sends)
    check_reached(collective, files, order, sends)
    made = parts(files, _size(files, named))
    if named.size is not None:
        _check_size(files, named.size, made)
    check_volume(collective, files, made)
    strands = _Strands(files, sends)
    for place in order:
        strands.add(place)
    template = _Maker(files, sends, made, strands).make()
    check_messages(template, f"algorithm {name!r} for {collective} over {members} ranks")
    return Description(template, max(made.of.values()), _reduction_rate(files))


def _size(files: Sequence[RankFile], named: spec.ChakraFiles) -> int:
    """Bytes of the collective that the files are for."""
    if named.size is not None:
        return named.size
    sizes = {file.size for file in files}
    if len(sizes) == 1 and 0 not in sizes:
        return sizes.pop()
    differ = "the files say different sizes" if len(sizes) > 1 else "the files do not say the size"
    problem = f"{differ} of the collective that they are for; add it, as in {named.pattern}@1MiB"
    raise TraceError(named.pattern, problem)


def _check_size(files: Sequence[RankFile], size: int, made: Parts) -> None:
    """Refuse a size that differs from the one a file says by more than messages of whole bytes may."""
    for file in files:
        if file.size and abs(file.size - size) >= made.shards:
            problem = f"says that it is for a collective of {file.size} bytes, and @{size}B is asked for"
            raise TraceError(file.path, f"{problem}; leave the @ and what follows out")


def _reduction_rate(files: Sequence[RankFile]) -> float:
    """Divide the bytes that are reduced by the time of all computations.

    Raises
    ------
    TraceError
        Where a computation takes time and follows no receive, of which there is nothing like here.
    """
    bytes_ = time = 0
    for file in files:
        reduced = _reduced(file)
        bytes_ += sum(file.works[place].bytes for place in reduced)
        for place, work in enumerate(file.works):
            time += work.duration
            if work.duration and not reduced.intersection(work.before):
                problem = "computes without waiting for a receive; only reductions of what was received take time"
                file.refuse(place, f"{problem}, so leave its duration out")
    return bytes_ * _PS_PER_S / time if time else 0.0


def _reduced(file: RankFile) -> set[int]:
    """List the receives that a computation waits for, which are reductions."""
    after = {before for work in file.works if work.kind == COMP for before in work.before}
    return {place for place in after if file.works[place].kind == COMM_RECV}


@dataclass
class _Strands:
    """Lays the nodes of all ranks out in strands.

    A node continues a strand where it comes after all of it, and where none that is more like the last node of it is to
    come: a receive follows a receive from the same rank, so that messages which are sent one after the other share a
    connection, as in NCCL's FIFOs. Messages between two strands are received in the order in which they are sent.

    Attributes
    ----------
    of
        Nodes of each strand of each rank.
    at
        Strand and number in it of each node.
    tokens
        Strand and number of the nodes of the same rank that a node waits for and its own strand does not.
    """

    files: Sequence[RankFile]
    sends: dict[Place, Place]
    of: list[list[list[int]]] = field(init=False)
    at: dict[Place, tuple[int, int]] = field(default_factory=dict)
    tokens: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    _past: dict[Place, list[int]] = field(default_factory=dict)
    _left: dict[Place, int] = field(default_factory=dict)
    _taken: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    _heirs: dict[Place, int] = field(default_factory=dict)
    _lanes: int = 0

    def __post_init__(self) -> None:
        self.of = [[] for _ in self.files]
        for rank, file in enumerate(self.files):
            for place, work in enumerate(file.works):
                for before in work.before:
                    self._left[rank, before] = self._left.get((rank, before), 0) + 1
                    heir = self._heirs.setdefault((rank, before), place)
                    if _unlike(file.works[before], work) < _unlike(file.works[before], file.works[heir]):
                        self._heirs[rank, before] = place

    def add(self, place: Place) -> None:
        """Put a node in a strand; those that it waits for are in theirs."""
        rank, number = place
        before = [(rank, other) for other in self.files[rank].works[number].before]
        past: list[int] = []  # nodes of each strand that come before this one; strands at the end may be left out
        for other in before:
            past = _later(past, self._past[other])
        strand = self._choose(place, past)
        nodes = self.of[rank][strand]
        self._wait(place, before, strand, self._past[rank, nodes[-1]] if nodes else None)
        if nodes:
            past = _later(past, self._past[rank, nodes[-1]])
            self._forget((rank, nodes[-1]))
        nodes.append(number)
        self.at[place] = strand, len(nodes) - 1
        past = [*past, *[0] * (strand + 1 - len(past))]
        past[strand] = len(nodes)
        self._past[place] = past
        self._left[place] = self._left.get(place, 0) + 1  # the end of a strand is looked at, too
        for other in before:
            self._forget(other)

    def _forget(self, place: Place) -> None:
        self._left[place] -= 1
        if not self._left[place]:
            del self._past[place]

    def _choose(self, place: Place, past: list[int]) -> int:
        rank, number = place
        works, strands = self.files[rank].works, self.of[rank]
        work = works[number]
        chosen, least = len(strands), (2, (True, True))  # disliked more than any that is there
        for strand, nodes in enumerate(strands):
            after = strand < len(past) and past[strand] == len(nodes)
            if self._is_free(place, strand, nodes[-1], after=after):
                last = nodes[-1]
                disliking = int(last not in work.before), _unlike(works[last], work)
                if disliking < least:
                    chosen, least = strand, disliking
        if chosen == len(strands):
            strands.append([])
            self._lanes += 1
            if chosen == MOST_STRANDS or self._lanes > MOST_LANES:
                limit = f"{MOST_STRANDS} of one rank, {MOST_LANES} of all"
                self.files[rank].refuse(number, f"needs one more strand side by side than there may be ({limit})")
        if work.kind == COMM_RECV:
            source, (strand, sent) = self.sends[place][0], self.at[self.sends[place]]
            self._taken[source, strand, rank, chosen] = sent
        return chosen

    def _is_free(self, place: Place, strand: int, end: int, *, after: bool) -> bool:
        """Whether a node may continue a strand with that end, `after` all of which it comes or not."""
        rank, number = place
        last = rank, end
        if place in self.sends:
            source, (of, sent) = self.sends[place][0], self.at[self.sends[place]]
            if self._taken.get((source, of, rank, strand), -1) >= sent:
                return False
            # what one strand sends to another comes in order anyway
            if last in self.sends and self.sends[last][0] == source and self.at[self.sends[last]][0] == of:
                return True
        heir = self._heirs.get(last, number)
        return after and (heir == number or (rank, heir) in self.at)

    def _wait(self, place: Place, before: list[Place], strand: int, known: list[int] | None) -> None:
        """Note the nodes that neither the strand itself nor another of them has waited for."""
        latest: dict[int, int] = {}
        for other in before:
            of, number = self.at[other]
            if of != strand and (known is None or of >= len(known) or known[of] <= number):
                latest[of] = max(latest.get(of, -1), number)
        wanted = list(latest.items())
        if len(wanted) > 1:
            rank, strands = place[0], self.of[place[0]]
            pasts = np.zeros((len(wanted), len(strands)), np.int32)
            for row, (of, number) in zip(pasts, wanted, strict=True):
                past = self._past[rank, strands[of][number]]
                row[: len(past)] = past
            ends = np.array(wanted)
            seen = (pasts[:, ends[:, 0]] > ends[:, 1]).sum(axis=0)  # by itself, and by those that come later
            wanted = [one for one, count in zip(wanted, seen.tolist(), strict=True) if count == 1]
        self.tokens[place] = wanted


def _later(one: list[int], other: list[int]) -> list[int]:
    """Give the larger of both at each place; what stands behind the end of one is 0."""
    if len(one) < len(other):
        one, other = other, one
    if not other:
        return one
    return [*map(max, one, other), *one[len(other) :]]


def _unlike(one: Work, other: Work) -> tuple[bool, bool]:
    """Say how much nodes differ: in what they do, and with whom."""
    return one.kind != other.kind, one.peer != other.peer


class _Maker:
    """Makes the template of strands."""

    def __init__(self, files: Sequence[RankFile], sends: dict[Place, Place], made: Parts, strands: _Strands) -> None:
        self._files, self._sends, self._parts, self._strands = files, sends, made, strands
        self._first = self._places()
        self._receiver = {sender: self._lane(*receiver) for receiver, sender in sends.items()}
        self._builder = Builder(len(files), made.shards, max(len(of) for of in strands.of))

    def _places(self) -> dict[Place, int]:
        """Give each message a place in the buffer, one behind the other, so that bytes left over are spread."""
        first: dict[Place, int] = {}
        for rank, file in enumerate(self._files):
            place = rank
            for number, work in enumerate(file.works):
                if work.kind == COMM_SEND:
                    first[rank, number] = place % self._parts.shards
                    place += self._parts.of[work.bytes]
        return first

    def make(self) -> Template:
        """Add the nodes of all strands, with the tokens of those that wait for one another."""
        waited: dict[tuple[int, int, int], list[int]] = {}
        for (rank, place), tokens in self._strands.tokens.items():
            lane = self._lane(rank, place)
            for token in tokens:
                waited.setdefault((rank, *token), []).append(lane)
        for rank, strands in enumerate(self._strands.of):
            reduced = _reduced(self._files[rank])
            for strand, places in enumerate(strands):
                for number, place in enumerate(places):
                    self._add(rank, place, reduce=place in reduced)
                    for waiting in waited.get((rank, strand, number), ()):
                        self._builder.send(self._lane(rank, place), waiting, 0, 0)
        if self._builder.widest * len(self._files) * self._builder.strands > MOST_ENDS:
            problem = f"has too many connections: strands times connections of one are at most {MOST_ENDS}"
            raise TraceError(self._files[0].path, problem)
        return self._builder.build()

    def _lane(self, rank: int, place: int) -> int:
        return self._strands.at[rank, place][0] * len(self._files) + rank

    def _add(self, rank: int, place: int, *, reduce: bool) -> None:
        work, lane = self._files[rank].works[place], self._lane(rank, place)
        for strand, _ in self._strands.tokens[rank, place]:
            self._builder.receive(lane, strand * len(self._files) + rank, 0, 0)
        if work.kind == COMM_SEND:
            first = self._first[rank, place]
            self._builder.send(lane, self._receiver[rank, place], first, self._parts.of[work.bytes])
        elif work.kind == COMM_RECV:
            sender = self._sends[rank, place]
            first, count = self._first[sender], self._parts.of[work.bytes]
            self._builder.receive(lane, self._lane(*sender), first, count, reduce=reduce)
