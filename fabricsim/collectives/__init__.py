"""Collective algorithms: one file each, a function from group size to `Template`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fabricsim.collectives import chain, ring
from fabricsim.spec.collectives import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template

COLLECTIVES: dict[tuple[str, str], Callable[[int], Template]] = {
    ("all_reduce", "ring"): ring.all_reduce,
    ("reduce_scatter", "ring"): ring.reduce_scatter,
    ("all_gather", "ring"): ring.all_gather,
    ("broadcast", "ring"): chain.broadcast,
    ("send_recv", "direct"): chain.send_recv,
}
"""Templates by the collective that they carry out and the name of the algorithm."""


@lru_cache(maxsize=256)
def template(collective: str, members: int, algorithm: str | None = None) -> Template:
    """Return the template of an algorithm for a group size, made once; without a name, of the first."""
    return COLLECTIVES[collective, algorithm or ALGORITHMS[collective][0]](members)
