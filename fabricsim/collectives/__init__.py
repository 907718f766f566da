"""Collective algorithms: one file each, a function from the group to its messages."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fabricsim.collectives import (
    all_to_all,
    bruck,
    chain,
    collnet,
    direct,
    halving,
    hierarchical,
    nvls,
    pat,
    ring,
    tree,
)
from fabricsim.collectives.base import Group
from fabricsim.collectives.custom import recv_copy, recv_reduce, send, written
from fabricsim.errors import InputError
from fabricsim.scenario.collectives import ALGORITHMS, is_described

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template
    from fabricsim.collectives.custom import Algorithm

__all__ = ["BY_HOST", "FLAT", "recv_copy", "recv_reduce", "register", "send", "template", "unregister"]

FLAT: dict[tuple[str, str], Callable[[int], Template]] = {
    ("all_reduce", "ring"): ring.all_reduce,
    ("all_reduce", "halving_doubling"): halving.halving_doubling,
    ("all_reduce", "rabenseifner"): halving.rabenseifner,
    ("all_reduce", "recursive_doubling"): halving.recursive_doubling,
    ("all_reduce", "direct"): direct.all_reduce,
    ("reduce_scatter", "ring"): ring.reduce_scatter,
    ("reduce_scatter", "recursive_halving"): halving.reduce_scatter,
    ("reduce_scatter", "pat"): pat.reduce_scatter,
    ("reduce_scatter", "direct"): direct.reduce_scatter,
    ("all_gather", "ring"): ring.all_gather,
    ("all_gather", "recursive_doubling"): halving.all_gather,
    ("all_gather", "bruck"): bruck.all_gather,
    ("all_gather", "pat"): pat.all_gather,
    ("all_gather", "direct"): direct.all_gather,
    ("broadcast", "ring"): chain.broadcast,
    ("reduce", "ring"): chain.reduce,
    ("all_to_all", "direct"): all_to_all.direct,
    ("all_to_all", "pairwise"): all_to_all.pairwise,
    ("all_to_all", "bruck"): bruck.all_to_all,
    ("send_recv", "direct"): chain.send_recv,
    ("ring_exchange", "ring"): ring.exchange,
}
"""Algorithms for which members are alike, by the collective that they carry out and their name."""

BY_HOST: dict[tuple[str, str], Callable[[Group], Template]] = {
    ("all_reduce", "tree"): tree.all_reduce,
    ("all_reduce", "hierarchical"): hierarchical.all_reduce,
    ("all_reduce", "nvls"): nvls.all_reduce,
    ("all_reduce", "nvls_tree"): nvls.tree_all_reduce,
    ("all_reduce", "collnet_direct"): collnet.direct,
    ("all_reduce", "collnet_chain"): collnet.chain,
    ("reduce_scatter", "nvls"): nvls.reduce_scatter,
    ("all_gather", "nvls"): nvls.all_gather,
}
"""Algorithms that look at which members are on one host, likewise."""


@lru_cache(maxsize=256)
def _flat(collective: str, algorithm: str, members: int) -> Template:
    return FLAT[collective, algorithm](members)


@lru_cache(maxsize=256)
def _by_host(collective: str, algorithm: str, group: Group) -> Template:
    return BY_HOST[collective, algorithm](group)


@lru_cache(maxsize=256)
def _from_files(path: str, collective: str, members: int) -> Template:
    from fabricsim.collectives import chakra, msccl  # noqa: PLC0415  few scenarios name files

    if path.endswith(".xml"):
        return msccl.template(path, collective, members)
    return chakra.read(path, collective, members).template


def register(
    collective: str, name: str, algorithm: Algorithm, *, shards: int | Callable[[int], int] | None = None
) -> None:
    """Make an algorithm of one's own known, for scenarios that are loaded from then on.

    Parameters
    ----------
    collective
        What it carries out.
    name
        Under which ``collectives.algorithm`` names it.
    algorithm
        Called with a rank's number in the group and the number of ranks; yields what that rank does in each round:
        `send`, `recv_reduce` and `recv_copy`.
    shards
        Equal parts of a round's buffer, also as a function of the number of ranks; by default one per rank. An
        all-gather begins with the shards of rank ``i`` at rank ``i``, an all-to-all with those for rank ``i`` at ``i``.

    Raises
    ------
    InputError
        If there is no such collective, or the name is taken. What the algorithm does is checked when it is first
        used with a number of ranks: an `fabricsim.collectives.semantics.WrongAlgorithmError` says which rank
        ends with what.
    """
    if collective not in ALGORITHMS:
        msg = f"no collective {collective!r}; there are {', '.join(ALGORITHMS)}"
        raise InputError(msg)
    if name in ALGORITHMS[collective] or is_described(name):
        msg = f"{collective} has an algorithm {name!r} already, or the name is that of a file: choose another name"
        raise InputError(msg)
    FLAT[collective, name] = written(collective, name, algorithm, shards)
    ALGORITHMS[collective].append(name)


def unregister(collective: str, name: str) -> None:
    """Forget an algorithm that was registered."""
    ALGORITHMS[collective].remove(name)
    del FLAT[collective, name]
    _flat.cache_clear()


def template(collective: str, members: int, algorithm: str | None = None, group: Group | None = None) -> Template:
    """Return the template of an algorithm, made once.

    Parameters
    ----------
    collective, members
        What is done, and by how many.
    algorithm
        Its name; the first of the collective if left out.
    group
        If the members are, for algorithms that look at it; by default each on a host of its own below one switch.

    Raises
    ------
    SimulationError
        If the algorithm does not work for such a group.
    """
    name = algorithm or ALGORITHMS[collective][0]
    if is_described(name):
        return _from_files(name, collective, members)
    if (collective, name) in FLAT:
        return _flat(collective, name, members)
    return _by_host(collective, name, group or Group(tuple(range(members)), (0,) * members))
