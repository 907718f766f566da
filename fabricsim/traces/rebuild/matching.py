"""Which communications of different ranks are parts of one: by group and sequence number, or by order.

A captured kernel of a collective lasts from when its rank was ready until all were done: most of that is waiting. What
is kept is which ranks take part and with how much; when each is ready, and how long it then takes, is the replay's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.groups import sized
from fabricsim.traces.rebuild.cast import Cast
from fabricsim.traces.rebuild.dependencies import Ordered
from fabricsim.traces.rebuild.groups import GroupFinder, Team
from fabricsim.traces.rebuild.leading import assumption, check_not_alone, leading, sizeless
from fabricsim.traces.trace import COMMUNICATION, Communication, Recording
from fabricsim.workload.program import Call, CallList, CollectiveName

MOST_CALLS = 2**22
"""Of a program; an all_to_all of which each pair of ranks moves another size has one for each pair."""
_BARRIER = 4  # bytes that PyTorch's NCCL backend all-reduces in a barrier: one element

_MESSAGES = ("send", "recv")
_ROOTED = ("broadcast", "reduce")
_ALIKE = ("all_reduce", "broadcast", "reduce", "reduce_scatter")
"""Operations to which all ranks of a group hand in as much."""
_DIRECT = (*_ALIKE, "all_gather", "all_to_all")
"""Operations that a program calls by the same names."""


class RankCall(NamedTuple):
    """One rank's place in a call."""

    call: int
    member: int


@dataclass
class Match:
    """A communication of the job: what each of its ranks contributes.

    `ranks`: the group in its order.
    `root`: place of the root among the ranks; NONE if there is none or it is not known.
    `numbered`: whether its group numbers its communications.
    `place`: place in the order of its group, of the rank that captured most of them.
    `left_out`: whether it is not replayed, as it was not captured on all its ranks, or what it moves was not.
    `nodes`: of each rank that has been found the recording, what it does, and the node in its order.
    `size`: bytes that are replayed, as of `Communication.size`; NONE if it is several calls or none.
    """

    ranks: tuple[int, ...]
    root: int = NONE
    numbered: bool = False
    place: int = 0
    left_out: bool = False
    nodes: dict[int, tuple[Recording, Communication, int]] = field(default_factory=dict)
    size: int = NONE


@dataclass(frozen=True)
class Matched:
    """All communications of a job.

    `calls`: what a program calls.
    `parts`: of each rank, for each of its communication nodes in order: the calls that make it up. None if it moves
        nothing.
    `assumed`: what was assumed of groups, a sentence each.
    `left_out`: matches that were not captured on all their ranks, by the numbers that their groups give them, or
        because some ranks had launched theirs before the capture began.
    `numbers`: of each rank, for each of its communication nodes in order: its communication, an index into `matches`.
    """

    calls: CallList
    parts: tuple[tuple[tuple[RankCall, ...], ...], ...]
    matches: tuple[Match, ...]
    assumed: tuple[str, ...]
    left_out: int
    numbers: tuple[tuple[int, ...], ...]


def match(cast: Cast, recordings: Sequence[Recording], ordered: Sequence[Ordered]) -> Matched:
    """Match the communications of all ranks.

    Raises TraceError if ranks of a group do not make the same calls, or it is not known how much they send.
    """
    return _Matcher(cast, recordings, ordered).matched()


class _Matcher:
    def __init__(self, cast: Cast, recordings: Sequence[Recording], ordered: Sequence[Ordered]) -> None:
        self.cast = cast
        self.recordings = recordings
        self.groups = GroupFinder(cast)
        self.nodes = [np.flatnonzero(each.nodes["kind"] == COMMUNICATION) for each in ordered]
        self.ordered = ordered
        self.matches: list[Match] = []
        self.calls: list[Call] = []
        self.known: dict[tuple[object, ...], int] = {}
        self.left_out = 0
        self.numbered = self._numbered_groups()
        check_not_alone(recordings)
        self.leading = [leading(*some) for some in zip(recordings, ordered, strict=True)]
        self.behind = self._behind()
        if note := assumption(self.leading):
            self.groups.assumed[note] = None

    def _numbered_groups(self) -> set[str]:
        """Find the groups that number their collectives, each once: then ranks may begin at different ones."""
        numbered: dict[str, bool] = {}
        for recording, ordered, place in zip(self.recordings, self.ordered, self.nodes, strict=True):
            seen: dict[str, set[int]] = {}
            rows = ordered.nodes[place]
            for what, sequence in zip(rows["communication"].tolist(), rows["sequence"].tolist(), strict=True):
                communication = recording.communications[what]
                if communication.operation in _MESSAGES:
                    continue
                name = _group_name(recording, communication)
                before = seen.setdefault(name, set())
                once = sequence != NONE and sequence not in before
                numbered[name] = numbered.get(name, True) and once
                before.add(sequence)
        return {name for name, once in numbered.items() if once}

    def matched(self) -> Matched:
        """Match all, then write each out as calls."""
        numbers = [self._numbers(rank) for rank in range(self.cast.ranks)]
        written = [self._write(found) for found in self.matches]
        parts = tuple(
            tuple(written[number].get(rank, ()) for number in mine) for rank, mine in enumerate(map(list, numbers))
        )
        return Matched(
            CallList.of(self.calls),
            parts,
            tuple(self.matches),
            tuple(self.groups.assumed),
            self.left_out,
            tuple(map(tuple, numbers)),
        )

    def _behind(self) -> dict[tuple[tuple[object, ...], int], int]:
        """Count what each rank lacks at the beginning of a group's communications, as it leads with unknown ones.

        Captures of such a job begin at different communications, and are taken to end with the same one.
        """
        counts: dict[tuple[object, ...], dict[int, int]] = {}
        for rank in range(self.cast.ranks) if any(some.any() for some in self.leading) else ():
            for _, _, _, found in self._keyed(rank):
                if found is not None:
                    of_key = counts.setdefault(found[0], {})
                    of_key[rank] = of_key.get(rank, 0) + 1
        return {
            (key, rank): max(of_key.values()) - count
            for key, of_key in counts.items()
            for rank, count in of_key.items()
        }

    def _keyed(
        self, rank: int
    ) -> Iterator[tuple[int, Communication, int, tuple[tuple[object, ...], tuple[int, ...]] | None]]:
        """Give node, what it does, its sequence number, its key and ranks (`_key`) of each; None of leading ones."""
        index = self.cast.of[rank % self.cast.captured]
        recording, place = self.recordings[index], self.nodes[index]
        rows = self.ordered[index].nodes[place]
        teams: dict[int, Team] = {}
        columns = (place, rows["communication"], rows["sequence"], self.leading[index])
        for node, what, sequence, leads in zip(*(column.tolist() for column in columns), strict=True):
            communication = recording.communications[what]
            yield node, communication, sequence, None if leads else self._key(recording, communication, rank, teams)

    def _numbers(self, rank: int) -> list[int]:
        """Find or make the match of each communication node of a rank."""
        recording = self.recordings[self.cast.of[rank % self.cast.captured]]
        seen: dict[tuple[object, ...], int] = {}
        numbers = []
        for node, communication, sequence, found in self._keyed(rank):
            if found is None:
                numbers.append(len(self.matches))
                self.matches.append(Match((rank,), left_out=True, nodes={rank: (recording, communication, node)}))
                continue
            key, ranks = found
            count = seen[key] = seen.get(key, self.behind.get((key, rank), 0) - 1) + 1
            numbered = key[0] == "group" and key[1] in self.numbered
            number = self.known.setdefault((*key, sequence if numbered else count), len(self.matches))
            if number == len(self.matches):
                self.matches.append(Match(ranks, self._root(recording, communication), numbered, count))
            self.matches[number].nodes[rank] = (recording, sized(communication, len(ranks)), node)
            numbers.append(number)
        return numbers

    def _root(self, recording: Recording, communication: Communication) -> int:
        """Find the place of the root in its group, which is that of images of the group, too."""
        if communication.operation not in {*_ROOTED, "gather", "scatter"}:
            return NONE
        if communication.member != NONE:
            return communication.member
        own = self.groups.team(recording, communication.group, max(recording.rank, 0)).ranks
        if communication.peer in own:
            return own.index(communication.peer)
        self.groups.assumed["roots that the trace does not say are the first of their groups"] = None
        return 0

    def _key(
        self, recording: Recording, communication: Communication, rank: int, teams: dict[int, Team]
    ) -> tuple[tuple[object, ...], tuple[int, ...]]:
        """Tell what the communications of different ranks that belong together have in common, and the ranks."""
        if communication.operation in _MESSAGES:
            peer = self._peer(recording, communication, rank)
            ends = (rank, peer) if communication.operation == "send" else (peer, rank)
            return ("message", *ends, communication.tag), ends
        if communication.group not in teams:
            teams[communication.group] = self.groups.team(recording, communication.group, rank)
        team = teams[communication.group]
        name = _group_name(recording, communication)
        if rank not in team.members:
            msg = f"rank {rank} communicates in group {name!r}, whose ranks are {', '.join(map(str, team.ranks[:8]))}"
            raise TraceError(recording.source, f"{msg}; mend the list of its ranks")
        return ("group", name, team.number), team.ranks

    def _peer(self, recording: Recording, communication: Communication, rank: int) -> int:
        if communication.peer == NONE:
            way = "goes to" if communication.operation == "send" else "comes from"
            msg = f"does not say where a {communication.operation} {way}, which a replay has to know beforehand"
            raise TraceError(recording.source, f"{msg}; name the rank, or capture with communication metadata")
        if communication.tag == NONE:
            msg = "has a receive of any tag, and a replay has to know beforehand of which; name the tag"
            raise TraceError(recording.source, msg)
        replica, base = divmod(rank, self.cast.captured)
        own = max(recording.rank, 0)
        if base == own:
            return replica * self.cast.captured + communication.peer
        peer = self.groups.peer(recording, communication.peer, rank)
        if peer == NONE:
            msg = f"has sends and receives, so that rank {base} cannot be taken to do as rank {own} does"
            raise TraceError(recording.source, f"{msg}; give the files of all {self.cast.captured} ranks")
        self.groups.assumed["ranks that were not captured send to the same places of their groups"] = None
        return peer

    def _write(self, found: Match) -> dict[int, tuple[RankCall, ...]]:
        """Add the calls of a match; gives the parts of each rank."""
        if found.left_out:
            return {}
        recording, first, _ = next(iter(found.nodes.values()))
        missing = [rank for rank in found.ranks if rank not in found.nodes]
        if missing and (found.numbered or all(found.place < self._unknown(rank) for rank in missing)):
            found.left_out = True
            self.left_out += 1
            return {}
        if missing:
            seen = f"{len(found.nodes)} of {len(found.ranks)} ranks captured {first.operation} number {found.place + 1}"
            msg = f"{seen} of {_named(recording, first)}, and rank {missing[0]} did not"
            msg += "; capture the same iterations on all ranks"
            raise TraceError(recording.source, msg)
        if first.operation in _MESSAGES and found.ranks[0] == found.ranks[1]:
            self.groups.assumed["messages of a rank to itself take no time, and nothing waits for them"] = None
        return _Writer(self.calls, found).parts()

    def _unknown(self, rank: int) -> int:
        """Count the leading communications of a rank."""
        return int(self.leading[self.cast.of[rank % self.cast.captured]].sum())


def _group_name(recording: Recording, communication: Communication) -> str:
    return "" if communication.group == NONE else recording.groups[communication.group].name


def _named(recording: Recording, what: Communication) -> str:
    """Name the group of a communication, or the other end of a message and its tag."""
    if what.operation in _MESSAGES:
        return (
            f"rank {max(recording.rank, 0)} {'to' if what.operation == 'send' else 'from'} {what.peer}, tag {what.tag}"
        )
    return f"group {_group_name(recording, what)!r}"


class _Writer:
    """Writes one match out as calls."""

    def __init__(self, calls: list[Call], found: Match) -> None:
        self.calls = calls
        self.found = found
        self.ranks = found.ranks
        self.root = max(found.root, 0)
        self.recording, self.first, _ = found.nodes[found.ranks[0]]
        self.of = [found.nodes[rank][1] for rank in found.ranks]

    def parts(self) -> dict[int, tuple[RankCall, ...]]:
        """Add the calls; gives the parts of each rank."""
        operation = self.first.operation
        if operation in _MESSAGES:
            return self._message()
        for rank, each in zip(self.ranks, self.of, strict=True):
            if each.operation != operation:
                which = f"as call {self.found.place + 1} of group {self.dimension!r}"
                other = f"where rank {rank} ({self.found.nodes[rank][0].source}) calls {each.operation}"
                msg = f"rank {self.ranks[0]} calls {operation} {which}, {other}"
                raise TraceError(self.recording.source, f"{msg}; capture the same iterations on all ranks")
        if len(self.ranks) == 1:
            return {}
        if operation == "barrier":
            return self._call("all_reduce", self.ranks, max(self.first.size, _BARRIER))
        if operation in {"gather", "scatter"}:
            return self._pairs(self._to_or_from_root())
        if operation == "all_to_all" and (any(each.sent for each in self.of) or self._uneven()):
            return self._pairs(self._all_pairs())
        if operation not in _DIRECT:
            msg = f"has a communication of {len(self.ranks)} ranks without saying what it does"
            raise TraceError(self.recording.source, f"{msg}; {self._way_out('capture it with PyTorch 2.2 or newer')}")
        if operation in _ALIKE and self._uneven():
            msg = (
                f"ranks of a group move {' and '.join(map(str, self._sizes()))} bytes in what should be one {operation}"
            )
            raise TraceError(self.recording.source, f"{msg}; capture the same iterations on all ranks")
        first = self.root if operation in _ROOTED else 0  # where a ring begins
        ranks = (*self.ranks[first:], *self.ranks[:first])
        self.found.size = self._known(self._size())
        return self._call(cast("CollectiveName", operation), ranks, self.found.size)

    def _message(self) -> dict[int, tuple[RankCall, ...]]:
        """Send what the sender does, as a receive may have room for more; one of no bytes is waited for, too."""
        if self.ranks[0] == self.ranks[1]:
            return {}
        sent, received = (each.size for each in self.of)
        self.found.size = self._known(received if sent == NONE else sent)
        return self._call("send_recv", self.ranks, max(self.found.size, 1))

    def _size(self) -> int:
        """Bytes of a collective; ranks may hand in parts of different sizes to an all-gather."""
        sizes = [each.size for each in self.of]
        uneven = self.first.operation == "all_gather" and NONE not in sizes
        return sum(sizes) // len(sizes) if uneven else max(sizes)

    def _sizes(self) -> list[int]:
        return sorted({each.size for each in self.of} - {NONE})

    def _uneven(self) -> bool:
        return len(self._sizes()) > 1

    def _known(self, size: int) -> int:
        if size == NONE:
            msg = f"does not say how many bytes its {self.first.operation} moves"
            raise TraceError(self.recording.source, f"{msg}; {self._way_out('give its execution trace, too')}")
        return size

    def _way_out(self, without: str) -> str:
        """Say what to do about a communication that is not described; `without` is of files that describe none."""
        if all(map(sizeless, self.recording.communications)):
            return without
        return "others before it are described, so the capture is not whole: capture again, or give its execution trace"

    def _call(self, collective: CollectiveName, ranks: tuple[int, ...], size: int) -> dict[int, tuple[RankCall, ...]]:
        if size <= 0:
            return {}
        if len(self.calls) >= MOST_CALLS:
            msg = f"makes more than {MOST_CALLS} calls; give fewer iterations, or the traces of a smaller job"
            raise TraceError(self.recording.source, msg)
        self.calls.append(Call(collective, ranks, size, self.dimension))
        return {rank: (RankCall(len(self.calls) - 1, member),) for member, rank in enumerate(ranks)}

    @property
    def dimension(self) -> str:
        """Name of the group, for people."""
        if self.first.group == NONE:
            return "point-to-point" if self.first.operation in _MESSAGES else "world"
        group = self.recording.groups[self.first.group]
        return group.description or group.name or "world"

    def _pairs(self, sizes: Iterator[tuple[int, int, int]]) -> dict[int, tuple[RankCall, ...]]:
        parts: dict[int, tuple[RankCall, ...]] = dict.fromkeys(self.ranks, ())
        for source, target, size in sizes:
            if source != target:
                for rank, more in self._call("send_recv", (source, target), size).items():
                    parts[rank] += more
        return parts

    def _to_or_from_root(self) -> Iterator[tuple[int, int, int]]:
        root = self.ranks[self.root]
        size = self._known(max(each.size for each in self.of)) // len(self.ranks)
        for rank in self.ranks:
            yield (rank, root, size) if self.first.operation == "gather" else (root, rank, size)

    def _all_pairs(self) -> Iterator[tuple[int, int, int]]:
        count = len(self.ranks)
        for place, (source, each) in enumerate(zip(self.ranks, self.of, strict=True)):
            size = each.size if each.size != NONE else max(self._sizes(), default=NONE)
            sent = each.sent or (self._known(size) // count,) * count
            if len(sent) != count:
                msg = f"rank {source} sends {len(sent)} parts in an all_to_all of {count} ranks"
                raise TraceError(self.recording.source, f"{msg}; scale only jobs whose all_to_all is even")
            for other, target in enumerate(self.ranks):
                received = self.of[other].received
                if len(received) == count and received[place] != sent[other]:
                    msg = f"rank {source} sends {sent[other]} bytes to rank {target}, which expects {received[place]}"
                    raise TraceError(self.recording.source, f"{msg}; capture the same iteration on all ranks")
                yield source, target, sent[other]
