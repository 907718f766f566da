"""Which ranks of a job a log of NCCL is of, and which of them are in each communicator.

NCCL logs no global ranks. They are those in the communicator of all ranks, which is the largest of each rank.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import TraceError
from fabricsim.records.program import NONE
from fabricsim.traces.nccl_log.lines import Process
from fabricsim.traces.nccl_log.records import Communicator, NcclLog

Entity = tuple[Process, int]
"""A rank of the job: its process, and the GPU, as a process may have several."""

CAPTURE = "capture with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"
"""The way out where a log does not say enough."""

_MOST_LISTED = 2**21  # places in communicators of which one file knows some


@dataclass
class Ranks:
    """The ranks of the job that a log is of.

    `log`: what was logged, with calls.
    `entities`: by communicator whose it is.
    `ranks`: global rank of each; NONE if the log is of one and does not say.
    `names`: of communicators, alike on all ranks.
    `members`: by name the global ranks by their rank in the communicator.
    """

    log: NcclLog
    entities: list[Entity] = field(default_factory=list)
    ranks: dict[Entity, int] = field(default_factory=dict)
    world: int = NONE
    names: list[str] = field(default_factory=list)
    members: dict[str, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find ranks and members."""
        self.entities = [(each.process, each.device) for each in self.log.communicators]
        self._find_ranks()
        self._find_members()

    def calls(self) -> Iterator[tuple[Entity, NDArray[np.void]]]:
        """Give the ranks in their order, each with its calls."""
        by_rank = sorted(self.ranks, key=lambda entity: self.ranks[entity])
        place = {entity: number for number, entity in enumerate(by_rank)}
        of = np.array([place[entity] for entity in self.entities])[self.log.calls["communicator"]]
        order = np.argsort(of, kind="stable")
        bounds = np.searchsorted(of[order], np.arange(len(place) + 1))
        for entity, (begin, end) in zip(by_rank, pairwise(bounds.tolist()), strict=True):
            yield entity, self.log.calls[order[begin:end]]

    def _find_ranks(self) -> None:
        """Take ranks from the largest communicator, which has to be that of all."""
        largest: dict[Entity, Communicator] = {}
        for entity, each in zip(self.entities, self.log.communicators, strict=True):
            if entity not in largest or each.size > largest[entity].size:
                largest[entity] = each
        self.ranks = {entity: each.rank for entity, each in largest.items()}
        sizes, known = {each.size for each in largest.values()}, set(self.ranks.values())
        if len(sizes) == 1 and len(known) == len(largest) and (NONE not in known or len(known) == 1):
            self.world = sizes.pop()
            return
        what = f"is of {len(largest)} GPUs, but has no communicator of all of them that says their ranks"
        raise TraceError(self.log.source, f"{what}; {CAPTURE}, and call a barrier of all ranks first")

    def _find_members(self) -> None:
        """Name communicators alike on all ranks, and list the global ranks that are in them."""
        wholes: Counter[Entity] = Counter()
        for number, (entity, each) in enumerate(zip(self.entities, self.log.communicators, strict=True)):
            name = each.identity
            if not name and each.size == self.world:
                name = f"communicator {wholes[entity]} of all ranks"
                wholes[entity] += 1
            self.names.append(name or f"communicator {number} of {each.size} ranks")
            taken = self.members.setdefault(self.names[-1], {})
            rank = self.ranks[entity]
            if taken.setdefault(each.rank, rank) != rank:
                taken[NONE] = NONE  # two communicators of one name: who is in which is not known

    def group(self, number: int) -> tuple[int, ...]:
        """Global ranks of a communicator in its order; empty if not all are known."""
        members, size = self.members[self.names[number]], self.log.communicators[number].size
        if len(members) != size or NONE in members or NONE in members.values():
            return ()
        return tuple(members[rank] for rank in sorted(members))

    def listed(self) -> dict[str, tuple[int, ...]]:
        """Give the global ranks of communicators that other files may complete; NONE in places that are not known."""
        found: dict[str, tuple[int, ...]] = {}
        room = _MOST_LISTED
        for number, each in enumerate(self.log.communicators):
            name = self.names[number]
            members = self.members[name]
            shared = each.identity and each.size != self.world and name not in found
            if shared and NONE not in members and len(members) < each.size <= room:
                found[name] = tuple(members.get(rank, NONE) for rank in range(each.size))
                room -= each.size
        return found
