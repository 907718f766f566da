"""Collective algorithms: one file each, a function from group size to `Template`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fabricsim.collectives import chain, ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template

COLLECTIVES: dict[str, Callable[[int], Template]] = {
    "all_reduce": ring.all_reduce,
    "reduce_scatter": ring.reduce_scatter,
    "all_gather": ring.all_gather,
    "broadcast": chain.broadcast,
    "send_recv": chain.send_recv,
}
"""Algorithms by the collective that they carry out."""


@lru_cache(maxsize=256)
def template(collective: str, members: int) -> Template:
    """Return the template of a collective for a group size, made once."""
    return COLLECTIVES[collective](members)
