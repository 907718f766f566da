"""Algorithms that a user writes as a Python function, step by step for each rank.

>>> from fabricsim.collectives import recv_copy, recv_reduce, register, send
>>> def to_the_first_and_back(rank, ranks):
...     for other in range(1, ranks):
...         if rank == 0:
...             yield recv_reduce(other, shard=0)
...     if rank:
...         yield send(0, shard=0)
...         yield recv_copy(0, shard=0)
...     for other in range(1, ranks):
...         if rank == 0:
...             yield send(other, shard=0)
>>> register("all_reduce", "star", to_the_first_and_back, shards=1)

A scenario with ``collectives.algorithm = { all_reduce = "star" }`` then uses it. Scenario files hold no code.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fabricsim.collectives.base import Template
from fabricsim.collectives.builder import Builder
from fabricsim.collectives.semantics import WrongAlgorithmError, check
from fabricsim.extensions import answer, answers, place_of, require_functions

MOST_STEPS = 1_000_000
"""Steps of one rank; beyond it a function that never ends is likelier than a wish."""


@dataclass(frozen=True)
class AlgorithmStep:
    """One thing that a rank does: send shards to a peer, or receive them and reduce or copy."""

    kind: str
    peer: int
    shard: int
    shards: int


def send(target: int, shard: int, shards: int = 1) -> AlgorithmStep:
    """Send `shards` shards from `shard` on to rank `target` of the group.

    The step is over when the message is in the connection's FIFO, which holds two.
    """
    return AlgorithmStep("send", target, shard, shards)


def recv_reduce(source: int, shard: int, shards: int = 1) -> AlgorithmStep:
    """Wait for the next message of rank `source` and reduce it with one's own shards from `shard` on."""
    return AlgorithmStep("recv_reduce", source, shard, shards)


def recv_copy(source: int, shard: int, shards: int = 1) -> AlgorithmStep:
    """Wait for the next message of rank `source` and put it in the place of the shards from `shard` on."""
    return AlgorithmStep("recv_copy", source, shard, shards)


Steps = Callable[[int, int], Iterable[AlgorithmStep]]
"""From a rank's number in the group and the number of ranks to what it does, in order."""


class ByRank(NamedTuple):
    """What each rank does, and the equal parts of a round's buffer; None for one per rank."""

    steps: Steps
    shards: int | Callable[[int], int] | None

    def template(self, collective: str, name: str, members: int) -> Template:
        """Make the template, and carry it out on paper."""
        shards = self.shards
        parts = shards if isinstance(shards, int) else members if shards is None else answer(shards, int, members)
        title = f"{place_of(self.steps)}algorithm {name!r} for {collective} over {members} ranks"
        if not 1 <= parts <= MOST_STEPS:
            raise WrongAlgorithmError(f"{title}: cuts the buffer into {parts} shards; at least 1, at most {MOST_STEPS}")
        builder = Builder(members, parts)
        for rank in range(members):
            _add(builder, rank, answers(self.steps, object, rank, members), title)
        made = builder.build()
        check(collective, made, name)
        return made


def by_rank(steps: Steps, *, shards: int | Callable[[int], int] | None = None) -> ByRank:
    """Let a function say what each rank of an algorithm does; arguments as of `fabricsim.collectives.register`."""
    counted = {} if shards is None or isinstance(shards, int) else {"shards": shards}
    require_functions("by_rank", steps=steps, **counted)
    return ByRank(steps, shards)


def _add(builder: Builder, rank: int, does: Iterable[Any], title: str) -> None:
    for number, step in enumerate(does):
        if number >= MOST_STEPS:
            raise WrongAlgorithmError(f"{title}: rank {rank} has more than {MOST_STEPS} steps; does its function end?")
        _require(builder, rank, step, title)
        if step.kind == "send":
            builder.send(rank, step.peer, step.shard, step.shards)
        else:
            builder.receive(rank, step.peer, step.shard, step.shards, reduce=step.kind == "recv_reduce")


def _require(builder: Builder, rank: int, step: AlgorithmStep, title: str) -> None:
    if not isinstance(step, AlgorithmStep):
        msg = f"{title}: rank {rank} yields {step!r}; yield send(...), recv_reduce(...) or recv_copy(...)"
        raise WrongAlgorithmError(msg)
    what = f"{title}: rank {rank}: {step.kind}({step.peer!r}, {step.shard!r}, {step.shards!r})"
    if not all(isinstance(number, int) for number in (step.peer, step.shard, step.shards)):
        raise WrongAlgorithmError(f"{what}: peer and shards are whole numbers")
    if not 0 <= step.peer < builder.members or step.peer == rank:
        raise WrongAlgorithmError(f"{what}: the peer must be another rank from 0 to {builder.members - 1}")
    if step.shards < 1 or not 0 <= step.shard <= builder.shards - step.shards:
        raise WrongAlgorithmError(f"{what}: there are shards 0 to {builder.shards - 1}")
