"""How collectives are cut into messages, and what their steps cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.quantity import Bytes, Duration

ALGORITHMS: dict[str, list[str]] = {
    "all_reduce": ["ring"],
    "reduce_scatter": ["ring"],
    "all_gather": ["ring"],
    "broadcast": ["ring"],
    "send_recv": ["direct"],
}
"""Names of the algorithms of each collective; the first is taken where nothing else is asked for."""

PAIRED = ("send_recv",)
"""Collectives that NCCL puts together from sends between two ranks: they have ``send_chunk``, and one channel."""


class Collectives(Spec):
    """How collectives are cut and what each of their steps costs besides the wire.

    ``algorithm`` is one name for all collectives that have it, or a table from collective to name;
    others take their first. ``chunk`` is the most that one channel sends in one step, ``send_chunk`` the most
    that a send between two ranks hands over at once; of either, a connection's FIFO holds two. ``network_step``
    and ``intra_host_step`` are fixed times per step (flags, fences, proxy), after NCCL's tuning tables.
    """

    algorithm: str | dict[str, str] = "ring"
    channels: Annotated[int, Field(ge=1, le=64)] = 2
    chunk: Bytes = 2 * 2**20
    send_chunk: Bytes = 2**19
    network_step: Duration = 0
    intra_host_step: Duration = 0

    def algorithm_of(self, collective: str) -> str:
        """Name of the algorithm that a collective takes."""
        known = ALGORITHMS[collective]
        if isinstance(self.algorithm, dict):
            return self.algorithm.get(collective, known[0])
        return self.algorithm if self.algorithm in known else known[0]
