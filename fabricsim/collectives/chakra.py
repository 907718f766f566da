"""Algorithms as Chakra files, one per rank, as ASTRA-sim takes them (``all-reduce-implementation-custom``).

What each rank does is a graph. It is laid out in strands, rows of nodes of which each waits for the one before; where
a node waits for one of another strand, it takes a token from it. The bytes of messages stand for parts of the buffer
and so follow the size of a call, where ASTRA-sim sends what the file says whatever the call
(``CustomAlgorithm::issue``). Which parts they are a file does not say; see `fabricsim.collectives.chakra_order` for
what is checked nevertheless.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fabricsim.collectives import chakra_files
from fabricsim.collectives.base import Template, alone
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.chakra_files import ChakraWork, RankFile
from fabricsim.collectives.chakra_order import EqualParts, Nodes, check_reached, check_volume, in_order, matched, parts
from fabricsim.collectives.semantics import check_messages
from fabricsim.errors import InputError, TraceError
from fabricsim.records.program import NONE
from fabricsim.scenario import collectives as spec
from fabricsim.traces.chakra.schema import COMM_RECV, COMM_SEND, COMP
from fabricsim.units import PS_PER_S

MOST_STRANDS = 256
"""Strands of a rank."""
MOST_LANES = 2**13
"""Strands of all ranks together."""
MOST_ENDS = 2**22
"""Strands of all ranks, times the connections of the one that has most."""

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")
"""What an algorithm may carry out."""


@dataclass(frozen=True)
class ChakraAlgorithm:
    """An algorithm for one group.

    `most`: parts of the buffer in the largest message, of which there are ``template.shards``.
    `reduction_rate`: bytes/s of the computations that follow receives, all together; 0 if they take no time.
    """

    template: Template
    most: int
    reduction_rate: float


@lru_cache(maxsize=16)
def read(name: str, collective: str, members: int) -> ChakraAlgorithm:
    """Read an algorithm.

    `name`: as `fabricsim.scenario.collectives.chakra_files` takes it.
    `members`: ranks of the group, which are those of the files.
    Raises InputError if the files are for something else, do not fit together, or cannot carry out the collective.
    """
    try:
        named = spec.chakra_files(name)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    if named is None or collective not in COLLECTIVES:
        raise InputError(f"{name}: Chakra files may describe {', '.join(COLLECTIVES)}, and not {collective}")
    if members == 1:
        return ChakraAlgorithm(alone(), 1, 0.0)
    files = chakra_files.read(named.pattern, members)
    for file in files:
        if file.collective not in {"", collective}:
            raise TraceError(file.path, f"is for {file.collective}, not for {collective}")
    nodes = Nodes(files)
    sends = matched(nodes)
    order = in_order(nodes, sends)
    check_reached(collective, nodes, order, sends)
    made = parts(files, _size(files, named))
    if named.size is not None:
        _check_size(files, named.size, made)
    check_volume(collective, files, made)
    strands = _Strands(nodes, sends)
    for node in order:
        strands.add(node)
    template = _Maker(nodes, sends, made, strands).make()
    check_messages(template, f"algorithm {name!r} for {collective} over {members} ranks")
    return ChakraAlgorithm(template, max(made.of.values()), _reduction_rate(files))


def _size(files: Sequence[RankFile], named: spec.ChakraFiles) -> int:
    """Bytes of the collective that the files are for."""
    if named.size is not None:
        return named.size
    sizes = {file.size for file in files}
    if len(sizes) == 1 and 0 not in sizes:
        return sizes.pop()
    differ = "the files say different sizes" if len(sizes) > 1 else "the files do not say the size"
    raise TraceError(named.pattern, f"{differ} of the collective that they are for; add it, as in {named.pattern}@1MiB")


def _check_size(files: Sequence[RankFile], size: int, made: EqualParts) -> None:
    """Refuse a size that differs from the one a file says by more than messages of whole bytes may."""
    for file in files:
        if file.size and abs(file.size - size) >= made.shards:
            problem = f"says that it is for a collective of {file.size} bytes, and @{size}B is asked for"
            raise TraceError(file.path, f"{problem}; leave the @ and what follows out")


def _reduction_rate(files: Sequence[RankFile]) -> float:
    """Divide the bytes that are reduced by the time of all computations.

    Raises TraceError if a computation takes time and follows no receive, of which there is nothing like here.
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
    return bytes_ * PS_PER_S / time if time else 0.0


def _reduced(file: RankFile) -> set[int]:
    """List the receives that a computation waits for, which are reductions."""
    after = {before for work in file.works if work.kind == COMP for before in work.before}
    return {place for place in after if file.works[place].kind == COMM_RECV}


class _Strands:
    """Lays the nodes of all ranks out in strands.

    A node continues a strand where it comes after all of it, and where none that is more like the last node of it is to
    come: a receive follows a receive from the same rank, so that messages which are sent one after the other share a
    connection, as in NCCL's FIFOs. Messages between two strands are received in the order in which they are sent.

    `of`: nodes of each strand of each rank.
    `at`: strand and number in it of each node.
    `tokens`: strand and number of the nodes of the same rank that a node waits for and its own strand does not.
    """

    def __init__(self, nodes: Nodes, sends: Sequence[int]) -> None:
        count = len(nodes.works)
        self._nodes, self._sends = nodes, sends
        self.of: list[list[list[int]]] = [[] for _ in nodes.files]
        self.at = [(NONE, NONE)] * count
        self.tokens: list[list[tuple[int, int]]] = [[]] * count
        self._past: list[list[int]] = [[]] * count
        self._left = [0] * count  # who still looks at the past of each node
        self._taken: dict[tuple[int, int, int, int], int] = {}
        self._lanes = 0
        self._heirs = [NONE] * count  # of those that wait for a node, the one that is most like it
        works = nodes.works
        for node, some in enumerate(nodes.before):
            for before in some:
                self._left[before] += 1
                heir = self._heirs[before]
                mine = _unlike(works[before], works[node])
                if heir == NONE or mine < _unlike(works[before], works[heir]):
                    self._heirs[before] = node

    def add(self, node: int) -> None:
        """Put a node in a strand; those that it waits for are in theirs."""
        before = self._nodes.before[node]
        past: list[int] = []  # nodes of each strand that come before this one; strands at the end may be left out
        for other in before:
            past = _later(past, self._past[other])
        strand = self._choose(node, past)
        nodes = self.of[self._nodes.rank[node]][strand]
        self._wait(node, strand, self._past[nodes[-1]] if nodes else None)
        if nodes:
            past = _later(past, self._past[nodes[-1]])
            self._forget(nodes[-1])
        nodes.append(node)
        self.at[node] = strand, len(nodes) - 1
        past = [*past, *[0] * (strand + 1 - len(past))]
        past[strand] = len(nodes)
        self._past[node] = past
        self._left[node] += 1  # the end of a strand is looked at, too
        for other in before:
            self._forget(other)

    def _forget(self, node: int) -> None:
        self._left[node] -= 1
        if not self._left[node]:
            self._past[node] = []

    def _choose(self, node: int, past: list[int]) -> int:
        works, rank = self._nodes.works, self._nodes.rank[node]
        work, before, strands = works[node], self._nodes.before[node], self.of[rank]
        chosen, least = len(strands), (2, (True, True))  # disliked more than any that is there
        for strand, nodes in enumerate(strands):
            last = nodes[-1]
            after = strand < len(past) and past[strand] == len(nodes)
            if self._is_free(node, strand, last, after=after):
                disliking = int(last not in before), _unlike(works[last], work)
                if disliking < least:
                    chosen, least = strand, disliking
        if chosen == len(strands):
            strands.append([])
            self._lanes += 1
            if chosen == MOST_STRANDS or self._lanes > MOST_LANES:
                limit = f"{MOST_STRANDS} of one rank, {MOST_LANES} of all"
                self._nodes.refuse(node, f"needs one more strand side by side than there may be ({limit})")
        send = self._sends[node]
        if send != NONE:
            strand, sent = self.at[send]
            self._taken[self._nodes.rank[send], strand, rank, chosen] = sent
        return chosen

    def _is_free(self, node: int, strand: int, last: int, *, after: bool) -> bool:
        """Whether a node may continue a strand that ends with `last`, `after` all of which it comes or not."""
        send = self._sends[node]
        if send != NONE:
            source, (of, sent) = self._nodes.rank[send], self.at[send]
            if self._taken.get((source, of, self._nodes.rank[node], strand), -1) >= sent:
                return False
            # what one strand sends to another comes in order anyway
            before = self._sends[last]
            if before != NONE and self._nodes.rank[before] == source and self.at[before][0] == of:
                return True
        heir = self._heirs[last]
        return after and (heir in {NONE, node} or self.at[heir][0] != NONE)

    def _wait(self, node: int, strand: int, known: list[int] | None) -> None:
        """Note the nodes that neither the strand itself nor another of them has waited for."""
        latest: dict[int, int] = {}
        for other in self._nodes.before[node]:
            of, number = self.at[other]
            if of != strand and (known is None or of >= len(known) or known[of] <= number):
                latest[of] = max(latest.get(of, -1), number)
        wanted = list(latest.items())
        if len(wanted) > 1:
            strands = self.of[self._nodes.rank[node]]
            pasts = np.zeros((len(wanted), len(strands)), np.int32)
            for row, (of, number) in zip(pasts, wanted, strict=True):
                past = self._past[strands[of][number]]
                row[: len(past)] = past
            ends = np.array(wanted)
            seen = (pasts[:, ends[:, 0]] > ends[:, 1]).sum(axis=0)  # by itself, and by those that come later
            wanted = [one for one, count in zip(wanted, seen.tolist(), strict=True) if count == 1]
        self.tokens[node] = wanted


def _later(one: list[int], other: list[int]) -> list[int]:
    """Give the larger of both at each place; what stands behind the end of one is 0."""
    if len(one) < len(other):
        one, other = other, one
    if not other:
        return one
    return [*map(max, one, other), *one[len(other) :]]


def _unlike(one: ChakraWork, other: ChakraWork) -> tuple[bool, bool]:
    """Say how much nodes differ: in what they do, and with whom."""
    return one.kind != other.kind, one.peer != other.peer


class _Maker:
    """Makes the template of strands."""

    def __init__(self, nodes: Nodes, sends: Sequence[int], made: EqualParts, strands: _Strands) -> None:
        self._nodes, self._sends, self._parts, self._strands = nodes, sends, made, strands
        self._ranks = len(nodes.files)
        self._lane = [of * self._ranks + rank for (of, _), rank in zip(strands.at, nodes.rank, strict=True)]
        self._first = self._places()
        self._receiver = {send: self._lane[node] for node, send in enumerate(sends) if send != NONE}
        self._builder = Builder(self._ranks, made.shards, max(len(of) for of in strands.of))

    def _places(self) -> dict[int, int]:
        """Give each message a place in the buffer, one behind the other, so that bytes left over are spread."""
        first: dict[int, int] = {}
        places = list(range(self._ranks))
        for node, (work, rank) in enumerate(zip(self._nodes.works, self._nodes.rank, strict=True)):
            if work.kind == COMM_SEND:
                first[node] = places[rank] % self._parts.shards
                places[rank] += self._parts.of[work.bytes]
        return first

    def make(self) -> Template:
        """Add the nodes of all strands, with the tokens of those that wait for one another."""
        waited: dict[int, list[int]] = {}
        for node, tokens in enumerate(self._strands.tokens):
            strands = self._strands.of[self._nodes.rank[node]]
            for of, number in tokens:
                waited.setdefault(strands[of][number], []).append(self._lane[node])
        for rank, strands in enumerate(self._strands.of):
            reduced = {self._nodes.first[rank] + place for place in _reduced(self._nodes.files[rank])}
            for nodes in strands:
                for node in nodes:
                    self._add(node, reduce=node in reduced)
                    for waiting in waited.get(node, ()):
                        self._builder.send(self._lane[node], waiting, 0, 0)
        if self._builder.widest * self._ranks * self._builder.strands > MOST_ENDS:
            problem = f"has too many connections: strands times connections of one are at most {MOST_ENDS}"
            raise TraceError(self._nodes.files[0].path, problem)
        return self._builder.build()

    def _add(self, node: int, *, reduce: bool) -> None:
        work, lane = self._nodes.works[node], self._lane[node]
        for strand, _ in self._strands.tokens[node]:
            self._builder.receive(lane, strand * self._ranks + self._nodes.rank[node], 0, 0)
        if work.kind == COMM_SEND:
            self._builder.send(lane, self._receiver[node], self._first[node], self._parts.of[work.bytes])
        elif work.kind == COMM_RECV:
            send = self._sends[node]
            first, count = self._first[send], self._parts.of[work.bytes]
            self._builder.receive(lane, self._lane[send], first, count, reduce=reduce)
