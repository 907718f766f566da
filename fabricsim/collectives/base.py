"""Templates: what each member of a collective does, in rounds of steps.

A template says nothing of sizes, ranks or routes; it is made once per algorithm and group size and
shared by all calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fabricsim.tables import NONE, STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Template:
    """A collective algorithm for one group size.

    Attributes
    ----------
    scripts
        ``STEP`` arrays: one for all members, or one per member.
    relative
        Whether a step's shard is counted from the member's own number.
    members
        Group size.
    shards
        Equal parts of a round's buffer.
    connections
        Receiving member and its inbox of each outgoing connection, shape ``(members, c, 2)``.
    sources
        Sending member of each inbox, shape ``(members, inboxes)``; ``-1`` where there is none.

    Notes
    -----
    Every message that a script sends must be waited for by its receiver: a call gives its lanes back
    when all scripts are through.
    """

    scripts: tuple[NDArray[np.void], ...]
    relative: bool
    members: int
    shards: int
    connections: NDArray[np.int32]
    sources: NDArray[np.int32]


def script(rows: Sequence[tuple[bool, int | None]]) -> NDArray[np.void]:
    """Make a script over inbox 0 and connection 0.

    Parameters
    ----------
    rows
        Per step: whether to receive first, and the shard to send then, or None to send nothing.
    """
    per_turn = sum(receive for receive, _ in rows)
    table = np.zeros(len(rows), STEP)
    received = 0
    for step, (receive, shard) in zip(table, rows, strict=True):
        received += receive
        step["wait"] = 0 if receive else NONE
        step["needed"] = received
        step["per_turn"] = per_turn
        step["send"] = NONE if shard is None else 0
        step["shard"] = 0 if shard is None else shard
    return table


def ring_neighbours(members: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Connect a ring: member ``i`` sends to ``i + 1`` and receives from ``i - 1``.

    Returns
    -------
    tuple of ndarray
        ``connections`` and ``sources`` of a `Template`.
    """
    own = np.arange(members)
    connections = np.zeros((members, 1, 2), np.int32)
    connections[:, 0, 0] = (own + 1) % members
    sources = ((own - 1) % members).astype(np.int32).reshape(members, 1)
    return connections, sources
