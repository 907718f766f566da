"""Collective algorithms: one file each, a function from the group to its messages."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fabricsim import extensions
from fabricsim.collectives.base import Group, Template
from fabricsim.collectives.custom import ByRank, Steps, by_rank, recv_copy, recv_reduce, send
from fabricsim.errors import InputError
from fabricsim.scenario.collectives import ALGORITHMS, DEFAULTS, Algorithm, algorithms, has, is_described

__all__ = ["Algorithm", "by_host", "by_rank", "recv_copy", "recv_reduce", "register", "send", "template", "unregister"]


@lru_cache(maxsize=256)
def _made(algorithm: Algorithm, collective: str, of: Any) -> Template:  # noqa: ANN401  a number of members or a group
    make = algorithm.of[collective]
    if isinstance(make, ByRank):
        return make.template(collective, algorithm.name, of)
    return extensions.answer(make, Template, of)


@lru_cache(maxsize=256)
def _from_files(path: str, collective: str, members: int) -> Template:
    from fabricsim.collectives import chakra, msccl  # noqa: PLC0415  few scenarios name files

    if path.endswith(".xml"):
        return msccl.template(path, collective, members)
    return chakra.read(path, collective, members).template


def register(collective: str, name: str, algorithm: Steps, *, shards: int | Callable[[int], int] | None = None) -> None:
    """Make an algorithm of one's own known, for scenarios that are loaded from then on.

    `collective`: what it carries out.
    `name`: under which ``collectives.algorithm`` names it.
    `algorithm`: called with a rank's number in the group and the number of ranks; yields what that rank does in each
        round: `send`, `recv_reduce` and `recv_copy`.
    `shards`: equal parts of a round's buffer, also as a function of the number of ranks; by default one per rank. An
        all-gather begins with the shards of rank ``i`` at rank ``i``, an all-to-all with those for rank ``i`` at ``i``.
    Raises InputError if there is no such collective, the name is none or taken, or what is given is no function. What
        the algorithm does is checked when it is first used with a number of ranks: an
        `fabricsim.collectives.semantics.WrongAlgorithmError` says which rank ends with what.
    """
    if collective not in DEFAULTS:
        raise InputError(f"no collective {collective!r}; there are {', '.join(DEFAULTS)}")
    if not isinstance(name, str) or not re.fullmatch(r"\S+", name):
        raise InputError(f"{collective}: an algorithm is called {name!r}; give it a name without blanks")
    if has(collective, name) or is_described(name) or extensions.is_file(name):
        msg = f"{collective} has an algorithm {name!r} already, or the name is that of a file: choose another name"
        raise InputError(msg)
    there = ALGORITHMS.own.get(name) or Algorithm(name, {})
    ALGORITHMS.own[name] = replace(there, of={**there.of, collective: by_rank(algorithm, shards=shards)})


def unregister(collective: str, name: str) -> None:
    """Forget an algorithm that was registered."""
    there = ALGORITHMS.own.pop(name)
    if others := {other: make for other, make in there.of.items() if other != collective}:
        ALGORITHMS.own[name] = replace(there, of=others)


def by_host(collective: str, name: str) -> bool:
    """Whether an algorithm looks at which members are on one host."""
    found = ALGORITHMS.find(name)
    return found is not None and found.by_host and not isinstance(found.of.get(collective), ByRank)


def template(collective: str, members: int, algorithm: str | None = None, group: Group | None = None) -> Template:
    """Return the template of an algorithm, made once.

    `collective`, `members`: what is done, and by how many.
    `algorithm`: its name; the first of the collective if left out.
    `group`: the places of the members, for algorithms that look at it; by default each has a host of its own below one
        switch.
    Raises SimulationError if the algorithm does not work for such a group.
    """
    name = algorithm or DEFAULTS[collective]
    if is_described(name):
        return _from_files(name, collective, members)
    found = ALGORITHMS.find(name)
    if found is None or collective not in found.of:
        raise InputError(f"{collective} has no algorithm {name!r}; there are {', '.join(algorithms(collective))}")
    if by_host(collective, name):
        return _made(found, collective, group or Group(tuple(range(members)), (0,) * members))
    return _made(found, collective, members)
