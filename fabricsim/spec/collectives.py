"""How collectives are cut into messages, and what their steps cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fabricsim.spec.base import Spec
from fabricsim.spec.quantity import Bytes, Duration


class Collectives(Spec):
    """How collectives are cut and what each of their steps costs besides the wire.

    ``chunk`` is the most that one channel sends in one step, ``send_chunk`` the most that a send between two
    ranks hands over at once; of either, a connection's FIFO holds two. ``network_step`` and
    ``intra_host_step`` are fixed times per step (flags, fences, proxy), after NCCL's tuning tables.
    """

    channels: Annotated[int, Field(ge=1, le=64)] = 2
    chunk: Bytes = 2 * 2**20
    send_chunk: Bytes = 2**19
    network_step: Duration = 0
    intra_host_step: Duration = 0
