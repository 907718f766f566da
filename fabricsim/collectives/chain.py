"""Broadcast and reduction along a chain, and its two-member case, the pipeline's send and receive.

NCCL's ring broadcast and reduction: each member passes every chunk on as soon as it has it. On ``n`` ranks with
``c`` chunks of ``s`` bytes: ``(n - 2 + c) (a + s / B)`` where the latency ``a`` cannot be hidden, and
``(n - 1) a + (n - 2 + c) s / B`` if it is.
"""

import numpy as np

from fabricsim.collectives.base import Template, alone, script
from fabricsim.records.program import NONE


def _chain(members: int, *, upwards: bool) -> Template:
    """Along the order of the group, one chunk a round, from member 0, or reducing to it from the last."""
    if members == 1:
        return alone()
    own = np.arange(members, dtype=np.int32)
    connections, sources = np.full((members, 1, 2), NONE, np.int32), np.full((members, 1), NONE, np.int32)
    first, between, last = (
        script([(False, 0)]),
        script([(True, 0)], reducing=upwards),
        script([(True, None)], reducing=upwards),
    )
    scripts = (first, *[between] * (members - 2), last)
    senders, receivers = (own[1:], own[:-1]) if upwards else (own[:-1], own[1:])
    connections[senders, 0, 0], connections[senders, 0, 1] = receivers, 0
    sources[receivers, 0] = senders
    if upwards:
        scripts = scripts[::-1]
    return Template(scripts, relative=False, members=members, shards=1, connections=connections, sources=sources)


def broadcast(members: int) -> Template:
    """From member 0 along the order of the group, one chunk a round."""
    return _chain(members, upwards=False)


def reduce(members: int) -> Template:
    """From the last member against the order of the group to member 0, one chunk a round."""
    return _chain(members, upwards=True)


def send_recv(members: int) -> Template:
    """From member 0 to member 1."""
    if members != 2:  # noqa: PLR2004  a pair
        raise ValueError(f"a send has one sender and one receiver, not {members} ranks")
    return broadcast(2)
